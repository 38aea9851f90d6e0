// The shared memory of all ranks: a ring of bytes per ordered pair of ranks and lane, and a
// doorbell per rank.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace keyseat_comm_shm {

// Streams of a lane keep their order; those of different lanes do not wait for one another.
enum Lane { kCollectives = 0, kMessages = 1 };
inline constexpr int kLanes = 2;
inline constexpr size_t kLine = 64;  // bytes: streams begin at multiples of it, counters lie apart

// Bytes from one rank to another. Only the sender writes `written`, only the receiver `taken`.
struct RingControl {
  alignas(kLine) std::atomic<uint64_t> written;
  alignas(kLine) std::atomic<uint64_t> taken;
};

struct Doorbell {
  alignas(kLine) std::atomic<uint32_t> rings;  // counts; a futex
  std::atomic<uint32_t> waiting;               // the rank sleeps on it
};

// One end's view of a ring.
class Ring {
 public:
  Ring() = default;
  Ring(RingControl* control, char* data, size_t bytes)
      : control_(control), data_(data), bytes_(bytes) {}
  // Sender: where to write next and how much fits in one piece.
  char* write_at(size_t& room) const;
  void wrote(size_t bytes) const;
  // Receiver: what can be read in one piece.
  const char* read_at(size_t& available) const;
  void took(size_t bytes) const;
  size_t bytes() const { return bytes_; }

 private:
  RingControl* control_ = nullptr;
  char* data_ = nullptr;
  size_t bytes_ = 0;
};

// Maps the memory. It has no name: the first rank makes it, the others open it through that
// process, and it is gone with the last of them, however they end.
class Segment {
 public:
  struct Shape {
    int64_t world = 1;
    size_t ring_bytes[kLanes] = {0, 0};
  };
  // What the other ranks need to open it: "PID DESCRIPTOR KEY".
  static Segment create(const Shape& shape, std::string& address);
  static Segment open(const Shape& shape, const std::string& address);  // Error (R2)
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&&) = delete;
  ~Segment();

  Ring ring(int64_t from, int64_t to, Lane lane) const;
  Doorbell& doorbell(int64_t rank) const;
  void close_descriptor();  // once all ranks have it

 private:
  Segment(const Shape& shape, int descriptor);
  void map();
  Shape shape_;
  int descriptor_ = -1;
  char* memory_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace keyseat_comm_shm
