#include "keyseat/context.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include "keyseat/interfaces/comm.h"
#include "keyseat/interfaces/recompute.h"
#include "keyseat/params.h"
#include "keyseat/random.h"
#include "keyseat/status.h"

namespace keyseat {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;

// Every axis that splits the tokens of one micro-batch index over ranks.
std::vector<Axis> token_axes(const Mesh& mesh) {
  std::vector<Axis> axes = mesh.split_axes(Layout::kRows);
  axes.insert(axes.end(), {Axis::kShard, Axis::kReplicate});
  return axes;
}

// The gradient edges of these tensors, as far as they need grad.
std::vector<Edge> edges_of(const std::vector<at::Tensor>& tensors) {
  std::vector<Edge> edges;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.requires_grad()) {
      edges.push_back(torch::autograd::impl::gradient_edge(tensor));
    }
  }
  return edges;
}

}  // namespace

std::vector<at::Tensor> StepContext::region(Region region, const RegionFunction& fn,
                                            std::vector<at::Tensor> inputs) {
  if (!at::GradMode::is_enabled()) return fn(inputs);
  std::vector<at::Tensor> outputs =
      state_.recompute != nullptr ? state_.recompute->run(region, fn, inputs, *this) : fn(inputs);
  check_captures(region, inputs, outputs);
  return outputs;
}

void StepContext::check_captures(Region region, const std::vector<at::Tensor>& inputs,
                                 const std::vector<at::Tensor>& outputs) const {
  // The walk goes from the outputs towards the leaves and stops at the edges of the inputs. A
  // region is a few dozen nodes, so this costs microseconds and is always on.
  const std::vector<Edge> stops = edges_of(inputs);
  std::vector<Edge> leaves;
  if (state_.params != nullptr) {
    for (size_t i = 0; i < state_.params->size(); ++i) {
      const at::Tensor& value = state_.params->at(i).value();
      if (value.requires_grad()) leaves.push_back(torch::autograd::impl::gradient_edge(value));
    }
  }
  std::vector<Edge> pending = edges_of(outputs);
  std::unordered_set<Node*> seen;
  while (!pending.empty()) {
    const Edge edge = std::move(pending.back());
    pending.pop_back();
    if (!edge.is_valid() || std::find(stops.begin(), stops.end(), edge) != stops.end()) continue;
    if (!seen.insert(edge.function.get()).second) continue;
    const bool is_leaf = edge.function->num_outputs() == 0;
    if (is_leaf && std::find(leaves.begin(), leaves.end(), edge) == leaves.end()) {
      throw Error(
          {Code::kR4Contract,
           {},
           fmt::format("region {} of unit {} ({}) uses a tensor that needs grad and is neither one "
                       "of its inputs nor a parameter of the unit",
                       region_name(region), state_.unit, state_.plugin),
           "a region can be run again in backward, where captured tensors no longer exist",
           "pass the tensor through the inputs of ctx.region()"});
    }
    for (const Edge& next : edge.function->next_edges()) pending.push_back(next);
  }
}

const std::any& StepContext::keep_any(const std::string& key,
                                      const std::function<std::any()>& make) {
  const auto refuse = [&](const char* what, const char* why) {
    throw Error(
        {Code::kR4Contract,
         {},
         fmt::format("unit {} ({}): ctx.keep(\"{}\") {}", state_.unit, state_.plugin, key, what),
         why,
         "give every kept value of a unit its own key, on every run of it"});
  };
  std::vector<Kept>& kept = *state_.kept;
  for (const Kept& entry : kept) {
    if (entry.key != key) continue;
    if (!state_.replay) refuse("is used twice in one call", "keys name one value each");
    return entry.value;
  }
  if (state_.replay) {
    refuse("is not there on replay", "the first run of the unit took another path");
  }
  std::any value = make();
  kept.push_back({key, std::move(value)});
  return kept.back().value;
}

bool StepContext::tapped(const std::string& name) const {
  return state_.taps != nullptr && !state_.replay && state_.taps->wants(state_.unit + "." + name);
}

void StepContext::tap(const std::string& name, const at::Tensor& tensor) {
  if (tapped(name)) state_.taps->receive(state_.unit + "." + name, tensor.detach());
}

void StepContext::sum_over_token_ranks(at::Tensor& tensor) {
  if (state_.mesh == nullptr || state_.comm == nullptr) return;  // a unit called on its own
  const std::vector<int64_t> ranks = state_.mesh->group(token_axes(*state_.mesh));
  state_.comm->group(ranks).all_reduce(tensor, ReduceOp::kSum)->wait();
}

uint64_t StepContext::random_seed(Region region) const {
  std::string text = fmt::format("{}/{}/{}", state_.step, state_.unit, region_name(region));
  for (int64_t id : state_.row->sample_ids) text += fmt::format("/{}", id);
  return derive_seed(state_.seed, text);
}

}  // namespace keyseat
