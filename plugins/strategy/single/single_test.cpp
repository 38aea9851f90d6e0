#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

#include "keyseat/interfaces/strategy.h"
#include "keyseat/registry.h"
#include "train/test_units.h"

using namespace keyseat;
using namespace keyseat::testing;

namespace {

// A communicator that is never asked for anything.
class NoComm final : public Comm {
 public:
  void connect(const Rendezvous&) override {}
  CommGroup& group(const std::vector<int64_t>&, CommChannel) override {
    throw std::logic_error("single communicates");
  }
};

std::shared_ptr<Strategy> make_single() {
  static Registry registry(make_plugin_search({}));
  return registry.create<Strategy>("single", Options());
}

Chain chain_of(std::vector<NamedBlock> blocks, std::vector<std::string> freeze = {}) {
  Problems problems;
  Chain chain = Chain::build(std::move(blocks), freeze, problems);
  REQUIRE(problems_text(problems) == "");
  return chain;
}

std::shared_ptr<Strategy> placed(const Chain& chain, int64_t seed = 1,
                                 at::ScalarType compute = at::kFloat) {
  static NoComm comm;
  static const Mesh mesh;
  auto single = make_single();
  StrategyFacts facts;
  facts.seed = seed;
  facts.compute_dtype = compute;
  single->place(facts, chain, mesh, comm);
  return single;
}

std::unique_ptr<Executor> executor_of(const Chain& chain, Strategy& single) {
  ExecutorServices services;
  services.events = &single;
  return std::make_unique<Executor>(chain, services);
}

}  // namespace

TEST_CASE("single: one rank only") {
  const Chain chain = chain_of(vision_language_blocks());
  StrategyFacts facts;
  CHECK(make_single()->validate(facts, chain).empty());
  facts.world = 2;
  const Problems problems = make_single()->validate(facts, chain);
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].code == Code::kC4Combination);
}

TEST_CASE("single: gradients of a step equal those of ordinary graphs, and start at zero") {
  const Chain chain = chain_of(vision_language_blocks());
  const auto single = placed(chain);
  const TestParams values(chain, false, 7);
  for (int unit = 0; unit < chain.size(); ++unit) {
    for (size_t i = 0; i < values.of(unit).size(); ++i) {
      single->write_master(unit, int(i), values.of(unit).at(i).value().detach());
    }
  }
  const auto executor = executor_of(chain, *single);
  const auto rows = [] {
    return std::vector<Row>{make_row(9, 3, 1), make_row(5, 0, 2), make_row(7, 7, 3)};
  };
  for (int64_t step = 0; step < 2; ++step) {
    executor->begin_step(step, loss_terms());
    std::vector<int64_t> seen;
    StepPlan plan;
    plan.rows = rows();
    plan.on_forward = [&](int64_t micro_batch, const Executor& running, const Store& store) {
      seen.push_back(micro_batch);
      CHECK(running.tensor(store, "loss.ce").defined());
    };
    single->schedule(std::move(plan), *executor);
    single->finish();
    CHECK(seen == std::vector<int64_t>{0, 1, 2});
    const auto expected = plain_gradients(chain, 7, rows());
    for (int unit = 0; unit < chain.size(); ++unit) {
      const std::string& name = chain.units()[unit].param_names[0];
      INFO(name);
      CHECK(at::allclose(single->read_gradient(unit, 0), expected.at(name), 1e-5, 1e-6));
    }
  }
}

TEST_CASE("single: initial values depend on seed and name, not on the rest of the model") {
  const Chain whole = chain_of(vision_language_blocks());
  const Chain tower = chain_of({vision_language_blocks()[0]});
  CHECK(at::equal(placed(whole)->read_master(1, 0), placed(tower)->read_master(1, 0)));
  CHECK_FALSE(at::equal(placed(whole)->read_master(1, 0), placed(whole, 2)->read_master(1, 0)));
  std::vector<ParamSpec> params{param("scale", {5}), param("bias", {5})};
  params[0].init.kind = Init::Kind::kOnes;
  params[1].init.kind = Init::Kind::kZeros;
  const UnitSpec unit = unit_spec("u", params, {}, {});
  const Chain other = chain_of({block("b", {{unit, nullptr}})});
  CHECK(placed(other)->read_master(0, 0).sum().item<float>() == 5);
  CHECK(placed(other)->read_master(0, 1).abs().sum().item<float>() == 0);
}

TEST_CASE("single: tied parameters are one memory with one shard") {
  const Chain chain = chain_of(vision_language_blocks());
  const auto single = placed(chain);
  const int head = chain.size() - 1;
  single->write_master(head, 0, at::full({kVocabulary, kHidden}, 3));
  CHECK(single->read_master(4, 0).mean().item<float>() == 3);
  int tables = 0;
  for (const OptimizerShard& shard : single->shards(2)) {
    tables += shard.name.ends_with("table");
    CHECK(shard.state.size() == 2);
    CHECK(reinterpret_cast<size_t>(shard.master.data_ptr()) % 64 == 0);
  }
  CHECK(tables == 1);
  CHECK(single->shards(2).size() == 7);
}

TEST_CASE(
    "single: optimizer states go in and out in the parameter's shape, tied ones at the owner") {
  const Chain chain = chain_of(vision_language_blocks());
  const auto single = placed(chain);
  auto& shards = single->shards(2);
  const int head = chain.size() - 1;
  single->write_state(head, 0, 1, at::full({kVocabulary, kHidden}, 7));
  CHECK((single->read_state(4, 0, 1).sizes() == at::IntArrayRef{kVocabulary, kHidden}));
  CHECK(single->read_state(4, 0, 1).mean().item<float>() == 7);
  CHECK(single->read_state(4, 0, 0).abs().sum().item<float>() == 0);
  int written = 0;
  for (const OptimizerShard& shard : shards)
    written += shard.state[1].numel() > 0 && shard.state[1].mean().item<float>() == 7;
  CHECK(written == 1);
}

TEST_CASE("single: frozen blocks have no gradient memory, no shard, no norm") {
  const Chain chain = chain_of(vision_language_blocks(), {"vision", "decoder"});
  const auto single = placed(chain);
  CHECK(single->shards(2).size() == 2);
  for (const NormGroup& group : single->norm_groups()) {
    CHECK(group.gradients.size() == (group.block == "projector" ? 2u : 0u));
    CHECK(group.masters.size() == group.gradients.size());
  }
  CHECK_FALSE(single->read_state(0, 0, 0).defined());
  CHECK_FALSE(single->read_gradient(0, 0).defined());
  CHECK(single->read_gradient(2, 0).defined());
}

TEST_CASE("single: bf16 copies with fp32 masters; keep_fp32 stays") {
  std::vector<ParamSpec> params{param("w", {3, 5}), param("router", {4, 5})};
  params[1].keep_fp32 = true;
  const UnitSpec unit = unit_spec("u", params, {}, {});
  const Chain chain = chain_of({block("b", {{unit, nullptr}})});
  const auto single = placed(chain, 1, at::kBFloat16);
  const Params& trained = single->before_forward(0, true);
  CHECK((trained.at(0).value().scalar_type() == at::kBFloat16));
  CHECK((trained.at(1).value().scalar_type() == at::kFloat));
  CHECK(trained.at(0).value().requires_grad());
  CHECK((trained.at(0).sink().scalar_type() == at::kFloat));
  CHECK_FALSE(single->before_forward(0, false).at(0).value().requires_grad());
  const at::Tensor master = single->read_master(0, 0);
  CHECK(at::equal(trained.at(0).value().detach(), master.to(at::kBFloat16)));
  const auto& shards = single->shards(1);
  CHECK((shards[0].compute.scalar_type() == at::kBFloat16));
  CHECK_FALSE(shards[1].compute.defined());
  StrategyFacts facts;
  facts.compute_dtype = at::kBFloat16;
  CHECK(single->estimate(facts, chain, {}, 2).parameters == 35 * 6);
  CHECK(single->estimate(facts, chain, {}, 2).optimizer == 35 * 8);
}
