#include "allgather.h"

#include <ATen/ops/full.h>

#include "keyseat/interfaces/comm.h"
#include "keyseat/mutation.h"
#include "keyseat/nn/exchange.h"
#include "route.h"

namespace keyseat_dispatcher_allgather {

using keyseat::Axis;
using keyseat::nn::add_sent;
using keyseat::nn::begin_all_gather;

namespace {

const std::vector<Axis> kAxes{Axis::kExpertTensor, Axis::kExpert};

// The ranks that all tokens are gathered from; null where this rank is alone.
keyseat::CommGroup* group_of(const keyseat::StepContext& context) {
  const keyseat::Mesh* mesh = context.state().mesh;
  if (mesh == nullptr) return nullptr;  // a layer called on its own
  const std::vector<int64_t> ranks = mesh->group(kAxes);
  return ranks.size() == 1 ? nullptr : &context.state().comm->group(ranks);
}

Counts gather_token_counts(keyseat::CommGroup& group, int64_t tokens, at::Device device) {
  if (KEYSEAT_MUTATED("every rank has my T")) {
    return Counts(static_cast<size_t>(group.size()), tokens);
  }
  const at::Tensor own = at::full({1}, tokens, at::TensorOptions(at::kLong).device(device));
  const at::Tensor all = begin_all_gather(group, own, Counts(static_cast<size_t>(group.size()), 1))
                             .wait()
                             .to(at::kCPU);
  const int64_t* data = all.const_data_ptr<int64_t>();
  return {data, data + all.numel()};
}

}  // namespace

keyseat::OptionSchema AllGather::options() {
  return {keyseat::Option("combine_dtype", keyseat::OptionType::kEnum)
              .choices({"fp32", "compute"})
              .defaults_to("fp32")
              .level(keyseat::OptionLevel::kTuning)
              .doc("Type in which sums travel back to the rank of the token; compute halves the "
                   "bytes of a bf16 run and rounds once more.")};
}

AllGather::AllGather(const keyseat::Options& options, const keyseat::PluginHost& /*host*/)
    : combine_in_fp32_(options.get_string("combine_dtype") == "fp32") {}

keyseat::DispatcherCapabilities AllGather::capabilities() const {
  keyseat::DispatcherCapabilities capabilities;
  capabilities.host_counts = true;
  capabilities.host_syncs = 2;  // T of every rank, the choices of all tokens
  capabilities.supports_expert_tensor = true;
  return capabilities;
}

std::shared_ptr<keyseat::DispatchPlan> AllGather::plan_(const at::Tensor& topk_index_TK,
                                                        int64_t experts,
                                                        keyseat::StepContext& context) {
  keyseat::nn::check_choices(topk_index_TK, experts, context);
  const at::Device device = topk_index_TK.device();
  const keyseat::Mesh* mesh = context.state().mesh;
  const int64_t ranks = mesh == nullptr ? 1 : mesh->degree(Axis::kExpert);
  const int64_t first = mesh == nullptr ? 0 : mesh->coordinate(Axis::kExpert) * (experts / ranks);
  if (topk_index_TK.is_meta()) {
    const int64_t slices = mesh == nullptr ? 1 : mesh->degree(Axis::kExpertTensor);
    return keyseat::nn::meta_plan(topk_index_TK.size(0), topk_index_TK.size(1),
                                  topk_index_TK.numel() * slices, experts / ranks);
  }
  keyseat::CommGroup* group = group_of(context);
  Counts tokens{topk_index_TK.size(0)};
  at::Tensor index_GK = topk_index_TK;
  if (group != nullptr) {
    tokens = gather_token_counts(*group, topk_index_TK.size(0), device);
    // Two bytes would do for most models; four serve all, and 8 would double the metadata.
    index_GK = begin_all_gather(*group, topk_index_TK.to(at::kInt), tokens).wait();
  }
  Local local = sort_local(index_GK.to(at::kCPU, at::kLong).contiguous(), first, experts / ranks);
  Counts counts = local.rows_of_expert;
  return std::make_shared<keyseat::nn::RoutePlan>(
      c10::make_intrusive<Route>(group, std::move(tokens), std::move(local), combine_in_fp32_,
                                 device),
      std::move(counts), device);
}

keyseat::DispatcherTraffic AllGather::traffic(const keyseat::DispatcherWork& work,
                                              const keyseat::Mesh& mesh) const {
  const std::vector<int64_t> ranks = mesh.group(kAxes);
  const auto tokens_of = [&](size_t place) {
    return static_cast<double>(work.topk_index.empty() ? work.tokens
                                                       : work.topk_index[place].size(0));
  };
  const auto own =
      static_cast<size_t>(std::find(ranks.begin(), ranks.end(), mesh.rank()) - ranks.begin());
  const auto hidden = static_cast<double>(work.facts.hidden);
  const auto top_k = static_cast<double>(work.facts.top_k);
  const auto element = static_cast<double>(work.element_bytes);
  const double sum_element = combine_in_fp32_ ? std::max(element, 4.0) : element;
  keyseat::DispatcherTraffic traffic;
  for (size_t place = 0; place < ranks.size(); ++place) {
    const int64_t to = ranks[place];
    add_sent(traffic.plan, mesh, to, 8 + tokens_of(own) * top_k * 4);
    add_sent(traffic.dispatch, mesh, to, tokens_of(own) * (hidden * element + top_k * 4));
    add_sent(traffic.combine, mesh, to, tokens_of(place) * hidden * sum_element);
    add_sent(traffic.combine_backward, mesh, to, tokens_of(own) * hidden * element);
    add_sent(traffic.dispatch_backward, mesh, to,
             tokens_of(place) * (hidden * sum_element + top_k * 4));
  }
  return traffic;
}

}  // namespace keyseat_dispatcher_allgather
