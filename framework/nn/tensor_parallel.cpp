// Where the rows of a rank meet parameters that are cut over tensor ranks.
// Legend: C rows of the context rank, m key/value heads, d head dim.
#include "keyseat/nn/tensor_parallel.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include "keyseat/mutation.h"
#include "nn/contract.h"
#include "nn/rank_group.h"

namespace keyseat::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const std::vector<Axis> kTensorAxis{Axis::kTensor};

// Whether each tensor rank has its own slice of such rows.
bool has_slices(Layout layout, const StepContext& context) {
  return layout == Layout::kRows && context.mesh().sequence_parallel();
}

struct EnterSplitFunction : torch::autograd::Function<EnterSplitFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const RankGroupPointer& group, bool slices) {
    context->saved_data["group"] = RankGroup::capsule(group);
    context->saved_data["slices"] = slices;
    return slices ? group->all_gather(x) : x;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const RankGroupPointer group = RankGroup::from_capsule(context->saved_data["group"]);
    const bool slices = context->saved_data["slices"].toBool();
    if (KEYSEAT_MUTATED("own_columns_only")) {
      return {slices ? gradients[0].chunk(group->size())[group->rank()] : gradients[0], {}, {}};
    }
    return {slices ? group->reduce_scatter(gradients[0]) : group->all_reduce(gradients[0]), {}, {}};
  }
};

struct LeaveSplitFunction : torch::autograd::Function<LeaveSplitFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& parts,
                            const RankGroupPointer& group, bool slices) {
    context->saved_data["group"] = RankGroup::capsule(group);
    context->saved_data["slices"] = slices;
    return slices ? group->reduce_scatter(parts) : group->all_reduce(parts);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    if (!context->saved_data["slices"].toBool()) return {gradients[0], {}, {}};
    const RankGroupPointer group = RankGroup::from_capsule(context->saved_data["group"]);
    return {group->all_gather(gradients[0]), {}, {}};
  }
};

}  // namespace

bool is_split(const Params& params, const std::string& name) {
  const at::Tensor& value = params.at(name).value();
  for (const ParamSpec& spec : params.specs()) {
    if (spec.name != name || spec.split.dim < 0) continue;
    return value.size(spec.split.dim) != spec.shape[static_cast<size_t>(spec.split.dim)];
  }
  return false;
}

at::Tensor enter_split(const at::Tensor& x_TH, Layout layout, StepContext& context) {
  const RankGroupPointer group = group_over(context, kTensorAxis);
  if (group->size() == 1) return x_TH;
  return EnterSplitFunction::apply(x_TH, group, has_slices(layout, context));
}

at::Tensor leave_split(const at::Tensor& parts_CH, Layout layout, StepContext& context) {
  const RankGroupPointer group = group_over(context, kTensorAxis);
  if (group->size() == 1) return parts_CH;
  const bool slices = has_slices(layout, context);
  if (slices && parts_CH.size(0) % group->size() != 0) {
    contract_error(fmt::format("{} rows of a context rank are to be cut into {} slices",
                               parts_CH.size(0), group->size()),
                   "with sequence parallel every tensor rank has an equal slice of the rows",
                   "pad rows to a multiple of 2 * context * tensor, as share_row does");
  }
  return LeaveSplitFunction::apply(parts_CH, group, slices);
}

at::Tensor own_key_heads(const at::Tensor& x_Cmd, int64_t query_heads, StepContext& context) {
  const RankGroupPointer group = group_over(context, kTensorAxis);
  if (group->size() == 1) return x_Cmd;
  const int64_t key_heads = x_Cmd.size(1), ranks = group->size();
  const int64_t own = query_heads / ranks;
  // Query heads that share a key head. Either a rank has whole groups, or all of its heads lie in
  // one; the rule is the same on all ranks, so that all of them refuse.
  const int64_t sharing = key_heads == 0 ? 0 : query_heads / key_heads;
  const bool fits = sharing > 0 && own > 0 && own * ranks == query_heads &&
                    sharing * key_heads == query_heads &&
                    (own % sharing == 0 || sharing % own == 0);
  if (!fits) {
    contract_error(
        fmt::format("{} query heads over {} tensor ranks, {} of which share each of {} key heads",
                    query_heads, ranks, sharing, key_heads),
        "a rank's query heads use whole key heads, or lie in the group of one",
        "choose a tensor degree that divides the key heads, or is a multiple of them that divides "
        "the query heads");
  }
  return x_Cmd.narrow(1, group->rank() * own / sharing, std::max<int64_t>(1, own / sharing));
}

}  // namespace keyseat::nn
