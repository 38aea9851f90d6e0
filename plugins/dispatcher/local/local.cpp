#include "local.h"

#include <ATen/ops/cat.h>

#include "keyseat/nn/moe.h"
#include "plan.h"

namespace keyseat_dispatcher_local {

using keyseat::Axis;
using keyseat::Code;
using keyseat::nn::permute_rows;
using keyseat::nn::permute_weights;
using keyseat::nn::unpermute_rows;

namespace {

const Plan& cast(const std::shared_ptr<keyseat::DispatchPlan>& plan) {
  return static_cast<const Plan&>(*plan);
}

// Sends the pieces of every rank's buffer to their owners: [sender][owner] becomes [owner][sender].
// `back` is the way home.
at::Tensor exchange(const at::Tensor& sent, const std::vector<int64_t>& pieces, int64_t ranks,
                    bool back) {
  const auto piece = [&](int64_t from, int64_t to) {
    return static_cast<size_t>(back ? to * ranks + from : from * ranks + to);
  };
  std::vector<int64_t> sizes;
  for (int64_t from = 0; from < ranks; ++from) {
    for (int64_t to = 0; to < ranks; ++to) sizes.push_back(pieces[piece(from, to)]);
  }
  const std::vector<at::Tensor> parts = sent.split_with_sizes(sizes);
  std::vector<at::Tensor> received;
  for (int64_t to = 0; to < ranks; ++to) {
    for (int64_t from = 0; from < ranks; ++from) {
      received.push_back(parts[static_cast<size_t>(from * ranks + to)]);
    }
  }
  return at::cat(received);
}

}  // namespace

keyseat::OptionSchema Local::options() {
  return {keyseat::Option("virtual_ranks", keyseat::OptionType::kInt)
              .defaults_to(int64_t{1})
              .range(1, 1024)
              .level(keyseat::OptionLevel::kDeveloper)
              .doc("Sends the rows through the buffers of an exchange between this many "
                   "expert-parallel ranks that all live in this process; results do not change.")};
}

Local::Local(const keyseat::Options& options, const keyseat::PluginHost& /*host*/)
    : options_(options), virtual_ranks_(options.get_int("virtual_ranks")) {}

keyseat::DispatcherCapabilities Local::capabilities() const {
  keyseat::DispatcherCapabilities capabilities;
  capabilities.host_counts = true;
  return capabilities;
}

keyseat::Problems Local::validate(const keyseat::DispatcherFacts& facts,
                                  const keyseat::Mesh& mesh) const {
  keyseat::Problems problems;
  if (facts.experts % virtual_ranks_ != 0) {
    problems.push_back(options_.problem(
        Code::kC4Combination, "virtual_ranks",
        fmt::format("{} does not divide the {} experts of the model", virtual_ranks_,
                    facts.experts),
        "every rank owns the same number of experts", "use a divisor of the number of experts"));
  }
  if (mesh.degree(Axis::kExpert) > 1) {
    keyseat::Problem problem;
    problem.code = Code::kC4Combination;
    problem.what = fmt::format("dispatcher/local cannot serve an expert degree of {}",
                               mesh.degree(Axis::kExpert));
    problem.why = "it keeps all experts in this process";
    problem.remedy =
        "set the strategy's option expert to 1, or choose a dispatcher that sends rows between "
        "ranks";
    problems.push_back(std::move(problem));
  }
  return problems;
}

std::shared_ptr<keyseat::DispatchPlan> Local::plan_(const at::Tensor& topk_index_TK,
                                                    int64_t experts,
                                                    keyseat::StepContext& /*context*/) {
  return make_plan(topk_index_TK, experts, virtual_ranks_);
}

keyseat::Dispatched Local::dispatch_(const std::shared_ptr<keyseat::DispatchPlan>& plan,
                                     const at::Tensor& x_TH, const at::Tensor& weight_TK,
                                     keyseat::StepContext& /*context*/) {
  const Plan& p = cast(plan);
  at::Tensor rows_MH = permute_rows(x_TH, p.source_M, p.slot_TK);
  at::Tensor weight_M = permute_weights(weight_TK, p.slot_TK, p.source_M.size(0));
  if (virtual_ranks_ > 1) {
    rows_MH = permute_rows(exchange(rows_MH, p.pieces, virtual_ranks_, /*back=*/false),
                           p.received_M, p.sorted_M1);
    const at::Tensor weight_M1 =
        exchange(weight_M, p.pieces, virtual_ranks_, /*back=*/false).unsqueeze(1);
    weight_M = permute_rows(weight_M1, p.received_M, p.sorted_M1).squeeze(1);
  }
  return {rows_MH, weight_M, p.counts_E, p.host_counts};
}

at::Tensor Local::combine_(const std::shared_ptr<keyseat::DispatchPlan>& plan,
                           const at::Tensor& rows_MH, keyseat::StepContext& /*context*/) {
  const Plan& p = cast(plan);
  at::Tensor sent_MH = rows_MH;
  if (virtual_ranks_ > 1) {
    const at::Tensor received_MH =
        permute_rows(rows_MH, p.sorted_M1.squeeze(1), p.received_M.unsqueeze(1));
    sent_MH = exchange(received_MH, p.pieces, virtual_ranks_, /*back=*/true);
  }
  return unpermute_rows(sent_MH, p.source_M, p.slot_TK);
}

}  // namespace keyseat_dispatcher_local
