// What strategy/three_d refuses, and what its ranks hold, for all degrees.
#include <doctest/doctest.h>

#include "keyseat/sharding/cut.h"
#include "tests/ranks/placed_rank.h"
#include "tests/ranks/thread_comm.h"
#include "train/model_fixture.h"

using namespace keyseat;
using namespace keyseat::test;
using keyseat::testing::check_problem;
using keyseat::testing::make_plugin;
using keyseat::testing::Values;
using keyseat::testing::with;

namespace {

constexpr int64_t kTwo = 2, kThree = 3, kFour = 4;

Values pipeline_of(int64_t stages, int64_t chunks = 1, int64_t expert = 1) {
  return {{"pipeline", stages}, {"virtual", chunks}, {"expert", expert}};
}

Problems problems_of(const Values& options, int64_t world, const Chain& chain) {
  return make_plugin<Strategy>("three_d", options)->validate(facts_of(0, world), chain);
}

size_t bytes_of_states(std::vector<OptimizerShard>& shards) {
  std::map<const void*, size_t> storages;  // a storage holds the states of many shards
  for (const OptimizerShard& shard : shards) {
    for (const at::Tensor& state : shard.state)
      storages[state.storage().data()] = state.storage().nbytes();
  }
  size_t bytes = 0;
  for (const auto& [data, size] : storages) bytes += size;
  return bytes;
}

}  // namespace

TEST_CASE("three_d: layouts that cannot be are refused at their options, all at once") {
  const Chain chain = testing::chain_of(testing::small_blocks());
  check_problem(problems_of(pipeline_of(3), 4, chain), Code::kC4Combination,
                "pipeline 3 does not divide the 4 ranks of the run");
  check_problem(problems_of(pipeline_of(2, 1, 4), 4, chain), Code::kC4Combination,
                "expert 4 does not divide the 2 ranks of a stage (4 ranks / pipeline 2)");
  check_problem(problems_of(pipeline_of(2, 1, 3), 6, chain), Code::kC4Combination,
                "expert 3 does not divide the 4 experts");
  check_problem(problems_of(pipeline_of(1, 2), 2, chain), Code::kC4Combination,
                "virtual is 2, but pipeline is 1");
  check_problem(problems_of(pipeline_of(4, 4), 4, chain), Code::kC4Combination,
                "pipeline 4 x virtual 4 = 16 chunks, but the chain has 12 units");
  // Their product exceeds 32 bits.
  check_problem(problems_of(pipeline_of(1 << 16, 1 << 16), 1 << 16, chain), Code::kC4Combination,
                "= 4294967296 chunks, but the chain has 12 units");
  check_problem(problems_of(pipeline_of(1 << 16, 1 << 15), 1 << 16, chain), Code::kC4Combination,
                "= 2147483648 chunks, but the chain has 12 units");
  CHECK(problems_of(pipeline_of(3, 2, 3), 4, chain).size() == 2);  // the ranks, and the experts
  const Chain dense = testing::chain_of(testing::small_blocks({{"num_experts", int64_t{0}}}));
  check_problem(problems_of(pipeline_of(1, 1, 2), 2, dense), Code::kC4Combination,
                "no routed experts");

  const auto cut = [&](std::vector<std::string> units) {
    return problems_of(with(pipeline_of(3), {{"stages", std::move(units)}}), 3, chain);
  };
  CHECK(cut({"vision.blocks.1", "decoder.layers.1"}).empty());
  check_problem(cut({"vision.blocks.1", "decoder.layers.9"}), Code::kC4Combination,
                "there is no unit \"decoder.layers.9\"");
  check_problem(cut({"decoder.layers.1", "vision.blocks.1"}), Code::kC4Combination,
                "\"vision.blocks.1\" does not stand behind \"decoder.layers.1\"");
  check_problem(cut({"vision.patch_embed", "decoder.layers.1"}), Code::kC4Combination,
                "\"vision.patch_embed\" does not stand behind");
  check_problem(cut({"decoder.layers.1"}), Code::kC4Combination,
                "stages names 1 units, but pipeline 3 x virtual 1 = 3 chunks need 2");
  check_problem(problems_of(with(pipeline_of(2), {{"stage_bytes", int64_t{1000}}}), 2, chain),
                Code::kC4Combination, "no split of the 12 units into 2 chunks fits");

  const auto given = [&](const Values& options, int64_t world) {
    return problems_of(options, world, chain);
  };
  check_problem(given({{"tensor", kTwo}, {"context", kTwo}, {"pipeline", kThree}}, 8),
                Code::kC4Combination,
                "tensor 2 x context 2 x pipeline 3 = 12 does not divide the 8 ranks of the run");
  check_problem(given({{"context", kThree}}, 4), Code::kC4Combination,
                "tensor 1 x context 3 x pipeline 1 = 3 does not divide the 4 ranks of the run");
  check_problem(
      given({{"expert_tensor", kFour}}, 6), Code::kC4Combination,
      "option \"expert_tensor\": expert 1 x expert_tensor 4 = 4 does not divide the 6 ranks of "
      "a stage");
  CHECK(given({{"expert_tensor", kFour}}, 8).empty());
  CHECK(given({{"tensor", kFour}}, 4).empty());  // key/value heads and a tower that are whole
  const auto has = [](const Problems& problems, const std::string& part) {
    return std::any_of(problems.begin(), problems.end(), [&](const Problem& problem) {
      return problem.code == Code::kC4Combination && problem.what.find(part) != std::string::npos;
    });
  };
  const Problems width = given({{"expert_tensor", int64_t{5}}}, 5);
  CHECK(width.size() == 2);
  CHECK(has(width,
            "expert_tensor 5 does not divide the width 12 of decoder.layers.0.mlp.experts."
            "gate_up_proj"));
  CHECK(has(width,
            "expert_tensor 5 does not divide the width 12 of decoder.layers.0.mlp.experts."
            "down_proj"));
  const Problems heads = given({{"tensor", kThree}}, 3);
  INFO(problems_text(heads));
  CHECK(has(heads, "tensor 3 does not divide the 4 heads of decoder.layers.0.self_attn.q_proj"));
  CHECK(has(heads, "tensor 3 does not divide the 4 heads of decoder.layers.0.self_attn.o_proj"));
  CHECK(has(heads, "tensor 3 neither divides the 2 heads of decoder.layers.0.self_attn.k_proj"));
  CHECK(has(heads, "tensor 3 neither divides the 2 heads of decoder.layers.0.self_attn.v_proj"));
  CHECK(has(heads, "tensor 3 does not divide the width 28 of decoder.layers.1.mlp.gate_proj"));
  CHECK(has(heads, "tensor 3 does not divide the width 28 of decoder.layers.1.mlp.down_proj"));
  for (const Problem& problem : heads)  // once for all layers
    CHECK(problem.what.find("layers.2") == std::string::npos);
  check_problem(given({{"tensor", kTwo}, {"sequence_parallel", false}}, 2), Code::kC4Combination,
                "sequence_parallel is false, but the model has routed experts and tensor is 2");
  check_problem(given({{"sequence_parallel", true}}, 2), Code::kC4Combination,
                "sequence_parallel is true, but tensor is 1");
  check_problem(given({{"context_method", std::string("ring")}}, 2), Code::kC4Combination,
                "context_method is \"ring\", but context is 1");
  check_problem(given({{"context", kTwo}, {"tensor", kTwo}, {"fixed_tokens", int64_t{100}}}, 4),
                Code::kC4Combination,
                "fixed_tokens 100 is no multiple of 2 x context 2 x tensor 2 = 8");
  CHECK(problems_of({{"tensor", kTwo}, {"sequence_parallel", false}}, 2, dense).empty());
  check_problem(problems_of({{"expert_tensor", kTwo}}, 2, dense), Code::kC4Combination,
                "expert_tensor is 2, but the model has no routed experts");

  // A mesh can be built all the same, so that the mistake is reported once.
  Problems problems;
  Mesh::build(make_plugin<Strategy>("three_d", pipeline_of(3))->degrees(4), 4, 0, 4, problems);
  CHECK(problems.empty());
}

TEST_CASE(
    "three_d: optimizer states are shared out over the ranks that hold a piece, as estimated") {
  constexpr int64_t kWorld = 8;
  for (const Values& options :
       {Values{{"pipeline", kTwo}}, Values{{"tensor", kTwo}}, Values{{"tensor", kFour}},
        Values{{"tensor", kTwo}, {"context", kTwo}},
        Values{{"tensor", kTwo}, {"expert", kFour}, {"expert_tensor", kTwo}}}) {
    const Chain chain = testing::chain_of(testing::small_blocks({{"vocab_size", int64_t{4001}}}));
    std::array<double, kWorld> measured{}, estimated{}, expected{};
    ThreadWorld({.world = kWorld}).run([&](int64_t rank, ThreadComm& comm) {
      const PlacedRank placed("three_d", options, facts_of(rank, kWorld), chain, comm);
      const auto index = static_cast<size_t>(rank);
      measured[index] = static_cast<double>(bytes_of_states(placed.strategy->shards(kTwo)));
      estimated[index] =
          placed.strategy->estimate(facts_of(rank, kWorld), chain, {}, kTwo).optimizer;
      const std::vector<int64_t> stages =
          placed.strategy->unit_stages(facts_of(rank, kWorld), chain);
      const auto in_stage = static_cast<double>(kWorld / placed.mesh.degree(Axis::kPipeline));
      for (int unit = 0; unit < chain.size(); ++unit) {
        if (stages[static_cast<size_t>(unit)] != placed.mesh.coordinate(Axis::kPipeline)) continue;
        const UnitSpec& spec = chain.units()[unit].unit->spec();
        for (int param = 0; param < static_cast<int>(spec.params.size()); ++param) {
          const sharding::ParamCut cut = sharding::cut_of(spec, param, placed.mesh);
          const double holders = in_stage / static_cast<double>(cut.pieces.count());
          const auto elements = static_cast<double>(cut.pieces.at(cut.place).numel());
          expected[index] += kTwo * sizeof(float) * elements / holders;
        }
      }
    });
    for (size_t rank = 0; rank < kWorld; ++rank) {
      CAPTURE(rank);
      // A shard that only fills up a small buffer belongs to no parameter.
      CHECK(measured[rank] <= estimated[rank]);
      CHECK(measured[rank] > 0.99 * estimated[rank]);
      // Parameters are filled up to 64 bytes, shards to equal sizes.
      CHECK(estimated[rank] >= expected[rank]);
      CHECK(estimated[rank] < 1.1 * expected[rank]);
    }
  }
}

TEST_CASE("three_d: a sharded optimizer takes 1/d of the bytes of a whole one on d ranks") {
  struct Layout {
    Values degrees;
    size_t holders;  // of a dense parameter
  };
  constexpr int64_t kWorld = 4;
  const Chain chain = testing::chain_of(testing::small_blocks());
  for (const Layout& layout : {Layout{{}, 4}, Layout{{{"context", kTwo}}, 4},
                               Layout{{{"context", kFour}}, 4}, Layout{{{"pipeline", kTwo}}, 2}}) {
    std::array<std::array<double, kWorld>, 2> bytes{};  // whole and sharded, by rank
    for (const bool sharded : {false, true}) {
      const Values options = with(layout.degrees, {{"shard_optimizer", sharded}});
      ThreadWorld({.world = kWorld}).run([&](int64_t rank, ThreadComm& comm) {
        const PlacedRank placed("three_d", options, facts_of(rank, kWorld), chain, comm);
        const auto measured = static_cast<double>(bytes_of_states(placed.strategy->shards(kTwo)));
        CHECK(measured ==
              placed.strategy->estimate(facts_of(rank, kWorld), chain, {}, kTwo).optimizer);
        bytes[sharded ? 1 : 0][static_cast<size_t>(rank)] = measured;
      });
    }
    for (size_t rank = 0; rank < kWorld; ++rank) {
      CAPTURE(rank);
      const double share = bytes[1][rank] / bytes[0][rank];
      CAPTURE(share);
      // Shards are filled up to equal sizes of 64 bytes.
      CHECK(share >= 1.0 / static_cast<double>(layout.holders));
      CHECK(share < 1.1 / static_cast<double>(layout.holders));
    }
  }
}

TEST_CASE(
    "three_d: initial values are those of one process; masters and states survive a round trip") {
  const Chain chain = testing::chain_of(testing::small_blocks({{"tie_word_embeddings", true}}));
  const auto single = make_plugin<Strategy>("single");
  const auto self = make_plugin<Comm>("self");
  single->place(facts_of(0, 1), chain, Mesh(), *self);
  constexpr int64_t kWorld = 8;
  for (const Values& degrees :
       {Values{{"tensor", kTwo}}, Values{{"tensor", kFour}}, Values{{"context", kTwo}},
        Values{{"tensor", kTwo}, {"context", kTwo}, {"expert", kTwo}, {"expert_tensor", kFour}},
        Values{{"tensor", kTwo}, {"pipeline", kTwo}, {"expert", kTwo}, {"expert_tensor", kTwo}},
        Values{{"tensor", kFour}, {"pipeline", kTwo}, {"virtual", kTwo}},
        Values{{"tensor", kTwo}, {"expert", kFour}, {"shard_optimizer", false}}}) {
    ThreadWorld({.world = kWorld}).run([&](int64_t rank, ThreadComm& comm) {
      const PlacedRank placed("three_d", degrees, facts_of(rank, kWorld), chain, comm);
      check_round_trip(*placed.strategy, *single, chain);
    });
  }
}
