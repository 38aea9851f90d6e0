#include "region_replay.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include "keyseat/params.h"

namespace keyseat_recompute_selective {

using at::Tensor;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

namespace {

// The node behind the results of a region. Its edges lead to the inputs and to the parameters of
// the unit: the latter only so that the results need grad where nothing but a parameter does.
class Replay final : public torch::autograd::Node {
 public:
  Replay(keyseat::Region region, keyseat::RegionFunction fn, const variable_list& inputs,
         const variable_list& parameters, keyseat::StepContext& context)
      : region_(region), fn_(std::move(fn)), context_(context) {
    for (const Tensor& input : inputs) {
      inputs_.emplace_back(input, /*is_output=*/false);
      add_edge(input);
    }
    for (const Tensor& parameter : parameters) add_edge(parameter);
  }

  // Runs the region again, with its graph, then back through that. Gradients of parameters go into
  // their sinks or to their leaves, as in any backward.
  variable_list apply(variable_list&& gradients) override {
    variable_list leaves, outputs;
    {
      const at::AutoGradMode with_graph(true);
      const keyseat::StepContext::ReplayScope scope(context_);
      for (const SavedVariable& input : inputs_) {
        const Tensor value = input.unpack();
        leaves.push_back(value.detach());
        leaves.back().set_requires_grad(value.requires_grad());
      }
      outputs = fn_(leaves);
      context_.check_captures(region_, leaves, outputs);
    }
    torch::autograd::edge_list roots;
    variable_list seeds;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].requires_grad() || !gradients[i].defined()) continue;
      roots.push_back(torch::autograd::impl::gradient_edge(outputs[i]));
      seeds.push_back(std::move(gradients[i]));
    }
    outputs.clear();
    if (!roots.empty()) {
      torch::autograd::Engine::get_default_engine().execute(
          roots, seeds, /*keep_graph=*/false, /*create_graph=*/false, /*accumulate_grad=*/true);
    }
    variable_list found(num_outputs());
    for (size_t i = 0; i < leaves.size(); ++i) found[i] = leaves[i].grad();
    return found;
  }

  void release_variables() override {
    for (SavedVariable& input : inputs_) input.reset_data();
  }

  std::string name() const override { return "RegionReplay"; }

 private:
  void add_edge(const Tensor& tensor) {
    add_next_edge(tensor.requires_grad() ? torch::autograd::impl::gradient_edge(tensor)
                                         : torch::autograd::Edge());
  }

  keyseat::Region region_;
  keyseat::RegionFunction fn_;
  keyseat::StepContext& context_;  // lives until the backward of its unit is over
  std::vector<SavedVariable> inputs_;
};

}  // namespace

std::vector<Tensor> replayed_region(keyseat::Region region, const keyseat::RegionFunction& fn,
                                    std::vector<Tensor> inputs, keyseat::StepContext& context) {
  variable_list parameters;
  if (const keyseat::Params* params = context.state().params) {
    for (size_t i = 0; i < params->size(); ++i) {
      if (params->at(i).trainable()) parameters.push_back(params->at(i).value());
    }
  }
  const auto needs_grad = [](const Tensor& tensor) { return tensor.requires_grad(); };
  // Without a gradient nothing is kept anyway. A plan is made once and has nothing to run again.
  if (region == keyseat::Region::kMoePreprocess ||
      (parameters.empty() && std::none_of(inputs.begin(), inputs.end(), needs_grad))) {
    return fn(inputs);
  }
  // deleteNode takes deep graphs apart without recursion.
  const std::shared_ptr<Replay> node(new Replay(region, fn, inputs, parameters, context),
                                     torch::autograd::deleteNode);
  variable_list results;
  const at::NoGradGuard no_grad;
  for (const Tensor& output : fn(inputs)) {
    results.push_back(output.detach());
    if (at::isFloatingType(output.scalar_type())) {
      torch::autograd::set_history(results.back(), node);
    } else {
      node->add_input_metadata(torch::autograd::Node::undefined_input());
    }
  }
  return results;
}

}  // namespace keyseat_recompute_selective
