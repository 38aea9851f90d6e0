// Pipeline, experts and data ranks of strategy/three_d on a small vision-language model against one
// process, with ranks as threads; and the table of the results.
//
//   KEYSEAT_WRITE_TABLE=1 build/release/bin/keyseat_equivalence_tests -tc='*three_d: layouts*'
//
// writes tests/equivalence/three_d.md anew.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tests/equivalence/table.h"
#include "tests/ranks/layout_run.h"

namespace keyseat::test::three_d {
namespace {

using testing::Values;
using testing::with;

struct Layout {
  const char* name;
  int64_t world;
  Values options;
};

struct Tokens {
  const char* name;
  const char* plugin;
  int64_t nodes;
};

const Tokens kLocal{"local", "local", 1};
const std::vector<Tokens> kDispatchers{{"allgather", "allgather", 1},
                                       {"alltoall", "alltoall", 1},
                                       {"hybrid_ep, 1 node", "hybrid_ep", 1},
                                       {"hybrid_ep, 2 nodes", "hybrid_ep", 2}};

struct Cell {
  Layout layout;
  Tokens tokens = kLocal;
  std::vector<std::string> freeze = {};
  const char* model = "untied";
  int64_t micro_batches = 2;

  int64_t stages() const {
    const auto found = layout.options.find("pipeline");
    return found == layout.options.end() ? 1 : std::get<int64_t>(found->second);
  }
  LayoutModel layout_model() const {
    if (std::string(model) == "tied") return {.decoder = {{"tie_word_embeddings", true}}};
    if (std::string(model) == "dense text")
      return {.decoder = {{"num_experts", int64_t{0}}}, .text_only = true};
    return {};
  }
  LayoutChoice choice() const {
    LayoutChoice choice;
    choice.world = layout.world;
    // The ranks of one stage are one node, or several.
    choice.ranks_per_node = layout.world / stages() / tokens.nodes;
    choice.strategy = "three_d";
    choice.strategy_options = with({{"min_bytes", int64_t{0}}}, layout.options);
    choice.dispatcher = tokens.plugin;
    choice.freeze = freeze;
    return choice;
  }
  StepShape shape() const {
    const StepShape mixed = mixed_step();
    StepShape shape;
    for (int64_t i = 0; i < micro_batches; ++i)
      shape.push_back(mixed[static_cast<size_t>(i) % mixed.size()]);
    return shape;
  }
  std::string oracle_key() const {
    return fmt::format("{} {} {}", fmt::join(freeze, ","), model, micro_batches);
  }
  std::string name() const {
    return fmt::format("{} | {} | {} | {} | {}", layout.name, tokens.name, model,
                       freeze.empty() ? "none" : fmt::format("{}", fmt::join(freeze, ", ")),
                       micro_batches);
  }
};

Values pipeline(int64_t stages, int64_t chunks = 1, int64_t expert = 1) {
  return {{"pipeline", stages}, {"virtual", chunks}, {"expert", expert}};
}

Values slices(int64_t stages, int64_t expert) {
  return with(pipeline(stages, 1, expert), {{"expert_tensor", int64_t{2}}});
}

Values cut_at(std::vector<std::string> units, int64_t stages) {
  return {{"pipeline", stages}, {"stages", std::move(units)}};
}

// Cuts inside the tower, between the deepstack mergers and the layers that read them.
const Layout kCutInside{"pipeline 4, cut inside", 4,
                        cut_at({"vision.blocks.1", "decoder.layers.0", "decoder.layers.1"}, 4)};
const Layout kPipelineData{"pipeline 2 x data 2", 4, pipeline(2)};
const Layout kInterleaved{"pipeline 2 x virtual 2", 2, pipeline(2, 2)};
const Layout kInterleaved3{"pipeline 3 x virtual 2", 3, pipeline(3, 2)};
const Layout kPipeline2{"pipeline 2", 2, pipeline(2)};
const Layout kPipeline3{"pipeline 3", 3, pipeline(3)};
const Layout kEveryUnit{"pipeline 3 x virtual 4", 3, pipeline(3, 4)};

std::vector<Cell> cells() {
  std::vector<Cell> all;
  const std::vector<std::vector<std::string>> freezes{{}, {"vision"}, {"vision", "projector"}};
  for (const Layout& layout :
       {Layout{"data 2", 2, {}}, Layout{"data 3", 3, {}}, kPipeline2, kPipeline3, kCutInside,
        kInterleaved, kInterleaved3, kEveryUnit, kPipelineData}) {
    for (const auto& freeze : freezes) all.push_back({layout, kLocal, freeze});
  }
  for (const Layout& layout :
       {Layout{"expert 2", 2, pipeline(1, 1, 2)}, Layout{"data 4, expert 2", 4, pipeline(1, 1, 2)},
        Layout{"expert 4", 4, pipeline(1, 1, 4)},
        Layout{"pipeline 2 x expert 2", 4, pipeline(2, 1, 2)},
        Layout{"pipeline 2 x virtual 2 x expert 2", 4, pipeline(2, 2, 2)},
        Layout{"pipeline 2 x data 4, expert 2", 8, pipeline(2, 1, 2)}}) {
    for (const Tokens& tokens : kDispatchers) {
      for (const auto& freeze : {freezes[0], freezes[1]}) all.push_back({layout, tokens, freeze});
    }
  }
  for (const Layout& layout :
       {Layout{"expert_tensor 2", 2, slices(1, 1)},
        Layout{"data 4, expert_tensor 2", 4, slices(1, 1)},
        Layout{"expert 2 x expert_tensor 2", 4, slices(1, 2)},
        Layout{"pipeline 2 x expert_tensor 2", 4, slices(2, 1)},
        Layout{"pipeline 2 x expert 2 x expert_tensor 2", 8, slices(2, 2)}}) {
    for (const Tokens& tokens : kDispatchers) {
      const Cell cell{layout, tokens};
      // The slices of an expert are on one node.
      if (cell.choice().ranks_per_node % 2 == 0) all.push_back(cell);
    }
  }
  for (const Layout& layout :
       {Layout{"data 2", 2, {}}, kPipeline2, kInterleaved, kCutInside, kPipelineData}) {
    all.push_back({layout, kLocal, {}, "tied"});
    all.push_back({layout, kLocal, {"vision"}, "tied"});
  }
  for (const Layout& layout : {kPipeline2, kPipeline3, kInterleaved, kInterleaved3}) {
    for (int64_t micro_batches : {1, 3, 5})
      all.push_back({layout, kLocal, {}, "untied", micro_batches});
  }
  for (const Layout& layout : {kPipeline2, kPipelineData})
    all.push_back({layout, kLocal, {}, "dense text"});
  return all;
}

const char* const kHeading =
    "<!-- Generated by `KEYSEAT_WRITE_TABLE=1 build/release/bin/keyseat_equivalence_tests "
    "-tc='*three_d: layouts*'`; edits are lost. -->\n"
    "# strategy/three_d against one process\n\n"
    "Three optimizer steps of a small vision-language model (12 units; micro-batches with two "
    "images, without, an empty row, a row of one token) on ranks that are threads, against "
    "strategy/single with dispatcher/local. Greatest relative difference of a loss, of a raw "
    "gradient by parameter and by expert (L2), of the clip norm, and of the change of a parameter "
    "after three steps (L2); limits 1e-05, 1e-05, 1e-05 and 1e-03.\n\n"
    "| three_d | dispatcher | model | frozen | micro-batches | result | loss | gradient | norm | "
    "change |\n"
    "|---|---|---|---|---|---|---|---|---|---|\n";

}  // namespace

TEST_CASE("three_d: layouts of pipeline, experts and data train as one process") {
  std::map<std::string, LayoutResult> oracles;
  std::string table = kHeading;
  for (const Cell& cell : cells()) {
    INFO(cell.name());
    LayoutChoice oracle;
    oracle.freeze = cell.freeze;
    const auto [known, fresh] = oracles.try_emplace(cell.oracle_key());
    if (fresh) known->second = run_layout(oracle, cell.layout_model(), cell.shape());
    const LayoutDifference difference = compare_layouts(
        run_layout(cell.choice(), cell.layout_model(), cell.shape()), known->second);
    CHECK_MESSAGE(difference.within_limits(), difference.text());
    table += fmt::format("| {} | OK | {:.0e} | {:.0e} | {:.0e} | {:.0e} |\n", cell.name(),
                         difference.loss, difference.gradient, difference.norm, difference.change);
  }
  check_table("tests/equivalence/three_d.md", table, /*columns=*/6);
}

TEST_CASE("three_d: units and regions that run again in backward, several micro-batches open") {
  const LayoutResult oracle = run_layout({}, {}, mixed_step());
  for (const Cell& cell :
       {Cell{kInterleaved}, Cell{kCutInside},
        Cell{{"pipeline 2 x expert 2", 4, pipeline(2, 1, 2)}, kDispatchers.back()}}) {
    for (const char* recompute : {"full", "selective"}) {
      LayoutChoice choice = cell.choice();
      choice.recompute = recompute;
      const LayoutDifference difference =
          compare_layouts(run_layout(choice, {}, mixed_step()), oracle);
      CHECK_MESSAGE(difference.within_limits(), cell.name(), ", recompute ", recompute, ": ",
                    difference.text());
    }
  }
}

TEST_CASE("three_d: a pipeline in bf16 stays near fp32") {
  const LayoutResult expected = run_layout({}, {}, mixed_step());
  for (const Layout& layout : {kPipelineData, kInterleaved}) {
    LayoutChoice choice = Cell{layout}.choice();
    choice.compute_dtype = at::kBFloat16;
    const LayoutResult found = run_layout(choice, {}, mixed_step());
    for (size_t step = 0; step < expected.losses.size(); ++step) {
      for (const auto& [name, loss] : expected.losses[step])
        CHECK(found.losses[step].at(name) == doctest::Approx(loss).epsilon(0.02));
    }
  }
}

TEST_CASE("three_d: experts without tokens, and a step without any image, under a pipeline") {
  // With equal logits the lowest experts are chosen: the others, and the ranks that hold them, get
  // no row.
  LayoutModel one_expert;
  one_expert.decoder = {{"num_experts_per_tok", int64_t{1}}};
  one_expert.prepare = [](const Chain& chain, Strategy& strategy) {
    for (int unit = 0; unit < chain.size(); ++unit) {
      const auto& params = chain.units()[unit].unit->spec().params;
      for (int param = 0; param < static_cast<int>(params.size()); ++param) {
        if (params[param].role != ParamRole::kRouter) continue;
        strategy.write_master(unit, param, strategy.read_master(unit, param).mul(0));
      }
    }
  };
  const StepShape no_image{{{{5, false}}, {{6, false}}}, {{{7, false}}, {}}};
  for (const Tokens& tokens : kDispatchers) {
    const Cell cell{{"pipeline 2 x expert 2", 4, pipeline(2, 1, 2)}, tokens};
    INFO(tokens.name);
    const LayoutDifference starved =
        compare_layouts(run_layout(cell.choice(), one_expert, mixed_step(), 1),
                        run_layout({}, one_expert, mixed_step(), 1));
    INFO(starved.text());
    CHECK(starved.loss <= 1e-5);
    CHECK(starved.gradient <= 1e-5);
    CHECK(starved.norm <= 1e-5);
    const LayoutDifference blind =
        compare_layouts(run_layout(cell.choice(), {}, no_image), run_layout({}, {}, no_image));
    CHECK_MESSAGE(blind.within_limits(), blind.text());
  }
}

}  // namespace keyseat::test::three_d
