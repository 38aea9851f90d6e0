#include "self.h"

#include <fmt/format.h>

namespace keyseat_comm_self {
namespace {

using keyseat::Code;
using keyseat::Error;
using keyseat::Problem;
using keyseat::Problems;
using keyseat::Work;

// Everything is done when a call returns.
class DoneWork final : public Work {
 public:
  bool wait_for(double /*seconds*/) override { return true; }
};

std::unique_ptr<Work> done() { return std::make_unique<DoneWork>(); }

[[noreturn]] void broken(const std::string& what) {
  throw Error(Problem{Code::kR4Contract, {}, "a call of comm/self broke a rule: " + what, "", ""});
}

void require_tensor(const char* call, const char* name, const at::Tensor& tensor) {
  if (!tensor.defined()) broken(fmt::format("{}: {} is undefined", call, name));
  if (tensor.dim() < 1) broken(fmt::format("{}: {} has no dimension 0", call, name));
  if (!tensor.is_contiguous()) broken(fmt::format("{}: {} is not contiguous", call, name));
}

void require_peer(const char* call, int64_t rank) {
  if (rank != 0) broken(fmt::format("{}: rank {} is not in a group of one rank", call, rank));
}

void require_counts(const char* call, const std::vector<int64_t>& counts, int64_t rows) {
  if (counts.size() != 1 || counts[0] != rows) {
    broken(fmt::format("{}: counts [{}] do not describe {} rows of one rank", call,
                       fmt::join(counts, ", "), rows));
  }
}

void copy(const char* call, at::Tensor& output, const at::Tensor& input) {
  require_tensor(call, "the output", output);
  require_tensor(call, "the input", input);
  if (output.sizes() != input.sizes() || output.scalar_type() != input.scalar_type()) {
    broken(fmt::format("{}: output {} [{}] and input {} [{}] differ", call,
                       c10::toString(output.scalar_type()), fmt::join(output.sizes(), ", "),
                       c10::toString(input.scalar_type()), fmt::join(input.sizes(), ", ")));
  }
  if (!output.is_same(input)) output.detach().copy_(input.detach());
}

}  // namespace

std::unique_ptr<Work> SelfGroup::all_reduce(at::Tensor tensor, keyseat::ReduceOp /*op*/) {
  require_tensor("all_reduce", "the tensor", tensor);
  return done();  // sum, maximum and minimum of one value are the value
}

std::unique_ptr<Work> SelfGroup::broadcast(at::Tensor tensor, int64_t root) {
  require_tensor("broadcast", "the tensor", tensor);
  require_peer("broadcast", root);
  return done();
}

std::unique_ptr<Work> SelfGroup::all_gather(at::Tensor output, at::Tensor input,
                                            std::vector<int64_t> counts) {
  copy("all_gather", output, input);
  require_counts("all_gather", counts, input.size(0));
  return done();
}

std::unique_ptr<Work> SelfGroup::reduce_scatter(at::Tensor output, at::Tensor input,
                                                std::vector<int64_t> counts) {
  copy("reduce_scatter", output, input);
  require_counts("reduce_scatter", counts, output.size(0));
  return done();
}

std::unique_ptr<Work> SelfGroup::all_to_all(at::Tensor output, at::Tensor input,
                                            std::vector<int64_t> output_counts,
                                            std::vector<int64_t> input_counts) {
  copy("all_to_all", output, input);
  require_counts("all_to_all", output_counts, output.size(0));
  require_counts("all_to_all", input_counts, input.size(0));
  return done();
}

std::unique_ptr<Work> SelfGroup::send(at::Tensor tensor, int64_t to) {
  require_tensor("send", "the tensor", tensor);
  require_peer("send", to);
  const std::lock_guard<std::mutex> lock(mutex_);
  messages_.push_back(tensor.detach().clone());
  return done();
}

std::unique_ptr<Work> SelfGroup::receive(at::Tensor tensor, int64_t from) {
  require_peer("receive", from);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (messages_.empty()) {
    throw Error(Problem{Code::kR2Communication,
                        {},
                        "comm/self: receive, but nothing was sent before; it would wait for ever",
                        "",
                        ""});
  }
  copy("receive", tensor, messages_.front());
  messages_.pop_front();
  return done();
}

std::unique_ptr<Work> SelfGroup::begin_barrier() { return done(); }

Self::Self(const keyseat::Options& /*options*/, const keyseat::PluginHost& /*host*/) {}

Problems Self::validate(const keyseat::Rendezvous& rendezvous) const {
  if (rendezvous.world == 1 && rendezvous.rank == 0) return {};
  return {Problem{Code::kC4Combination,
                  {},
                  fmt::format("comm/self serves a world of one rank; this is rank {} of {}",
                              rendezvous.rank, rendezvous.world),
                  "",
                  "Choose a communicator with peers, such as comm/gloo, or launch one rank."}};
}

void Self::connect(const keyseat::Rendezvous& rendezvous) {
  Problems problems = validate(rendezvous);
  if (!problems.empty()) throw Error(std::move(problems));
  connected_ = true;
}

keyseat::CommGroup& Self::group(const std::vector<int64_t>& ranks,
                                keyseat::CommChannel /*channel*/) {
  if (!connected_) broken("group: connect was not called");
  if (ranks != std::vector<int64_t>{0}) {
    broken(fmt::format("group: ranks [{}], but the world is rank 0", fmt::join(ranks, ", ")));
  }
  return group_;
}

}  // namespace keyseat_comm_self
