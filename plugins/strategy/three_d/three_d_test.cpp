#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

#include "tests/ranks/placed_rank.h"
#include "tests/ranks/thread_comm.h"
#include "train/model_fixture.h"

using namespace keyseat;
using namespace keyseat::test;
using keyseat::testing::make_plugin;
using keyseat::testing::Values;
using keyseat::testing::with;

namespace {

Values degrees(int64_t pipeline, int64_t chunks = 1, int64_t expert = 1) {
  return {{"pipeline", pipeline}, {"virtual", chunks}, {"expert", expert}};
}

Mesh mesh_of(const Strategy& strategy, int64_t rank, int64_t world) {
  Problems problems;
  Mesh mesh = Mesh::build(strategy.degrees(world), world, rank, world, problems);
  REQUIRE(problems_text(problems) == "");
  return mesh;
}

// One rank of a world whose ranks are threads, made before them.
class Rank {
 public:
  Rank(const Values& options, int64_t rank, int64_t world,
       const std::vector<std::string>& freeze = {})
      : strategy(make_plugin<Strategy>("three_d", options)),
        facts(facts_of(rank, world)),
        mesh(mesh_of(*strategy, rank, world)),
        chain(testing::chain_of(testing::small_blocks(), freeze, mesh)) {}

  void place(Comm& comm) { strategy->place(facts, chain, mesh, comm); }
  void connect(Comm& comm, UnitEvents& events) {
    ExecutorServices services;
    services.comm = &comm;
    services.mesh = &mesh;
    services.dispatcher = dispatcher_.get();
    services.events = &events;
    executor_ = std::make_unique<Executor>(chain, services);
  }
  void schedule(StepPlan plan) {
    executor_->begin_step(0, testing::small_loss_terms(chain));
    strategy->schedule(std::move(plan), *executor_);
  }

  const std::shared_ptr<Strategy> strategy;
  const StrategyFacts facts;
  const Mesh mesh;
  const Chain chain;

 private:
  std::shared_ptr<Dispatcher> dispatcher_ = make_plugin<Dispatcher>("local");
  std::unique_ptr<Executor> executor_;
};

using Ranks = std::vector<std::unique_ptr<Rank>>;

Ranks ranks_of(const Values& options, int64_t world, const std::vector<std::string>& freeze = {}) {
  Ranks ranks;
  for (int64_t rank = 0; rank < world; ++rank)
    ranks.push_back(std::make_unique<Rank>(options, rank, world, freeze));
  return ranks;
}

void run(Ranks& ranks, const std::function<void(size_t, Rank&, ThreadComm&)>& rank_main) {
  ThreadWorld({.world = static_cast<int64_t>(ranks.size())})
      .run([&](int64_t rank, ThreadComm& comm) {
        const auto index = static_cast<size_t>(rank);
        ranks[index]->place(comm);
        ranks[index]->connect(comm, *ranks[index]->strategy);
        rank_main(index, *ranks[index], comm);
      });
}

// Rows of one sample each; the second one without an image.
std::vector<Row> rows_of(const Chain& chain, int64_t count) {
  std::vector<Row> rows;
  for (int64_t row = 0; row < count; ++row) {
    const Sample sample = testing::small_sample(row, 4 + row, row != 1, chain.input());
    data::PackOptions options;
    options.input = chain.input();
    options.all_logits = true;
    rows.push_back(data::pack({&sample}, options));
  }
  return rows;
}

}  // namespace

TEST_CASE("three_d: a row longer than fixed_tokens is C3 in training, and evaluated as it is") {
  Ranks ranks = ranks_of({{"fixed_tokens", int64_t{8}}}, 1);
  run(ranks, [&](size_t, Rank& rank, ThreadComm&) {
    const auto plan_of = [&](bool training) {
      StepPlan plan;
      plan.rows = rows_of(rank.chain, 1);
      plan.training = training;
      return plan;
    };
    CHECK_THROWS_WITH_AS(rank.schedule(plan_of(true)), doctest::Contains("8"), Error);
    int64_t rows = 0;
    StepPlan evaluated = plan_of(false);
    const int64_t tokens = evaluated.rows[0].facts.row_tokens();
    evaluated.on_forward = [&](int64_t, const Executor& done, const Store& store) {
      rows += done.tensor(store, "logits").size(0);
    };
    rank.schedule(std::move(evaluated));
    CHECK(tokens > 8);
    CHECK(rows == tokens);
  });
}

TEST_CASE("three_d: copies of a tied parameter on two stages stay bitwise equal") {
  std::vector<std::shared_ptr<Strategy>> strategies;
  LayoutChoice choice;
  choice.world = 4;
  choice.strategy = "three_d";
  choice.strategy_options = degrees(2);
  choice.make_strategy = [&](const Options&) {
    strategies.push_back(make_plugin<Strategy>("three_d", degrees(2)));
    return strategies.back();
  };
  const LayoutModel tied{.decoder = {{"tie_word_embeddings", true}}};
  const LayoutResult result = run_layout(choice, tied, mixed_step(), 6);
  const Chain chain = testing::chain_of(testing::small_blocks(tied.decoder));
  int embedding = 0;
  while (chain.units()[embedding].name != "decoder.embed_tokens") ++embedding;
  const int head = chain.size() - 1;
  // As the last step found them, behind five updates; by position, since the ranks' chains are
  // gone.
  const auto value = [&](size_t rank, int unit, const char* name) {
    const std::vector<ParamSpec>& specs = chain.units()[unit].unit->spec().params;
    size_t param = 0;
    while (specs[param].name != name) ++param;
    return strategies[rank]->before_forward(unit, false).at(param).value();
  };
  const at::Tensor first = value(0, embedding, "weight");
  for (const at::Tensor& copy : {value(1, embedding, "weight"), value(2, head, "lm_head.weight"),
                                 value(3, head, "lm_head.weight")}) {
    CHECK(at::equal(first, copy));
  }
  CHECK(result.changes.at("decoder.embed_tokens.weight").norm().item<double>() > 0);
}

TEST_CASE("three_d: without training every row passes forward once, and the last stage is asked") {
  constexpr size_t kWorld = 4, kRows = 3;
  testing::SmallModel model(testing::small_blocks());
  std::vector<at::Tensor> expected;
  model.run(rows_of(model.chain(), kRows), /*training=*/false, &expected);
  for (const int64_t chunks : {1, 2}) {
    Ranks ranks = ranks_of(degrees(2, chunks), kWorld);
    std::array<std::vector<std::pair<int64_t, at::Tensor>>, kWorld> logits;
    run(ranks, [&](size_t index, Rank& rank, ThreadComm&) {
      StepPlan plan;
      plan.rows = rows_of(rank.chain, kRows);
      plan.training = false;
      plan.on_forward = [&](int64_t row, const Executor& done, const Store& store) {
        logits[index].emplace_back(row, done.tensor(store, "logits").clone());
      };
      rank.schedule(std::move(plan));
    });
    for (size_t rank = 0; rank < kWorld; ++rank) {
      REQUIRE(logits[rank].size() == (rank < 2 ? 0 : kRows));
      for (size_t i = 0; i < logits[rank].size(); ++i) {
        CHECK(logits[rank][i].first == static_cast<int64_t>(i));
        CHECK(at::equal(logits[rank][i].second, expected[i]));
      }
    }
  }
}

TEST_CASE(
    "three_d: only what is live at a cut is sent, and gradients only where something trains") {
  // Sends of each of two stages in one training step of two rows.
  const auto sends = [](const std::vector<std::string>& freeze, const char* cut) {
    Ranks ranks =
        ranks_of(with(degrees(2), {{"stages", std::vector<std::string>{cut}}}), 2, freeze);
    std::array<int, 2> counts{};
    run(ranks, [&](size_t index, Rank& rank, ThreadComm& comm) {
      comm.take_calls();
      StepPlan plan;
      plan.rows = rows_of(rank.chain, 2);
      rank.schedule(std::move(plan));
      for (const RecordedCall& call : comm.take_calls())
        counts[index] += call.kind == "send" ? 1 : 0;
      rank.strategy->finish();
    });
    return counts;
  };
  // Behind the tower's first block: vision.hidden, and its tap as deepstack feature.
  CHECK(sends({}, "vision.blocks.1") == std::array<int, 2>{4, 4});
  CHECK(sends({"vision"}, "vision.blocks.1") == std::array<int, 2>{4, 2});
  CHECK(sends({"vision", "projector"}, "vision.blocks.1") == std::array<int, 2>{4, 0});
  // hidden; the second feature; statistics and z-loss of layer 0 as one parcel.
  CHECK(sends({}, "decoder.layers.1") == std::array<int, 2>{6, 6});
  CHECK(sends({"vision", "projector"}, "decoder.layers.1") == std::array<int, 2>{6, 4});
}

namespace {

// Reductions that have begun when the backward of a unit is over.
class CountedReductions final : public UnitEvents {
 public:
  CountedReductions(UnitEvents& events, ThreadComm& comm) : events_(events), comm_(comm) {}
  const Params& before_forward(int unit, bool training) override {
    return events_.before_forward(unit, training);
  }
  void after_forward(int unit) override { events_.after_forward(unit); }
  const Params& before_backward(int unit) override { return events_.before_backward(unit); }
  void after_backward(int unit) override {
    events_.after_backward(unit);
    for (const RecordedCall& call : comm_.take_calls())
      begun_ += call.kind == "reduce_scatter" ? 1 : 0;
    behind.emplace_back(unit, begun_);
  }
  std::vector<std::pair<int, int>> behind;

 private:
  UnitEvents& events_;
  ThreadComm& comm_;
  int begun_ = 0;
};

}  // namespace

TEST_CASE(
    "three_d: the reduction of a unit begins behind its last backward, before the next unit's") {
  constexpr int kRows = 2;
  Ranks ranks = ranks_of(with(degrees(1), {{"min_bytes", int64_t{0}}}), 2);
  std::vector<std::pair<int, int>> behind;
  run(ranks, [&](size_t index, Rank& rank, ThreadComm& comm) {
    CountedReductions events(*rank.strategy, comm);
    rank.connect(comm, events);
    StepPlan plan;
    plan.rows = rows_of(rank.chain, kRows);
    rank.schedule(std::move(plan));
    rank.strategy->finish();
    if (index == 0) behind = events.behind;
  });
  const int units = ranks[0]->chain.size();
  REQUIRE(behind.size() == static_cast<size_t>(kRows * units));
  int before = 0;
  for (int i = 0; i < kRows * units; ++i) {
    const auto& [unit, begun] = behind[static_cast<size_t>(i)];
    CAPTURE(unit);
    CHECK(unit == units - 1 - i % units);
    CHECK((i < units ? begun == 0 : begun > before));
    before = begun;
  }
}

namespace {

// Units whose sums were still on their way behind their last backward: what a Work has not
// delivered reads NaN.
class OpenSums final : public UnitEvents {
 public:
  explicit OpenSums(Rank& rank) : rank_(rank) {}
  const Params& before_forward(int unit, bool training) override {
    return rank_.strategy->before_forward(unit, training);
  }
  void after_forward(int unit) override { rank_.strategy->after_forward(unit); }
  const Params& before_backward(int unit) override { return rank_.strategy->before_backward(unit); }
  void after_backward(int unit) override {
    rank_.strategy->after_backward(unit);
    bool has_shard = false, is_open = false;
    for (const OptimizerShard& shard : rank_.strategy->shards(2)) {
      if (!shard.name.starts_with(rank_.chain.units()[unit].name + ".")) continue;
      has_shard = true;
      is_open |= shard.grad.isnan().any().item<bool>();
    }
    open += is_open ? 1 : 0;
    done += has_shard && !is_open ? 1 : 0;
  }
  int open = 0, done = 0;

 private:
  Rank& rank_;
};

}  // namespace

TEST_CASE("three_d: without overlap a unit's gradients are summed before the next unit runs") {
  for (const bool overlap : {true, false}) {
    CAPTURE(overlap);
    Ranks ranks = ranks_of({{"min_bytes", int64_t{0}}, {"overlap", overlap}}, 2);
    std::array<int, 2> open{}, done{};
    run(ranks, [&](size_t index, Rank& rank, ThreadComm& comm) {
      OpenSums events(rank);
      rank.connect(comm, events);
      StepPlan plan;
      plan.rows = rows_of(rank.chain, 1);
      rank.schedule(std::move(plan));
      rank.strategy->finish();
      open[index] = events.open;
      done[index] = events.done;
    });
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      CHECK((overlap ? open[rank] : done[rank]) == ranks[0]->chain.size());
      CHECK((overlap ? done[rank] : open[rank]) == 0);
    }
  }
}

TEST_CASE(
    "three_d: sums of gradients queue neither behind nor in front of what a layer waits for") {
  for (const bool sharded : {true, false}) {
    CAPTURE(sharded);
    // Both the rows and the gradients travel between the same two ranks.
    Ranks ranks = ranks_of(
        {{"min_bytes", int64_t{0}}, {"context", int64_t{2}}, {"shard_optimizer", sharded}}, 2);
    run(ranks, [&](size_t, Rank& rank, ThreadComm& comm) {
      StepPlan plan;
      plan.rows = rows_of(rank.chain, 1);
      comm.take_calls();
      rank.schedule(std::move(plan));
      rank.strategy->finish();
      int64_t beside = 0, computed = 0;
      for (const RecordedCall& call : comm.take_calls())
        ++(call.channel == CommChannel::kParameters ? beside : computed);
      // At least one by group of parameters: its values, where they are sharded, its gradients.
      const auto& units = rank.chain.units();
      const auto groups = std::count_if(units.begin(), units.end(), [](const ChainUnit& unit) {
        return !unit.param_names.empty();
      });
      CHECK(beside >= (sharded ? 2 : 1) * groups);
      CHECK(computed > 0);
    });
  }
}
