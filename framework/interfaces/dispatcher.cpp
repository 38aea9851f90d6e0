// Kind `dispatcher`: anchors, and the checks and timing around plan, dispatch and combine.
#include "keyseat/interfaces/dispatcher.h"

#include <fmt/format.h>

#include <torch/csrc/autograd/function_hook.h>

#include <chrono>

#include "interfaces/contract.h"

namespace keyseat {

DispatchPlan::~DispatchPlan() = default;
Dispatcher::~Dispatcher() = default;

Problems Dispatcher::validate(const DispatcherFacts& /*facts*/, const Mesh& /*mesh*/) const {
  return {};
}

DispatcherTraffic Dispatcher::traffic(const DispatcherWork& /*work*/, const Mesh& /*mesh*/) const {
  return {};
}

namespace {

Problem refusal(std::string what, std::string why, std::string remedy) {
  return {Code::kC4Combination, {}, std::move(what), std::move(why), std::move(remedy)};
}

using Clock = std::chrono::steady_clock;

// Adds the time of its scope to the component report. On a device this is the time of launching;
// kernels are timed by the executor's events.
class DispatcherTimer {
 public:
  explicit DispatcherTimer(StepContext& context) : seconds_(context.state().dispatcher_seconds) {}
  ~DispatcherTimer() {
    if (seconds_ == nullptr) return;
    *seconds_ += std::chrono::duration<double>(Clock::now() - start_).count();
  }
  DispatcherTimer(const DispatcherTimer&) = delete;
  DispatcherTimer& operator=(const DispatcherTimer&) = delete;

 private:
  double* seconds_;
  Clock::time_point start_ = Clock::now();
};

// dispatch and combine are autograd functions: the node behind a result is their whole backward,
// so two hooks around it measure that.
void time_backward(const at::Tensor& result, double* seconds) {
  const auto& node = result.grad_fn();
  if (seconds == nullptr || node == nullptr) return;
  struct Before final : torch::autograd::FunctionPreHook {
    std::shared_ptr<Clock::time_point> begin;
    torch::autograd::variable_list operator()(
        const torch::autograd::variable_list& gradients) override {
      *begin = Clock::now();
      return gradients;
    }
  };
  struct After final : torch::autograd::FunctionPostHook {
    std::shared_ptr<Clock::time_point> begin;
    double* seconds = nullptr;
    torch::autograd::variable_list operator()(
        const torch::autograd::variable_list& outputs,
        const torch::autograd::variable_list& /*inputs*/) override {
      *seconds += std::chrono::duration<double>(Clock::now() - *begin).count();
      return outputs;
    }
  };
  auto before = std::make_unique<Before>();
  auto after = std::make_unique<After>();
  before->begin = after->begin = std::make_shared<Clock::time_point>();
  after->seconds = seconds;
  node->add_pre_hook(std::move(before));
  node->add_post_hook(std::move(after));
}

void require(bool holds, StepContext& context, const char* what, const at::Tensor& tensor) {
  if (holds) return;
  contract_broken("the dispatcher call of " + context.unit(),
                  fmt::format("{}, but it is {}", what, tensor_text(tensor)));
}

}  // namespace

Problems Dispatcher::check_layout(const DispatcherFacts& facts, const Mesh& mesh) const {
  Problems problems;
  const int64_t expert = mesh.degree(Axis::kExpert), tensor = mesh.degree(Axis::kExpertTensor);
  if (facts.experts % expert != 0) {
    problems.push_back(
        refusal(fmt::format("the expert degree {} does not divide the {} experts of a layer",
                            expert, facts.experts),
                "every expert-parallel rank owns the same number of experts",
                "set the strategy's option expert to a divisor of the number of experts"));
  }
  const DispatcherCapabilities can = capabilities();
  if (tensor > 1 && !can.supports_expert_tensor) {
    problems.push_back(
        refusal(fmt::format("this dispatcher cannot serve an expert_tensor degree of {}", tensor),
                "it does not bring the rows of an expert to every rank that holds a slice of it",
                "set expert_tensor to 1, or choose a dispatcher with the capability "
                "supports_expert_tensor"));
  }
  if (facts.capacity_pad && !can.supports_capacity_pad) {
    problems.push_back(
        refusal("this dispatcher cannot pad experts to a capacity",
                "router_capacity = \"pad\" asks for blocks of one size from every rank to every "
                "expert",
                "use router_capacity = \"drop\", or choose a dispatcher with the capability "
                "supports_capacity_pad"));
  }
  Problems own = validate(facts, mesh);
  problems.insert(problems.end(), std::make_move_iterator(own.begin()),
                  std::make_move_iterator(own.end()));
  return problems;
}

LinkTraffic DispatcherTraffic::total() const {
  LinkTraffic sum = plan;
  for (const LinkTraffic& part : {dispatch, combine, combine_backward, dispatch_backward}) {
    sum.intra += part.intra;
    sum.inter += part.inter;
  }
  return sum;
}

std::shared_ptr<DispatchPlan> Dispatcher::plan_padded_(const at::Tensor& /*topk_index_TK*/,
                                                       int64_t /*experts*/, int64_t /*capacity*/,
                                                       StepContext& context) {
  contract_broken("the dispatcher call of " + context.unit(),
                  "it asks for a capacity, which this dispatcher cannot pad to");
}

DispatcherReport Dispatcher::take_report() { return std::exchange(report_, {}); }

void Dispatcher::count_choices(const at::Tensor& topk_index_TK, const StepContext& context) {
  const RowFacts* row = context.state().row;  // null in a plugin's own test: no token is real
  if (!context.training() || !topk_index_TK.is_cpu() || row == nullptr) return;
  const int64_t real = std::min(row->counts.tokens, topk_index_TK.size(0));
  const at::Tensor index_RK = topk_index_TK.narrow(0, 0, real).contiguous();
  const int64_t* index = index_RK.const_data_ptr<int64_t>();
  report_.choices += index_RK.numel();
  report_.capacity += std::count(index, index + index_RK.numel(), -1);
}

std::shared_ptr<DispatchPlan> Dispatcher::plan(const at::Tensor& topk_index_TK, int64_t experts,
                                               StepContext& context, int64_t capacity) {
  require(topk_index_TK.dim() == 2 && topk_index_TK.scalar_type() == at::kLong, context,
          "topk_index must be int64 [T, K]", topk_index_TK);
  const DispatcherTimer timer(context);
  count_choices(topk_index_TK, context);
  auto plan = capacity > 0 ? plan_padded_(topk_index_TK, experts, capacity, context)
                           : plan_(topk_index_TK, experts, context);
  if (plan == nullptr) contract_broken("the dispatcher", "plan_ returned no plan");
  return plan;
}

Dispatched Dispatcher::dispatch(const std::shared_ptr<DispatchPlan>& plan, const at::Tensor& x_TH,
                                const at::Tensor& weight_TK, StepContext& context) {
  require(x_TH.dim() == 2 && x_TH.is_floating_point(), context, "x must be floating point [T, H]",
          x_TH);
  // Gradient checks run everything in fp64.
  const at::ScalarType weight_type = x_TH.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  require(weight_TK.dim() == 2 && weight_TK.scalar_type() == weight_type &&
              weight_TK.size(0) == x_TH.size(0),
          context, "weight must be float32 [T, K] with the T of x", weight_TK);
  const DispatcherTimer timer(context);
  Dispatched result = dispatch_(plan, x_TH, weight_TK, context);
  const at::Tensor& rows_MH = result.rows_MH;
  require(rows_MH.defined() && rows_MH.dim() == 2 && rows_MH.size(1) == x_TH.size(1) &&
              rows_MH.scalar_type() == x_TH.scalar_type(),
          context, "dispatched rows must be [M, H] in the dtype of x", rows_MH);
  require(result.row_weight_M.defined() && result.row_weight_M.dim() == 1 &&
              result.row_weight_M.scalar_type() == weight_type &&
              result.row_weight_M.size(0) == rows_MH.size(0),
          context, "row_weight must be float32 [M]", result.row_weight_M);
  const at::Tensor& counts_E = result.tokens_per_expert_E;
  require(counts_E.defined() && counts_E.dim() == 1 && counts_E.scalar_type() == at::kLong, context,
          "tokens_per_expert must be int64 [local experts]", counts_E);
  const int64_t host_counts = static_cast<int64_t>(result.host_tokens_per_expert.size());
  if (host_counts != (capabilities().host_counts ? counts_E.size(0) : 0)) {
    contract_broken("the dispatcher",
                    "host_tokens_per_expert must be given exactly with the "
                    "capability host_counts, one number per local expert");
  }
  time_backward(rows_MH, context.state().dispatcher_seconds);
  if (result.row_weight_M.grad_fn() != rows_MH.grad_fn()) {
    time_backward(result.row_weight_M, context.state().dispatcher_seconds);
  }
  return result;
}

at::Tensor Dispatcher::combine(const std::shared_ptr<DispatchPlan>& plan, const at::Tensor& rows_MH,
                               StepContext& context) {
  require(rows_MH.dim() == 2, context, "rows must be [M, H]", rows_MH);
  const DispatcherTimer timer(context);
  at::Tensor out_TH = combine_(plan, rows_MH, context);
  require(out_TH.defined() && out_TH.dim() == 2 && out_TH.size(1) == rows_MH.size(1) &&
              out_TH.scalar_type() == rows_MH.scalar_type(),
          context, "combined rows must be [T, H] in the dtype of the rows", out_TH);
  time_backward(out_TH, context.state().dispatcher_seconds);
  return out_TH;
}

}  // namespace keyseat
