#include "engine.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace keyseat_comm_shm {
namespace {

constexpr size_t kPiece = 65536;  // bytes moved before the other end is told
constexpr auto kSpin = std::chrono::microseconds(50);

using Clock = std::chrono::steady_clock;

// What a stream takes in its ring.
size_t padded(size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

}  // namespace

Engine::Engine(Segment segment, int64_t rank, int64_t world)
    : segment_(std::move(segment)),
      rank_(rank),
      world_(world),
      spins_(std::thread::hardware_concurrency() >= static_cast<unsigned>(world)) {
  for (int lane = 0; lane < kLanes; ++lane) {
    links_[lane].resize(static_cast<size_t>(world));
    for (int64_t peer = 0; peer < world; ++peer) {
      Link& made = links_[lane][static_cast<size_t>(peer)];
      made.out = segment_.ring(rank, peer, static_cast<Lane>(lane));
      made.in = segment_.ring(peer, rank, static_cast<Lane>(lane));
    }
  }
}

void Engine::send(int64_t to, Lane lane, const void* data, size_t bytes,
                  const OperationPointer& operation, bool after_reduction) {
  if (bytes == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  ++operation->streams;
  link(to, lane).outgoing.push_back(
      {static_cast<const char*>(data), bytes, 0, operation, after_reduction});
}

void Engine::receive(int64_t from, Lane lane, void* data, size_t bytes,
                     const OperationPointer& operation) {
  if (bytes == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  ++operation->streams;
  link(from, lane).incoming.push_back({static_cast<char*>(data), bytes, 0, operation, nullptr});
}

void Engine::receive_reduced(Reduction reduction) {
  if (reduction.bytes == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto shared = std::make_shared<Reduction>(std::move(reduction));
  shared->operation->reduced = false;
  for (const int64_t source : shared->sources) {
    if (source == rank_) continue;
    ++shared->operation->streams;
    link(source, kCollectives)
        .incoming.push_back({nullptr, shared->bytes, 0, shared->operation, shared});
  }
}

void Engine::progress() {
  const std::lock_guard<std::mutex> lock(mutex_);
  while (move_once()) {
  }
}

bool Engine::wait_for(const Operation& operation, double seconds) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    const uint32_t seen = segment_.doorbell(rank_).rings.load();
    progress();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (operation.done()) return true;
    }
    const double left = std::chrono::duration<double>(end - Clock::now()).count();
    if (left <= 0) return false;
    sleep(seen, left);
  }
}

bool Engine::move_once() {
  bool moved = false;
  for (auto& lane : links_) {
    for (int64_t peer = 0; peer < world_; ++peer) {
      if (peer == rank_) continue;
      Link& one = lane[static_cast<size_t>(peer)];
      if (!one.outgoing.empty()) moved |= move_out(peer, one);
      if (!one.incoming.empty()) moved |= move_in(peer, one);
    }
  }
  return moved;
}

// The end of a stream is filled up to a whole line, so that elements of the next are aligned.
bool Engine::move_out(int64_t peer, Link& link) {
  Outgoing& stream = link.outgoing.front();
  if (stream.after_reduction && !stream.operation->reduced) return false;
  size_t room = 0;
  char* const at = link.out.write_at(room);
  const size_t left = padded(stream.bytes) - stream.done;
  const size_t now = std::min({room, left, kPiece});
  if (now == 0) return false;
  std::memcpy(at, stream.data + stream.done, std::min(now, stream.bytes - stream.done));
  link.out.wrote(now);
  stream.done += now;
  ring_bell(peer);
  if (now == left) {
    --stream.operation->streams;
    link.outgoing.pop_front();
  }
  return true;
}

bool Engine::move_in(int64_t peer, Link& link) {
  Incoming& stream = link.incoming.front();
  if (stream.reduction != nullptr) {
    const std::shared_ptr<Reduction> reduction = stream.reduction;  // the stream may end
    return reduce(*reduction);
  }
  size_t available = 0;
  const char* const at = link.in.read_at(available);
  const size_t left = padded(stream.bytes) - stream.done;
  const size_t now = std::min({available, left, kPiece});
  if (now == 0) return false;
  std::memcpy(stream.data + stream.done, at, std::min(now, stream.bytes - stream.done));
  link.in.took(now);
  stream.done += now;
  ring_bell(peer);
  if (now == left) {
    --stream.operation->streams;
    link.incoming.pop_front();
  }
  return true;
}

// As much as has come from all sources.
bool Engine::reduce(Reduction& reduction) {
  const size_t left = padded(reduction.bytes) - reduction.done;
  size_t now = std::min(left, kReduceBytes);
  std::vector<const char*> inputs;
  for (const int64_t source : reduction.sources) {
    if (source == rank_) {
      inputs.push_back(reduction.own + reduction.done);
      continue;
    }
    Link& from = link(source, kCollectives);
    if (from.incoming.front().reduction.get() != &reduction) return false;  // not yet at the front
    size_t available = 0;
    inputs.push_back(from.in.read_at(available));
    now = std::min(now, available);
  }
  if (now == 0) return false;
  const size_t real = std::min(now, reduction.bytes - reduction.done);
  reduction.function(reduction.output + reduction.done, inputs, real);
  reduction.done += now;
  for (const int64_t source : reduction.sources) {
    if (source == rank_) continue;
    Link& from = link(source, kCollectives);
    from.in.took(now);
    ring_bell(source);
    if (now == left) {
      --reduction.operation->streams;
      from.incoming.pop_front();
    }
  }
  if (now == left) reduction.operation->reduced = true;
  return true;
}

void Engine::ring_bell(int64_t rank) {
  Doorbell& bell = segment_.doorbell(rank);
  bell.rings.fetch_add(1);
  if (bell.waiting.load() == 0) return;
  syscall(SYS_futex, &bell.rings, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

// Until the doorbell has been rung since it was `seen`.
void Engine::sleep(uint32_t seen, double seconds) {
  Doorbell& bell = segment_.doorbell(rank_);
  if (spins_) {
    const auto end = Clock::now() + kSpin;
    while (bell.rings.load(std::memory_order_relaxed) == seen && Clock::now() < end) {
    }
  }
  bell.waiting.store(1);
  timespec time{};
  time.tv_sec = static_cast<time_t>(seconds);
  time.tv_nsec = static_cast<long>((seconds - static_cast<double>(time.tv_sec)) * 1e9);
  syscall(SYS_futex, &bell.rings, FUTEX_WAIT, seen, &time, nullptr, 0);
  bell.waiting.store(0);
}

}  // namespace keyseat_comm_shm
