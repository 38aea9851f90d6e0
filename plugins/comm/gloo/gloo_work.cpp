#include "gloo_work.h"

namespace keyseat_comm_gloo {
namespace {

// Set once, from a thread of Gloo or of ours.
struct Signal {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr error;

  void set(std::exception_ptr failure = nullptr) {
    const std::lock_guard<std::mutex> lock(mutex);
    done = true;
    error = std::move(failure);
    changed.notify_all();
  }
  // Throws what went wrong.
  bool wait_for(double seconds) {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return done; });
    if (error != nullptr) std::rethrow_exception(error);
    return done;
  }
};

class CollectiveWork final : public keyseat::Work {
 public:
  CollectiveWork(c10::intrusive_ptr<c10d::Work> work, std::function<void()> finish,
                 std::vector<at::Tensor> held)
      : work_(std::move(work)), finish_(std::move(finish)), held_(std::move(held)) {
    const auto signal = signal_;
    work_->getFuture()->addCallback([signal](c10::ivalue::Future&) { signal->set(); });
  }

  bool wait_for(double seconds) override {
    if (done_) return true;
    if (!signal_->wait_for(seconds)) return false;
    work_->wait();  // its state follows the signal at once; throws what went wrong
    if (finish_) finish_();
    done_ = true;
    return true;
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::function<void()> finish_;
  std::vector<at::Tensor> held_;
  std::shared_ptr<Signal> signal_ = std::make_shared<Signal>();
  bool done_ = false;
};

class MessageWork final : public keyseat::Work {
 public:
  MessageWork(c10::intrusive_ptr<c10d::Work> work, at::Tensor held) {
    // Detached: it ends with the message, or with the process.
    std::thread([signal = signal_, work = std::move(work), held = std::move(held)] {
      try {
        work->wait();
        signal->set();
      } catch (...) {
        signal->set(std::current_exception());
      }
    }).detach();
  }
  bool wait_for(double seconds) override { return signal_->wait_for(seconds); }

 private:
  std::shared_ptr<Signal> signal_ = std::make_shared<Signal>();
};

}  // namespace

std::unique_ptr<keyseat::Work> make_work(c10::intrusive_ptr<c10d::Work> work,
                                         std::function<void()> finish,
                                         std::vector<at::Tensor> held) {
  return std::make_unique<CollectiveWork>(std::move(work), std::move(finish), std::move(held));
}

std::unique_ptr<keyseat::Work> make_message_work(c10::intrusive_ptr<c10d::Work> work,
                                                 at::Tensor held) {
  return std::make_unique<MessageWork>(std::move(work), std::move(held));
}

}  // namespace keyseat_comm_gloo
