#include "tests/ranks/layout_run.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

#include "keyseat/interfaces/optimizer.h"
#include "tests/ranks/thread_comm.h"
#include "train/norms.h"
#include "train/step_counts.h"
#include "train/step_sums.h"
#include "train/update.h"

namespace keyseat::test {
namespace {

using testing::make_plugin;
using testing::Values;

constexpr double kClip = 0.5;

std::vector<NamedBlock> blocks_of(const LayoutModel& model) {
  if (model.blocks) return model.blocks();
  if (!model.text_only) return testing::small_blocks(model.decoder);
  const Values decoder =
      testing::with(testing::small_decoder(), {{"vision", false},
                                               {"deepstack_visual_indexes", std::vector<int64_t>{}},
                                               {"mrope_section", std::vector<int64_t>{}}});
  return {testing::block_of("decoder", "qwen3_moe", testing::with(decoder, model.decoder))};
}

LossSettings losses() {
  LossSettings settings;
  settings.aux_weight = 0.1;
  settings.z_weight = 0.01;
  return settings;
}

// Everything that one rank runs.
class LayoutRank {
 public:
  LayoutRank(const LayoutChoice& choice, const LayoutModel& model, int64_t rank)
      : choice_(choice),
        model_(model),
        rank_(rank),
        strategy_(make_strategy(choice)),
        mesh_(Mesh::build(strategy_->degrees(choice.world), choice.world, rank,
                          facts().ranks_per_node, refused_)),
        chain_(Chain::build(blocks_of(model), choice.freeze, refused_, mesh_)),
        dispatcher_(make_plugin<Dispatcher>(choice.dispatcher, choice.dispatcher_options)),
        recompute_(make_plugin<Recompute>(choice.recompute, choice.recompute_options)),
        optimizer_(make_plugin<Optimizer>("adamw", {{"lr", 1e-3}})) {}

  Problems problems() const {
    Problems all = refused_;
    for (Problem& problem : strategy_->validate(facts(), chain_)) all.push_back(std::move(problem));
    for (const ChainUnit& unit : chain_.units()) {
      if (unit.unit->spec().top_k == 0 || !all.empty()) continue;
      for (const ParamSpec& param : unit.unit->spec().params) {
        if (param.domain != ParamDomain::kExpert) continue;
        DispatcherFacts facts;
        facts.experts = param.shape[0];
        facts.top_k = unit.unit->spec().top_k;
        facts.hidden = param.shape[2];
        return dispatcher_->check_layout(facts, mesh_);
      }
    }
    return all;
  }

  LayoutResult run(Comm& comm, const StepShape& shape, int64_t steps) {
    place(comm);
    train::Update update(chain_, *strategy_, *optimizer_, {});
    LayoutResult result;
    const auto before = read_all([&](int u, int p) { return strategy_->read_master(u, p); });
    for (int64_t step = 0; step < steps; ++step) {
      const train::StepCounts counts = forward_backward(comm, shape, step);
      strategy_->finish();
      result.losses.push_back(train::sum_over_ranks(*executor_, comm, choice_.world).losses);
      if (step == 0) {
        result.gradients = read_all([&](int u, int p) { return strategy_->read_gradient(u, p); });
      }
      result.norms.push_back(train::global_norms(*strategy_, mesh_, comm, false).gradient);
      update.step(optimizer_->base_lr(), train::clip_coefficient(result.norms.back(), kClip),
                  counts.total);
    }
    result.changes = read_all([&](int u, int p) { return strategy_->read_master(u, p); });
    for (auto& [name, after] : result.changes) after = after - before.at(name);
    return result;
  }

 private:
  static std::shared_ptr<Strategy> make_strategy(const LayoutChoice& choice) {
    if (!choice.make_strategy)
      return make_plugin<Strategy>(choice.strategy, choice.strategy_options);
    return choice.make_strategy(
        testing::options_of("strategy", choice.strategy, choice.strategy_options));
  }

  StrategyFacts facts() const {
    StrategyFacts facts;
    facts.world = choice_.world;
    facts.rank = rank_;
    facts.ranks_per_node = choice_.ranks_per_node > 0 ? choice_.ranks_per_node : choice_.world;
    facts.seed = 3;
    facts.compute_dtype = choice_.compute_dtype;
    return facts;
  }

  void place(Comm& comm) {
    REQUIRE(problems_text(problems()) == "");
    strategy_->place(facts(), chain_, mesh_, comm);
    if (model_.prepare) model_.prepare(chain_, *strategy_);
    ExecutorServices services;
    services.comm = &comm;
    services.mesh = &mesh_;
    services.dispatcher = dispatcher_.get();
    services.recompute = recompute_.get();
    services.events = strategy_.get();
    services.compute_dtype = choice_.compute_dtype;
    executor_ = std::make_unique<Executor>(chain_, services);
  }

  train::StepCounts forward_backward(Comm& comm, const StepShape& shape, int64_t step) {
    std::vector<Row> rows;
    for (size_t m = 0; m < shape.size(); ++m) rows.push_back(row_of(shape, step, m));
    const train::StepCounts counts = train::gather_counts(rows, comm, mesh_);
    RowCounts normalisers = counts.total;
    if (choice_.normalise_by_own_counts) {
      RowCounts own;
      for (const Row& row : rows) own += row.facts.counts;
      normalisers.supervised = own.supervised * choice_.world;
    }
    auto terms = train::loss_terms(chain_, losses(), normalisers);
    for (const auto& [name, weight] : model_.loss_weights) terms.at(name).weight = weight;
    executor_->begin_step(step, std::move(terms));
    StepPlan plan;
    plan.step = step;
    plan.rows = std::move(rows);
    strategy_->schedule(std::move(plan), *executor_);
    return counts;
  }

  // This rank's part of a micro-batch: every D-th row of it.
  Row row_of(const StepShape& shape, int64_t step, size_t micro_batch) const {
    std::vector<Sample> samples;
    const auto& rows = shape[micro_batch];
    for (size_t row = 0; row < rows.size(); ++row) {
      if (static_cast<int64_t>(row) % mesh_.data_degree() != mesh_.data_rank()) continue;
      for (size_t i = 0; i < rows[row].size(); ++i) {
        const auto id =
            static_cast<int64_t>((step * 100 + static_cast<int64_t>(micro_batch)) * 100 +
                                 static_cast<int64_t>(row * 10 + i));
        const bool image = rows[row][i].image && chain_.input().patch_size > 0;
        samples.push_back(testing::small_sample(id, rows[row][i].text, image, chain_.input()));
      }
    }
    data::PackOptions options;
    options.input = chain_.input();
    std::vector<const Sample*> pointers;
    for (const Sample& sample : samples) pointers.push_back(&sample);
    return data::pack(pointers, options);
  }

  std::map<std::string, at::Tensor> read_all(
      const std::function<at::Tensor(int, int)>& read) const {
    std::map<std::string, at::Tensor> values;
    for (int unit = 0; unit < chain_.size(); ++unit) {
      const ChainUnit& facts = chain_.units()[unit];
      for (int param = 0; param < static_cast<int>(facts.param_names.size()); ++param) {
        const at::Tensor value = read(unit, param);
        if (value.defined()) values[facts.param_names[param]] = value.clone();
      }
    }
    return values;
  }

  const LayoutChoice& choice_;
  const LayoutModel& model_;
  const int64_t rank_;
  Problems refused_;  // mesh and chain
  std::shared_ptr<Strategy> strategy_;
  const Mesh mesh_;
  const Chain chain_;
  std::shared_ptr<Dispatcher> dispatcher_;
  std::shared_ptr<Recompute> recompute_;
  std::shared_ptr<Optimizer> optimizer_;
  std::unique_ptr<Executor> executor_;
};

double relative(double value, double expected) {
  return std::abs(value - expected) / std::max(std::abs(expected), 1e-30);
}

double relative_l2(const at::Tensor& value, const at::Tensor& expected) {
  const double difference = (value - expected).to(at::kDouble).norm().item<double>();
  const double size = expected.to(at::kDouble).norm().item<double>();
  if (difference == 0) return 0;
  return difference / std::max(size, 1e-30);
}

void note(double difference, const std::string& name, double& worst, std::string& worst_name) {
  // A NaN is the worst of all, and stays.
  if (!std::isnan(worst) && !(difference <= worst)) {
    worst = difference;
    worst_name = name;
  }
}

}  // namespace

StepShape mixed_step() {
  const std::vector<SampleShape> mixed{{5, true}, {7, false}, {4, true}}, text{{9, false}}, empty{},
      one_token{{1, false}}, image{{6, true}};
  return {{mixed, empty, text, one_token}, {text, image, empty, text}};
}

Problems layout_problems(const LayoutChoice& choice, const LayoutModel& model) {
  return LayoutRank(choice, model, 0).problems();
}

LayoutResult run_layout(const LayoutChoice& choice, const LayoutModel& model,
                        const StepShape& shape, int64_t steps) {
  // Made here: only the runs themselves are parallel.
  std::vector<std::unique_ptr<LayoutRank>> ranks;
  for (int64_t rank = 0; rank < choice.world; ++rank)
    ranks.push_back(std::make_unique<LayoutRank>(choice, model, rank));
  std::vector<LayoutResult> results(ranks.size());
  ThreadWorldOptions options;
  options.world = choice.world;
  options.ranks_per_node = choice.ranks_per_node;
  options.timeout_seconds = choice.timeout_seconds;
  ThreadWorld(options).run([&](int64_t rank, ThreadComm& comm) {
    results[static_cast<size_t>(rank)] = ranks[static_cast<size_t>(rank)]->run(comm, shape, steps);
  });
  for (const LayoutResult& result : results) {
    if (result.losses == results[0].losses && result.norms == results[0].norms) continue;
    throw Error(Problem{
        Code::kR2Communication, {}, "ranks disagree about the losses or norms of a step", "", ""});
  }
  return results[0];
}

LayoutDifference compare_layouts(const LayoutResult& result, const LayoutResult& oracle) {
  LayoutDifference worst;
  std::string unused;
  REQUIRE(result.losses.size() == oracle.losses.size());
  for (size_t step = 0; step < oracle.losses.size(); ++step) {
    REQUIRE(result.losses[step].size() == oracle.losses[step].size());
    for (const auto& [name, expected] : oracle.losses[step])
      note(relative(result.losses[step].at(name), expected), name, worst.loss, unused);
    note(relative(result.norms[step], oracle.norms[step]), "", worst.norm, unused);
  }
  REQUIRE(result.gradients.size() == oracle.gradients.size());
  for (const auto& [name, expected] : oracle.gradients) {
    const at::Tensor& gradient = result.gradients.at(name);
    REQUIRE(gradient.sizes() == expected.sizes());
    note(relative_l2(gradient, expected), name, worst.gradient, worst.worst_gradient);
    if (name.find(".experts.") == std::string::npos) continue;
    for (int64_t expert = 0; expert < expected.size(0); ++expert) {
      note(relative_l2(gradient[expert], expected[expert]), fmt::format("{}[{}]", name, expert),
           worst.gradient, worst.worst_gradient);
    }
  }
  for (const auto& [name, expected] : oracle.changes)
    note(relative_l2(result.changes.at(name), expected), name, worst.change, worst.worst_change);
  return worst;
}

bool LayoutDifference::within_limits() const {
  return loss <= 1e-5 && gradient <= 1e-5 && norm <= 1e-5 && change <= 1e-3;
}

std::string LayoutDifference::text() const {
  return fmt::format("loss {:.1e}, gradient {:.1e} ({}), norm {:.1e}, change {:.1e} ({})", loss,
                     gradient, worst_gradient, norm, change, worst_change);
}

}  // namespace keyseat::test
