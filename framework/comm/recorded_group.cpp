#include "comm/recorded_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "comm/guarded_call.h"
#include "keyseat/row_bytes.h"

namespace keyseat::comm {
namespace {

constexpr double kSlice = 0.05;  // seconds between looks for a verdict

// The wait of a recorded call: ends with a verdict where a rank is lost.
class RecordedWork final : public Work {
 public:
  RecordedWork(std::unique_ptr<Work> inner, CallRecord record, CallLog& log)
      : inner_(std::move(inner)), record_(std::move(record)), log_(log) {}

  bool wait_for(double seconds) override {
    if (done_ || try_for(0)) return true;
    log_.activity->set_waiting(true);
    const double slice = log_.monitor != nullptr ? kSlice : seconds;
    for (double rest = seconds; rest > 0 && !done_; rest -= slice) {
      if (log_.monitor != nullptr) log_.monitor->check();
      try_for(std::min(slice, rest));
    }
    log_.activity->set_waiting(false);
    return done_;
  }

 private:
  bool try_for(double seconds) {
    done_ = guarded_call(
        log_.monitor, [this] { return record_.text() + " failed"; },
        [&] { return inner_->wait_for(seconds); });
    return done_;
  }

  std::unique_ptr<Work> inner_;
  CallRecord record_;
  CallLog& log_;
  bool done_ = false;
};

class DoneWork final : public Work {
 public:
  bool wait_for(double /*seconds*/) override { return true; }
};

void copy(const at::Tensor& output, const at::Tensor& input) {
  if (output.data_ptr() != input.data_ptr()) output.detach().copy_(input.detach());
}

}  // namespace

RecordedGroup::RecordedGroup(CommGroup* inner, std::vector<int64_t> ranks, CommChannel channel,
                             CallLog& log)
    : inner_(inner), ranks_(std::move(ranks)), channel_(channel), log_(log) {
  rank_ = std::find(ranks_.begin(), ranks_.end(), log.rank) - ranks_.begin();
}

void RecordedGroup::require(bool condition, CallKind kind, const std::string& rule) const {
  if (condition) return;
  throw Error(Problem{Code::kR4Contract,
                      {},
                      fmt::format("a call of {} on ranks [{}] broke a rule: {}", call_name(kind),
                                  fmt::join(ranks_, ", "), rule),
                      log_.activity->unit().empty() ? "" : "in " + log_.activity->unit(),
                      ""});
}

void RecordedGroup::require_tensor(CallKind kind, const char* name,
                                   const at::Tensor& tensor) const {
  require(tensor.defined(), kind, fmt::format("{} is undefined", name));
  require(tensor.dim() >= 1, kind, fmt::format("{} has no dimension 0", name));
  require(tensor.is_contiguous(), kind, fmt::format("{} is not contiguous", name));
}

void RecordedGroup::require_rank(CallKind kind, int64_t rank) const {
  require(rank >= 0 && rank < size(), kind,
          fmt::format("rank {} is not in a group of {}", rank, size()));
}

void RecordedGroup::require_counts(CallKind kind, const std::vector<int64_t>& counts,
                                   int64_t rows) const {
  const bool fit = static_cast<int64_t>(counts.size()) == size() &&
                   std::all_of(counts.begin(), counts.end(), [](int64_t n) { return n >= 0; }) &&
                   std::accumulate(counts.begin(), counts.end(), int64_t{0}) == rows;
  require(fit, kind,
          fmt::format("counts [{}] do not describe {} rows of {} ranks", fmt::join(counts, ", "),
                      rows, size()));
}

void RecordedGroup::require_pair(CallKind kind, const at::Tensor& output,
                                 const at::Tensor& input) const {
  require_tensor(kind, "the output", output);
  require_tensor(kind, "the input", input);
  const bool alike = output.scalar_type() == input.scalar_type() &&
                     output.device() == input.device() &&
                     output.sizes().slice(1) == input.sizes().slice(1);
  require(alike, kind,
          fmt::format("output {} [{}] and input {} [{}] differ",
                      c10::toString(output.scalar_type()), fmt::join(output.sizes(), ", "),
                      c10::toString(input.scalar_type()), fmt::join(input.sizes(), ", ")));
}

CallRecord RecordedGroup::record(CallKind kind, const at::Tensor& tensor,
                                 std::vector<int64_t> counts) const {
  CallRecord made;
  made.kind = kind;
  made.group = ranks_;
  made.channel = channel_;
  made.rank = log_.rank;
  if (!tensor.defined()) return made;
  made.dtype = c10::toString(tensor.scalar_type());
  made.row_bytes = row_bytes(tensor);
  made.counts = std::move(counts);
  return made;
}

template <typename Function>
std::unique_ptr<Work> RecordedGroup::begin(CallRecord record, const Function& call) {
  if (log_.monitor != nullptr) log_.monitor->check();
  log_.add(record);
  if (inner_ == nullptr) return std::make_unique<DoneWork>();
  auto work = guarded_call(
      log_.monitor, [&] { return record.text() + " could not begin"; }, call);
  return std::make_unique<RecordedWork>(std::move(work), std::move(record), log_);
}

std::unique_ptr<Work> RecordedGroup::all_reduce(at::Tensor tensor, ReduceOp op) {
  constexpr auto kKind = CallKind::kAllReduce;
  require_tensor(kKind, "the tensor", tensor);
  CallRecord made = record(kKind, tensor, {tensor.size(0)});
  made.detail = static_cast<int64_t>(op);
  return begin(std::move(made), [&] { return inner_->all_reduce(tensor, op); });
}

std::unique_ptr<Work> RecordedGroup::broadcast(at::Tensor tensor, int64_t root) {
  constexpr auto kKind = CallKind::kBroadcast;
  require_tensor(kKind, "the tensor", tensor);
  require_rank(kKind, root);
  CallRecord made = record(kKind, tensor, {tensor.size(0)});
  made.detail = root;
  return begin(std::move(made), [&] { return inner_->broadcast(tensor, root); });
}

std::unique_ptr<Work> RecordedGroup::all_gather(at::Tensor output, at::Tensor input,
                                                std::vector<int64_t> counts) {
  constexpr auto kKind = CallKind::kAllGather;
  require_pair(kKind, output, input);
  require_counts(kKind, counts, output.size(0));
  require(counts[rank_] == input.size(0), kKind,
          fmt::format("this rank gives {} rows, the counts say {}", input.size(0), counts[rank_]));
  if (inner_ == nullptr) copy(output, input);
  return begin(record(kKind, input, counts),
               [&] { return inner_->all_gather(output, input, counts); });
}

std::unique_ptr<Work> RecordedGroup::reduce_scatter(at::Tensor output, at::Tensor input,
                                                    std::vector<int64_t> counts) {
  constexpr auto kKind = CallKind::kReduceScatter;
  require_pair(kKind, output, input);
  require_counts(kKind, counts, input.size(0));
  require(counts[rank_] == output.size(0), kKind,
          fmt::format("this rank takes {} rows, the counts say {}", output.size(0), counts[rank_]));
  if (inner_ == nullptr) copy(output, input);
  return begin(record(kKind, input, counts),
               [&] { return inner_->reduce_scatter(output, input, counts); });
}

std::unique_ptr<Work> RecordedGroup::all_to_all(at::Tensor output, at::Tensor input,
                                                std::vector<int64_t> output_counts,
                                                std::vector<int64_t> input_counts) {
  constexpr auto kKind = CallKind::kAllToAll;
  require_pair(kKind, output, input);
  require_counts(kKind, output_counts, output.size(0));
  require_counts(kKind, input_counts, input.size(0));
  require(output_counts[rank_] == input_counts[rank_], kKind,
          fmt::format("this rank sends itself {} rows and expects {}", input_counts[rank_],
                      output_counts[rank_]));
  if (inner_ == nullptr) copy(output, input);
  CallRecord made = record(kKind, input, input_counts);
  made.output_counts = output_counts;
  return begin(std::move(made),
               [&] { return inner_->all_to_all(output, input, output_counts, input_counts); });
}

std::unique_ptr<Work> RecordedGroup::send(at::Tensor tensor, int64_t to) {
  constexpr auto kKind = CallKind::kSend;
  require_tensor(kKind, "the tensor", tensor);
  require_rank(kKind, to);
  require(inner_ != nullptr && (to != rank_ || size() == 1), kKind, "a message to oneself");
  CallRecord made = record(kKind, tensor, {tensor.size(0)});
  made.detail = ranks_[to];
  return begin(std::move(made), [&] { return inner_->send(tensor, to); });
}

std::unique_ptr<Work> RecordedGroup::receive(at::Tensor tensor, int64_t from) {
  constexpr auto kKind = CallKind::kReceive;
  require_tensor(kKind, "the tensor", tensor);
  require_rank(kKind, from);
  require(inner_ != nullptr && (from != rank_ || size() == 1), kKind, "a message from oneself");
  CallRecord made = record(kKind, tensor, {tensor.size(0)});
  made.detail = ranks_[from];
  return begin(std::move(made), [&] { return inner_->receive(tensor, from); });
}

std::unique_ptr<Work> RecordedGroup::begin_barrier() {
  return begin(record(CallKind::kBarrier, {}, {}), [&] { return inner_->begin_barrier(); });
}

}  // namespace keyseat::comm
