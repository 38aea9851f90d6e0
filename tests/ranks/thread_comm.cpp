#include "tests/ranks/thread_comm.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <omp.h>

#include <limits>
#include <numeric>

#include "keyseat/status.h"
#include "tests/ranks/thread_world.h"

namespace keyseat::test {
namespace {

[[noreturn]] void broken(const std::string& what) {
  throw Error(Problem{Code::kR4Contract, {}, "a call of the thread communicator: " + what, "", ""});
}

// Readers of a result that is not there yet shall notice.
void poison(const at::Tensor& tensor) {
  if (tensor.is_floating_point()) {
    tensor.fill_(std::numeric_limits<double>::quiet_NaN());
  } else {
    tensor.fill_(101);
  }
}

class ThreadWork final : public Work {
 public:
  ThreadWork(std::shared_ptr<ThreadWorldState> state, std::shared_ptr<Round> round, size_t member)
      : state_(std::move(state)), round_(std::move(round)), member_(member) {}
  ~ThreadWork() override {
    if (!waited_) state_->note_unwaited(*round_, member_);
  }
  bool wait_for(double /*seconds*/) override {  // the world's time-out ends it
    if (std::exchange(waited_, true)) return true;
    state_->wait(*round_, member_);
    deliver(*round_, member_);
    return true;
  }

 private:
  std::shared_ptr<ThreadWorldState> state_;
  std::shared_ptr<Round> round_;
  size_t member_;
  bool waited_ = false;
};

class ThreadGroup final : public CommGroup {
 public:
  ThreadGroup(std::shared_ptr<ThreadWorldState> state, std::vector<int64_t> ranks,
              CommChannel channel, int64_t rank)
      : state_(std::move(state)), ranks_(std::move(ranks)), channel_(channel) {
    const auto found = std::find(ranks_.begin(), ranks_.end(), rank);
    if (found == ranks_.end()) {
      broken(fmt::format("rank {} asks for the group [{}]", rank, fmt::join(ranks_, ", ")));
    }
    member_ = static_cast<size_t>(found - ranks_.begin());
  }
  bool is(const std::vector<int64_t>& ranks, CommChannel channel) const {
    return ranks_ == ranks && channel_ == channel;
  }
  int64_t size() const override { return static_cast<int64_t>(ranks_.size()); }
  int64_t rank() const override { return static_cast<int64_t>(member_); }

  std::unique_ptr<Work> all_reduce(at::Tensor tensor, ReduceOp op) override {
    return begin({.kind = CallKind::kAllReduce, .output = tensor, .input = tensor, .op = op});
  }
  std::unique_ptr<Work> broadcast(at::Tensor tensor, int64_t root) override {
    require_peer(root);
    return begin({.kind = CallKind::kBroadcast, .output = tensor, .input = tensor, .root = root});
  }
  std::unique_ptr<Work> all_gather(at::Tensor output, at::Tensor input,
                                   std::vector<int64_t> counts) override {
    require_counts(counts, output);
    if (input.size(0) != counts[member_]) broken("all_gather: the input has not counts[rank] rows");
    return begin(
        {.kind = CallKind::kAllGather, .output = output, .input = input, .counts = counts});
  }
  std::unique_ptr<Work> reduce_scatter(at::Tensor output, at::Tensor input,
                                       std::vector<int64_t> counts) override {
    require_counts(counts, input);
    if (output.size(0) != counts[member_]) {
      broken("reduce_scatter: the output has not counts[rank] rows");
    }
    return begin(
        {.kind = CallKind::kReduceScatter, .output = output, .input = input, .counts = counts});
  }
  std::unique_ptr<Work> all_to_all(at::Tensor output, at::Tensor input,
                                   std::vector<int64_t> output_counts,
                                   std::vector<int64_t> input_counts) override {
    require_counts(output_counts, output);
    require_counts(input_counts, input);
    return begin({.kind = CallKind::kAllToAll,
                  .output = output,
                  .input = input,
                  .counts = input_counts,
                  .output_counts = output_counts});
  }
  std::unique_ptr<Work> send(at::Tensor tensor, int64_t to) override {
    require_peer(to);
    return post({.kind = CallKind::kSend, .input = snapshot(tensor)},
                {ranks_[member_], ranks_[static_cast<size_t>(to)]}, 0);
  }
  std::unique_ptr<Work> receive(at::Tensor tensor, int64_t from) override {
    require_peer(from);
    require_contiguous(tensor);
    poison(tensor.detach());
    return post({.kind = CallKind::kReceive, .output = tensor.detach()},
                {ranks_[static_cast<size_t>(from)], ranks_[member_]}, 1);
  }
  std::unique_ptr<Work> begin_barrier() override {
    return post({.kind = CallKind::kBarrier}, ranks_, member_);
  }

 private:
  static void require_contiguous(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.dim() < 1 || !tensor.is_contiguous()) {
      broken("a tensor is undefined, has no dimension 0 or is not contiguous");
    }
  }
  void require_peer(int64_t peer) const {
    if (peer < 0 || peer >= size())
      broken(fmt::format("no rank {} in a group of {}", peer, size()));
  }
  void require_counts(const std::vector<int64_t>& counts, const at::Tensor& tensor) const {
    require_contiguous(tensor);
    const int64_t sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    if (counts.size() == ranks_.size() && sum == tensor.size(0)) return;
    broken(fmt::format("counts [{}] do not describe {} rows over {} ranks", fmt::join(counts, ", "),
                       tensor.size(0), ranks_.size()));
  }
  static at::Tensor snapshot(const at::Tensor& tensor) {
    require_contiguous(tensor);
    return tensor.detach().clone();
  }
  std::unique_ptr<Work> begin(Call call) {
    require_contiguous(call.output);
    if (call.output.scalar_type() != call.input.scalar_type())
      broken("input and output differ in dtype");
    call.input = snapshot(call.input);
    call.output = call.output.detach();
    poison(call.output);
    return post(std::move(call), ranks_, member_);
  }
  std::unique_ptr<Work> post(Call call, const std::vector<int64_t>& ranks, size_t member) {
    call.channel = channel_;
    return std::make_unique<ThreadWork>(state_, state_->post(ranks, member, std::move(call)),
                                        member);
  }

  std::shared_ptr<ThreadWorldState> state_;
  std::vector<int64_t> ranks_;
  CommChannel channel_;
  size_t member_ = 0;
};

}  // namespace

ThreadComm::ThreadComm(std::shared_ptr<ThreadWorldState> state, int64_t rank)
    : state_(std::move(state)), rank_(rank) {}
ThreadComm::~ThreadComm() = default;

void ThreadComm::connect(const Rendezvous& /*rendezvous*/) {}

CommGroup& ThreadComm::group(const std::vector<int64_t>& ranks, CommChannel channel) {
  for (const auto& group : groups_) {
    if (static_cast<ThreadGroup&>(*group).is(ranks, channel)) return *group;
  }
  groups_.push_back(std::make_unique<ThreadGroup>(state_, ranks, channel, rank_));
  return *groups_.back();
}

std::vector<RecordedCall> ThreadComm::take_calls() { return state_->take_calls(rank_); }

LinkBytes ThreadComm::take_sent() {
  LinkBytes sum;
  for (const RecordedCall& call : take_calls()) sum += call.sent;
  return sum;
}

void ThreadWorld::run(const std::function<void(int64_t rank, ThreadComm& comm)>& rank_main) {
  const auto state = std::make_shared<ThreadWorldState>(options_);
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < options_.world; ++rank) {
    threads.emplace_back([&, rank] {
      // Of this thread only: at::set_num_threads would set it for threads of later tests too.
      at::internal::lazy_init_num_threads();
      omp_set_num_threads(1);
      try {
        ThreadComm comm(state, rank);
        rank_main(rank, comm);
      } catch (...) {
        state->fail(std::current_exception());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  state->check_end();
  if (const std::exception_ptr error = state->failure()) std::rethrow_exception(error);
}

}  // namespace keyseat::test
