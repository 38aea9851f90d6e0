// Kind `optimizer`: anchor, and the checks before a step.
#include "keyseat/interfaces/optimizer.h"

#include <fmt/format.h>

#include "interfaces/contract.h"

namespace keyseat {

Optimizer::~Optimizer() = default;

namespace {

// The shards come from a strategy: what is wrong here is its mistake.
void check_shard(const OptimizerShard& shard, size_t states) {
  const auto broken = [&](const std::string& what) {
    contract_broken("the strategy's optimizer shard of " + shard.name, what);
  };
  if (shard.spec == nullptr) broken("it has no ParamSpec");
  const int64_t elements = shard.end - shard.begin;
  if (shard.begin < 0 || elements < 0 || shard.end > shard.spec->numel()) {
    broken(fmt::format("its range {} .. {} is outside the {} elements of the parameter",
                       shard.begin, shard.end, shard.spec->numel()));
  }
  if (shard.step < 1) broken(fmt::format("its step is {}, counted from 1", shard.step));
  const auto check = [&](const char* name, const at::Tensor& tensor, bool fp32) {
    if (!tensor.defined() || tensor.dim() != 1 || tensor.size(0) != elements ||
        !tensor.is_contiguous() || (fp32 && tensor.scalar_type() != at::kFloat)) {
      broken(fmt::format("its {} is {}, expected contiguous {}[{}]", name, tensor_text(tensor),
                         fp32 ? "Float " : "", elements));
    }
  };
  check("master", shard.master, true);
  check("gradient", shard.grad, true);
  if (shard.state.size() != states) {
    broken(
        fmt::format("it has {} state tensors, the optimizer names {}", shard.state.size(), states));
  }
  for (const at::Tensor& state : shard.state) check("state", state, true);
  if (shard.compute.defined()) check("compute copy", shard.compute, false);
}

}  // namespace

void Optimizer::step(std::vector<OptimizerShard>& shards) {
  const size_t states = state_names().size();
  for (const OptimizerShard& shard : shards) check_shard(shard, states);
  step_(shards);
}

}  // namespace keyseat
