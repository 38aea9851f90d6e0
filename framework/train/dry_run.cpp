#include "train/dry_run.h"

#include <ATen/ops/empty.h>

namespace keyseat::train {
namespace {

Params meta_params(const ChainUnit& unit, at::ScalarType compute_dtype, bool tracked) {
  const std::vector<ParamSpec>& specs = unit.unit->spec().params;
  std::vector<ParamHandle> handles;
  for (size_t i = 0; i < specs.size(); ++i) {
    const auto meta = at::TensorOptions().device(at::kMeta);
    auto state = c10::make_intrusive<ParamState>();
    state->index = static_cast<int64_t>(i);
    state->value =
        at::empty(specs[i].shape, meta.dtype(specs[i].keep_fp32 ? at::kFloat : compute_dtype));
    if (tracked && unit.trainable) {
      state->value.set_requires_grad(true);
      state->sink = at::empty(specs[i].shape, meta.dtype(at::kFloat));
    }
    handles.emplace_back(std::move(state));
  }
  return {&specs, std::move(handles)};
}

std::map<std::string, LossTerm> dry_loss_terms(const Chain& chain) {
  std::map<std::string, LossTerm> terms;
  constexpr std::string_view kPrefix = "loss.";
  for (const Version& version : chain.versions()) {
    if (version.name.starts_with(kPrefix)) terms[version.name.substr(kPrefix.size())] = {};
  }
  return terms;
}

}  // namespace

MetaParameters::MetaParameters(const Chain& chain, at::ScalarType compute_dtype) {
  for (const ChainUnit& unit : chain.units()) {
    trained_.push_back(meta_params(unit, compute_dtype, true));
    untracked_.push_back(meta_params(unit, compute_dtype, false));
  }
}

std::vector<int64_t> dry_run(const Chain& chain, ExecutorServices services, Row row) {
  MetaParameters parameters(chain, services.compute_dtype);
  services.events = &parameters;
  services.device = at::kMeta;
  services.taps = nullptr;
  Executor executor(chain, services);
  executor.begin_step(0, dry_loss_terms(chain));
  const std::unique_ptr<Store> store = executor.begin(std::move(row), 0, /*training=*/true);
  std::vector<int64_t> live_bytes;
  for (int cut = 0; cut <= chain.size(); ++cut) {
    int64_t bytes = 0;
    for (const int version : chain.live_at(cut)) {
      const at::Tensor tensor = executor.take(*store, version);
      bytes += static_cast<int64_t>(tensor.nbytes());
      executor.put(*store, version, tensor);
    }
    live_bytes.push_back(bytes);
    if (cut < chain.size()) executor.forward(*store, cut, cut + 1);
  }
  executor.backward(*store, 0, chain.size());
  return live_bytes;
}

}  // namespace keyseat::train
