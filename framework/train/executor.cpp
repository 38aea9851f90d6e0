#include "keyseat/executor.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <torch/csrc/autograd/engine.h>

#include "keyseat/interfaces/recompute.h"
#include "train/store.h"
#include "train/unit_errors.h"

namespace keyseat {
namespace {

constexpr std::string_view kLossPrefix = "loss.";
constexpr std::string_view kRouterStatsPrefix = "router.stats.";

bool has_prefix(const std::string& name, std::string_view prefix) {
  return name.starts_with(prefix);
}

// Adds its lifetime to `seconds`, or takes it out.
class ScopedSeconds {
 public:
  explicit ScopedSeconds(double& seconds, double sign = 1) : seconds_(seconds), sign_(sign) {}
  ~ScopedSeconds() {
    seconds_ +=
        sign_ * std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  ScopedSeconds(const ScopedSeconds&) = delete;

 private:
  double& seconds_;
  double sign_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Gradients that autograd left at the leaves go into the sinks; without a sink they stay there.
void add_into_sinks(const Params& params) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < params.size(); ++i) {
    const at::Tensor& value = params.at(i).value();
    const at::Tensor& sink = params.at(i).sink();
    if (!value.requires_grad() || !sink.defined() || !value.grad().defined()) continue;
    sink.add_(value.grad());
    value.mutable_grad().reset();
  }
}

bool read_in(const std::vector<UnitRange>& ranges, const Version& version) {
  const auto reads = [&](int unit) {
    return std::any_of(ranges.begin(), ranges.end(), [&](const UnitRange& range) {
      return range.first <= unit && unit < range.last;
    });
  };
  return ranges.empty() || std::any_of(version.readers.begin(), version.readers.end(), reads);
}

// How many units send a gradient into a version decides the width of the sum.
bool many_readers(const Chain& chain, int version) {
  return chain.versions()[version].readers.size() > 2;
}

}  // namespace

Executor::Executor(const Chain& chain, ExecutorServices services)
    : chain_(chain), services_(services), replays_(chain.size(), false), seconds_(chain.size()) {
  for (int i = 0; i < chain.size() && services_.recompute != nullptr; ++i) {
    const ChainUnit& unit = chain.units()[i];
    replays_[i] = services_.recompute->replays_unit(unit.block, unit.unit->spec().name);
  }
}

Executor::~Executor() = default;

void Executor::begin_step(int64_t step, std::map<std::string, LossTerm> loss_terms) {
  step_ = step;
  loss_terms_ = std::move(loss_terms);
  loss_sums_.clear();
  router_stats_.clear();
  std::fill(seconds_.begin(), seconds_.end(), UnitSeconds{});
}

std::unique_ptr<Store> Executor::begin(Row row, int64_t micro_batch, bool training,
                                       const std::vector<UnitRange>& ranges) {
  auto state = std::make_unique<Store::State>();
  state->facts = std::move(row.facts);
  state->micro_batch = micro_batch;
  state->training = training;
  state->slots.resize(chain_.versions().size());
  state->runs.resize(chain_.size());
  for (size_t i = 0; i < chain_.versions().size(); ++i) {
    const Version& version = chain_.versions()[i];
    const bool is_loss = has_prefix(version.name, kLossPrefix);
    if (training && is_loss && !loss_terms_.contains(version.name.substr(kLossPrefix.size()))) {
      throw Error({Code::kR4Contract,
                   {},
                   fmt::format("{} writes \"{}\", for which the step has no weight and normaliser",
                               unit_label(chain_, version.writer), version.name),
                   "the gradient of a loss starts with weight / normaliser",
                   ""});
    }
    if (version.writer < 0 && version.derived < 0) {
      const at::Tensor tensor = row.tensors.get(version.name);
      if (!tensor.defined()) {
        throw Error({Code::kR4Contract,
                     {},
                     fmt::format("the row has no \"{}\", which {} reads", version.name,
                                 unit_label(chain_, version.readers.front())),
                     "a row carries every standard tensor, with zero rows where there is nothing",
                     "this is an error of the data plugin"});
      }
      if (read_in(ranges, version)) state->slots[i].set(tensor.to(services_.device));
    }
  }
  return std::unique_ptr<Store>(new Store(std::move(state)));
}

void Executor::forward(Store& store, int first, int last) {
  for (int i = first; i < last; ++i) forward_unit(*store.state_, i);
}

void Executor::backward(Store& store, int first, int last) {
  for (int i = last - 1; i >= first; --i) backward_unit(*store.state_, i);
}

void Executor::forward_unit(Store::State& state, int index) {
  const ChainUnit& unit = chain_.units()[index];
  const bool needs_backward = state.training && unit.runs_backward;
  const bool builds_graph = needs_backward && !replays_[index];
  const Params& params = services_.events->before_forward(index, needs_backward);
  {
    const ScopedSeconds timer(seconds_[index].forward), host(seconds_[index].host);
    const at::AutoGradMode grad_mode(builds_graph);
    UnitRun& run = state.runs[index];
    run.inputs = read_values(state, index);
    if (builds_graph) make_leaves(run.inputs, index);
    run.context = make_context(state, index, params);
    const std::vector<at::Tensor> outputs = call_unit(index, params, run.inputs, *run.context);
    for (const at::Tensor& output : outputs) {
      run.roots.push_back(output.requires_grad() ? torch::autograd::impl::gradient_edge(output)
                                                 : torch::autograd::Edge());
    }
    note_outputs(state, index, outputs);
    if (!needs_backward) run = {};
    drop_unread(state, index);
  }
  services_.events->after_forward(index);
}

std::vector<at::Tensor> Executor::read_values(Store::State& state, int index) {
  const ChainUnit& unit = chain_.units()[index];
  std::vector<at::Tensor> values;
  for (int version : unit.reads) {
    if (chain_.versions()[version].derived >= 0) make_derived(state, version);
    const at::Tensor& value = state.slots[version].value;
    if (!value.defined()) {
      throw Error({Code::kR4Contract,
                   {},
                   fmt::format("{} reads \"{}\", which is not in the store",
                               unit_label(chain_, index), chain_.versions()[version].name),
                   "its writer did not run before, or nobody put it in",
                   "this is an error of the strategy plugin"});
    }
    values.push_back(value);
  }
  return values;
}

void Executor::make_leaves(std::vector<at::Tensor>& values, int index) const {
  const ChainUnit& unit = chain_.units()[index];
  for (size_t i = 0; i < values.size(); ++i) {
    const bool needs_grad =
        chain_.versions()[unit.reads[i]].needs_grad && unit.unit->spec().reads[i].differentiable;
    values[i] = values[i].detach();
    if (needs_grad) values[i].set_requires_grad(true);
  }
}

void Executor::make_derived(Store::State& state, int version) {
  if (state.slots[version].value.defined()) return;
  const int derived = chain_.versions()[version].derived;
  const at::NoGradGuard no_grad;
  Tensors batch;
  for (int read : chain_.derived_reads(derived)) {
    batch.set(chain_.versions()[read].name, state.slots[read].value);
  }
  state.slots[version].set(chain_.derived()[derived].make(batch, state.facts));
}

std::unique_ptr<StepContext> Executor::make_context(Store::State& state, int index,
                                                    const Params& params) {
  StepContext::State facts;
  facts.unit = chain_.units()[index].name;
  facts.plugin = plugin_of(chain_, index);
  facts.row = &state.facts;
  facts.seed = services_.seed;
  facts.step = step_;
  facts.micro_batch = state.micro_batch;
  facts.training = state.training;
  facts.compute_dtype = services_.compute_dtype;
  facts.device = services_.device;
  facts.kernels = services_.kernels;
  facts.aux_pooled = services_.aux_pooled;
  facts.mesh = services_.mesh;
  facts.comm = services_.comm;
  facts.dispatcher = services_.dispatcher;
  facts.recompute = services_.recompute;
  facts.taps = services_.taps;
  facts.kept = &state.runs[index].kept;
  facts.params = &params;
  facts.dispatcher_seconds = &seconds_[index].dispatcher;
  return std::make_unique<StepContext>(std::move(facts));
}

std::vector<at::Tensor> Executor::call_unit(int index, const Params& params,
                                            const std::vector<at::Tensor>& inputs,
                                            StepContext& context) {
  const UnitSpec& spec = chain_.units()[index].unit->spec();
  Tensors named;
  for (size_t i = 0; i < inputs.size(); ++i) {
    named.set(spec.reads[i].name, inputs[i]);
  }
  std::vector<at::Tensor> outputs;
  try {
    const ScopedSeconds not_host(seconds_[index].host, -1);
    const Tensors written = chain_.units()[index].unit->forward(params, named, context);
    for (const TensorSpec& write : spec.writes) outputs.push_back(written.at(write.name));
  } catch (...) {
    rethrow_from_unit(chain_, index, context.replay() ? "replay" : "forward");
  }
  check_parameters_stay(chain_, index, params, outputs);
  return outputs;
}

void Executor::note_outputs(Store::State& state, int index,
                            const std::vector<at::Tensor>& outputs) {
  const at::NoGradGuard no_grad;
  const ChainUnit& unit = chain_.units()[index];
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string& name = chain_.versions()[unit.writes[i]].name;
    const at::Tensor value = outputs[i].requires_grad() ? outputs[i].detach() : outputs[i];
    state.slots[unit.writes[i]].set(value);
    state.runs[index].context->tap(name, value);
    if (has_prefix(name, kLossPrefix)) {
      loss_sums_[name.substr(kLossPrefix.size())].push_back(value);
    } else if (has_prefix(name, kRouterStatsPrefix)) {
      at::Tensor& sum = router_stats_[name.substr(kRouterStatsPrefix.size())];
      sum = sum.defined() ? sum.add(value) : value;
    }
  }
}

void Executor::drop_unread(Store::State& state, int index) {
  const ChainUnit& unit = chain_.units()[index];
  const auto drop = [&](int version) {
    const Version& facts = chain_.versions()[version];
    const bool wanted = facts.name == "logits" || has_prefix(facts.name, kLossPrefix);
    const bool read_later = !facts.readers.empty() && facts.readers.back() > index;
    if (!read_later && !wanted) state.slots[version].value.reset();
  };
  for (int version : unit.writes) drop(version);
  for (int version : unit.reads) {
    drop(version);
    const int derived = chain_.versions()[version].derived;
    if (derived < 0) continue;
    for (int batch : chain_.derived_reads(derived)) drop(batch);
  }
}

void Executor::backward_unit(Store::State& state, int index) {
  const ChainUnit& unit = chain_.units()[index];
  if (!unit.runs_backward) return;
  UnitRun& run = state.runs[index];
  if (run.context == nullptr) {
    throw Error({Code::kR4Contract,
                 {},
                 fmt::format("the backward of {} was asked for without its training forward",
                             unit_label(chain_, index)),
                 "",
                 "this is an error of the strategy plugin"});
  }
  const Params& params = services_.events->before_backward(index);
  {
    const ScopedSeconds timer(seconds_[index].backward), host(seconds_[index].host);
    if (replays_[index]) replay(run, index, params);
    torch::autograd::edge_list roots;
    torch::autograd::variable_list gradients;
    for (size_t i = 0; i < unit.writes.size(); ++i) {
      const int version = unit.writes[i];
      if (!chain_.versions()[version].needs_grad) continue;
      if (has_prefix(chain_.versions()[version].name, kLossPrefix)) {
        state.slots[version].add(loss_seed(version), false);
      }
      at::Tensor gradient = state.slots[version].take_gradient();
      if (!run.roots[i].is_valid()) continue;
      roots.push_back(std::move(run.roots[i]));
      gradients.push_back(std::move(gradient));
    }
    try {
      if (!roots.empty()) {
        const ScopedSeconds not_host(seconds_[index].host, -1);
        torch::autograd::Engine::get_default_engine().execute(
            roots, gradients, /*keep_graph=*/false, /*create_graph=*/false,
            /*accumulate_grad=*/true);
      }
    } catch (...) {
      rethrow_from_unit(chain_, index, "backward");
    }
    for (size_t i = 0; i < unit.reads.size(); ++i) {
      const at::Tensor& leaf = run.inputs[i];
      if (!leaf.requires_grad() || !leaf.grad().defined()) continue;
      if (services_.taps != nullptr)
        run.context->tap("grad." + unit.unit->spec().reads[i].name, leaf.grad());
      state.slots[unit.reads[i]].add(leaf.grad(), many_readers(chain_, unit.reads[i]));
    }
    add_into_sinks(params);
    run = {};
  }
  services_.events->after_backward(index);
}

void Executor::replay(UnitRun& run, int index, const Params& params) {
  const at::AutoGradMode grad_mode(true);
  const StepContext::ReplayScope scope(*run.context);
  make_leaves(run.inputs, index);
  run.roots.clear();
  for (const at::Tensor& output : call_unit(index, params, run.inputs, *run.context)) {
    run.roots.push_back(output.requires_grad() ? torch::autograd::impl::gradient_edge(output)
                                               : torch::autograd::Edge());
  }
}

at::Tensor Executor::loss_seed(int version) const {
  const std::string name = chain_.versions()[version].name.substr(kLossPrefix.size());
  const LossTerm& term = loss_terms_.at(name);
  // Nothing to divide by means that no rank has a row of this loss: its gradient is zero.
  const double seed = term.normaliser > 0 ? term.weight / term.normaliser : 0.0;
  return at::full({1}, seed, at::TensorOptions().dtype(at::kFloat).device(services_.device));
}

at::Tensor Executor::tensor(const Store& store, const std::string& name) const {
  for (size_t i = chain_.versions().size(); i-- > 0;) {
    if (chain_.versions()[i].name != name) continue;
    if (store.state_->slots[i].value.defined()) return store.state_->slots[i].value;
  }
  return {};
}

void Executor::put(Store& store, int version, at::Tensor tensor) {
  store.state_->slots.at(version).set(std::move(tensor));
}

at::Tensor Executor::take(Store& store, int version) {
  return std::exchange(store.state_->slots.at(version).value, {});
}

void Executor::add_gradient(Store& store, int version, const at::Tensor& gradient) {
  const at::NoGradGuard no_grad;
  store.state_->slots.at(version).add(gradient, many_readers(chain_, version));
}

at::Tensor Executor::take_gradient(Store& store, int version) {
  return store.state_->slots.at(version).take_gradient();
}

std::map<std::string, double> Executor::losses() const {
  std::map<std::string, double> sums;
  for (const auto& [name, parts] : loss_sums_) {
    double& sum = sums[name];
    for (const at::Tensor& part : parts) sum += part.item<double>();
  }
  return sums;
}

std::map<std::string, at::Tensor> Executor::router_stats() const {
  std::map<std::string, at::Tensor> sums;
  for (const auto& [name, sum] : router_stats_) sums[name] = sum.to(at::kCPU);
  return sums;
}

}  // namespace keyseat
