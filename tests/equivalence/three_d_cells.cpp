#include "tests/equivalence/three_d_cells.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace keyseat::test::three_d {

using testing::Values;
using testing::with;

namespace {

Values cut_at(std::vector<std::string> units, int64_t stages) {
  return {{"pipeline", stages}, {"stages", std::move(units)}};
}

const std::vector<std::vector<std::string>> kFreezes{{}, {"vision"}, {"vision", "projector"}};

// The slices of an expert are on one node.
bool possible(const Cell& cell) {
  return cell.choice().ranks_per_node % cell.layout.degree("expert_tensor") == 0;
}

void add_dispatched(std::vector<Cell>& all, const std::vector<Layout>& layouts) {
  for (const Layout& layout : layouts) {
    for (const DispatcherRow& tokens : kDispatchers) {
      for (const auto& freeze : {kFreezes[0], kFreezes[1]}) {
        const Cell cell{layout, tokens, freeze};
        if (possible(cell)) all.push_back(cell);
      }
    }
  }
}

}  // namespace

const Layout kCutInside{"pipeline 4, cut inside", 4,
                        cut_at({"vision.blocks.1", "decoder.layers.0", "decoder.layers.1"}, 4)};
const Layout kPipelineData{"pipeline 2 x data 2", 4, pipeline(2)};
const Layout kInterleaved{"pipeline 2 x virtual 2", 2, pipeline(2, 2)};

int64_t Layout::degree(const char* option) const {
  const auto found = options.find(option);
  return found == options.end() ? 1 : std::get<int64_t>(found->second);
}

LayoutModel Cell::layout_model() const {
  const Values dense = {{"num_experts", int64_t{0}}};
  if (model == "tied") return {.decoder = {{"tie_word_embeddings", true}}};
  if (model == "dense") return {.decoder = dense};
  if (model == "dense text") return {.decoder = dense, .text_only = true};
  return {};
}

LayoutChoice Cell::choice() const {
  LayoutChoice choice;
  choice.world = layout.world;
  // The ranks of one stage are one node, or several.
  choice.ranks_per_node = layout.world / layout.degree("pipeline") / tokens.nodes;
  choice.strategy = "three_d";
  choice.strategy_options = with({{"min_bytes", int64_t{0}}}, layout.options);
  choice.dispatcher = tokens.plugin;
  choice.freeze = freeze;
  return choice;
}

StepShape Cell::shape() const {
  const StepShape mixed = mixed_step();
  StepShape shape;
  for (int64_t i = 0; i < micro_batches; ++i)
    shape.push_back(mixed[static_cast<size_t>(i) % mixed.size()]);
  return shape;
}

std::string Cell::oracle_key() const {
  return fmt::format("{} {} {}", fmt::join(freeze, ","), model, micro_batches);
}

std::string Cell::name() const {
  return fmt::format("{} | {} | {} | {} | {}", layout.name, tokens.name, model,
                     freeze.empty() ? "none" : fmt::format("{}", fmt::join(freeze, ", ")),
                     micro_batches);
}

Values pipeline(int64_t stages, int64_t chunks, int64_t expert) {
  return {{"pipeline", stages}, {"virtual", chunks}, {"expert", expert}};
}

std::vector<Cell> pipeline_cells() {
  const Layout data2{"data 2", 2, {}}, pipeline2{"pipeline 2", 2, pipeline(2)},
      pipeline3{"pipeline 3", 3, pipeline(3)},
      interleaved3{"pipeline 3 x virtual 2", 3, pipeline(3, 2)},
      every_unit{"pipeline 3 x virtual 4", 3, pipeline(3, 4)};
  std::vector<Cell> all;
  for (const Layout& layout : {data2, Layout{"data 3", 3, {}}, pipeline2, pipeline3, kCutInside,
                               kInterleaved, interleaved3, every_unit, kPipelineData}) {
    for (const auto& freeze : kFreezes) all.push_back({layout, kLocal, freeze});
  }
  add_dispatched(all, {{"expert 2", 2, pipeline(1, 1, 2)},
                       {"data 4, expert 2", 4, pipeline(1, 1, 2)},
                       {"expert 4", 4, pipeline(1, 1, 4)},
                       {"pipeline 2 x expert 2", 4, pipeline(2, 1, 2)},
                       {"pipeline 2 x virtual 2 x expert 2", 4, pipeline(2, 2, 2)},
                       {"pipeline 2 x data 4, expert 2", 8, pipeline(2, 1, 2)}});
  for (const Layout& layout : {data2, pipeline2, kInterleaved, kCutInside, kPipelineData}) {
    all.push_back({layout, kLocal, {}, "tied"});
    all.push_back({layout, kLocal, {"vision"}, "tied"});
  }
  for (const Layout& layout : {pipeline2, pipeline3, kInterleaved, interleaved3}) {
    for (int64_t micro_batches : {1, 3, 5})
      all.push_back({layout, kLocal, {}, "untied", micro_batches});
  }
  for (const Layout& layout : {pipeline2, kPipelineData})
    all.push_back({layout, kLocal, {}, "dense text"});
  return all;
}

std::vector<Cell> tensor_cells() {
  const int64_t two = 2, four = 4;
  const Values tensor2 = {{"tensor", two}}, tensor4 = {{"tensor", four}};
  const Values context2 = {{"context", two}};
  const Values ring = {{"context_method", std::string("ring")}};
  const Values apart = {{"sequence_parallel", false}}, whole_states = {{"shard_optimizer", false}};
  const Values slices = {{"expert_tensor", two}}, experts = {{"expert", two}};
  const auto both = [](const Values& a, const Values& b) { return with(a, b); };

  const Layout tensor_apart{"tensor 2 without sequence parallel", 2, both(tensor2, apart)};
  const Layout tensor{"tensor 2", 2, tensor2};
  // More ranks than key/value heads or heads of the tower, and an uneven vocabulary.
  const Layout wide{"tensor 4", 4, tensor4};
  const Layout gathered{"context 2, gather", 2, context2};
  const Layout rings{"context 2, ring", 2, both(context2, ring)};
  const Layout ring4{"context 4, ring", 4, both({{"context", four}}, ring)};
  const Layout square{"context 2 x tensor 2", 4, both(context2, tensor2)};
  const Layout data{"data 2 x tensor 2", 4, tensor2};
  const Layout piped{"pipeline 2 x tensor 2", 4, both(pipeline(2), tensor2)};
  std::vector<Cell> all;
  for (const Layout& layout : {tensor_apart, tensor}) {
    for (const char* model : {"dense", "dense text"})
      for (const auto& freeze : {kFreezes[0], kFreezes[1]}) {
        const bool has_tower = std::string(model) == "dense";
        if (has_tower || freeze.empty()) all.push_back({layout, kLocal, freeze, model});
      }
  }
  for (const Layout& layout :
       {tensor, wide, gathered, rings, ring4, square, data, piped,
        Layout{"context 4, gather", 4, {{"context", four}}},
        Layout{"context 2 x tensor 2, ring", 4, both(both(context2, tensor2), ring)},
        Layout{"data 2 x tensor 2, whole optimizer", 4, both(tensor2, whole_states)},
        Layout{"pipeline 2 x context 2, ring", 4, both(both(pipeline(2), context2), ring)},
        Layout{"pipeline 2 x virtual 2 x tensor 2", 4, both(pipeline(2, 2), tensor2)},
        Layout{"tensor 2, one after the other", 2, both(tensor2, {{"overlap", false}})},
        Layout{"tensor 2, rows of 64", 2, both(tensor2, {{"fixed_tokens", int64_t{64}}})}}) {
    for (const auto& freeze : kFreezes) all.push_back({layout, kLocal, freeze});
  }
  for (const Layout& layout : {tensor, gathered, square, data, piped})
    all.push_back({layout, kLocal, {}, "tied"});
  all.push_back({tensor_apart, kLocal, {}, "dense text", 3});
  for (const Layout& layout : {tensor, rings, piped}) {
    for (int64_t micro_batches : {1, 3})
      all.push_back({layout, kLocal, {}, "untied", micro_batches});
  }
  add_dispatched(
      all,
      {{"expert_tensor 2", 2, slices},
       {"expert 2 x expert_tensor 2", 4, both(experts, slices)},
       {"tensor 2 x expert 2", 2, both(tensor2, experts)},
       {"tensor 2 x expert_tensor 2", 2, both(tensor2, slices)},
       {"data 2 x tensor 2, expert 2 x expert_tensor 2", 4, both(tensor2, both(experts, slices))},
       {"context 2 x expert 2", 2, both(both(context2, ring), experts)},
       {"pipeline 2 x tensor 2 x expert 2", 4, both(both(pipeline(2), tensor2), experts)},
       {"pipeline 2 x context 2 x tensor 2, expert 4", 8,
        both(both(both(pipeline(2), context2), tensor2), {{"expert", four}})},
       {"pipeline 2 x data 2 x tensor 2, expert 2 x expert_tensor 2", 8,
        both(both(pipeline(2), tensor2), both(experts, slices))}});
  return all;
}

}  // namespace keyseat::test::three_d
