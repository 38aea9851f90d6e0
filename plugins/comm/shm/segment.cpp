#include "segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "keyseat/status.h"

namespace keyseat_comm_shm {

using keyseat::Code;
using keyseat::Error;
using keyseat::Problem;

namespace {

// At the beginning of the memory: the key tells a rank that it has opened the right one.
struct Header {
  alignas(kLine) char key[40];
};

[[noreturn]] void cannot(const std::string& what, int error, const std::string& remedy) {
  throw Error(
      Problem{Code::kR2Communication, {}, "comm/shm: " + what, std::strerror(error), remedy});
}

}  // namespace

char* Ring::write_at(size_t& room) const {
  const uint64_t written = control_->written.load(std::memory_order_relaxed);
  const uint64_t taken = control_->taken.load(std::memory_order_acquire);
  const size_t at = written % bytes_;
  room = std::min<size_t>(bytes_ - (written - taken), bytes_ - at);
  return data_ + at;
}

void Ring::wrote(size_t bytes) const {
  const uint64_t written = control_->written.load(std::memory_order_relaxed);
  control_->written.store(written + bytes, std::memory_order_release);
}

const char* Ring::read_at(size_t& available) const {
  const uint64_t taken = control_->taken.load(std::memory_order_relaxed);
  const uint64_t written = control_->written.load(std::memory_order_acquire);
  const size_t at = taken % bytes_;
  available = std::min<size_t>(written - taken, bytes_ - at);
  return data_ + at;
}

void Ring::took(size_t bytes) const {
  const uint64_t taken = control_->taken.load(std::memory_order_relaxed);
  control_->taken.store(taken + bytes, std::memory_order_release);
}

Segment::Segment(const Shape& shape, int descriptor) : shape_(shape), descriptor_(descriptor) {
  const auto world = static_cast<size_t>(shape.world);
  bytes_ = sizeof(Header) + world * sizeof(Doorbell);
  for (const size_t ring : shape.ring_bytes) bytes_ += world * world * (sizeof(RingControl) + ring);
}

Segment::Segment(Segment&& other) noexcept
    : shape_(other.shape_),
      descriptor_(std::exchange(other.descriptor_, -1)),
      memory_(std::exchange(other.memory_, nullptr)),
      bytes_(other.bytes_) {}

Segment::~Segment() {
  close_descriptor();
  if (memory_ != nullptr) munmap(memory_, bytes_);
}

void Segment::close_descriptor() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

void Segment::map() {
  void* const mapped =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, /*offset=*/0);
  if (mapped == MAP_FAILED) {
    cannot(fmt::format("cannot map {} bytes of shared memory", bytes_), errno,
           "Lower comm.options.ring_bytes.");
  }
  memory_ = static_cast<char*>(mapped);
}

Segment Segment::create(const Shape& shape, std::string& address) {
  // Zero bytes are the state in which everything begins.
  Segment made(shape, memfd_create("keyseat", MFD_CLOEXEC));
  if (made.descriptor_ < 0) cannot("cannot make shared memory", errno, "");
  if (ftruncate(made.descriptor_, static_cast<off_t>(made.bytes_)) != 0) {
    cannot("cannot size shared memory", errno, "");
  }
  // Taken now: a page that is missing later would be a fault that no one can handle.
  const int error = posix_fallocate(made.descriptor_, 0, static_cast<off_t>(made.bytes_));
  if (error != 0) {
    cannot(fmt::format("there are no {} bytes of shared memory", made.bytes_), error,
           "Lower comm.options.ring_bytes, or choose comm/gloo.");
  }
  made.map();
  std::random_device random;
  const std::string key = fmt::format("{:08x}{:08x}{:08x}", random(), random(), random());
  std::memcpy(reinterpret_cast<Header*>(made.memory_)->key, key.c_str(), key.size() + 1);
  address = fmt::format("{} {} {}", getpid(), made.descriptor_, key);
  return made;
}

Segment Segment::open(const Shape& shape, const std::string& address) {
  const size_t first = address.find(' '), second = address.find(' ', first + 1);
  const std::string path = fmt::format("/proc/{}/fd/{}", address.substr(0, first),
                                       address.substr(first + 1, second - first - 1));
  const char* const same_host =
      "comm/shm serves ranks of one host that see one another's processes; choose comm/gloo";
  Segment opened(shape, ::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (opened.descriptor_ < 0) cannot("cannot open " + path, errno, same_host);
  if (lseek(opened.descriptor_, 0, SEEK_END) != static_cast<off_t>(opened.bytes_)) {
    cannot(path + " is not the memory of this run", EINVAL, same_host);
  }
  opened.map();
  if (address.substr(second + 1) != reinterpret_cast<Header*>(opened.memory_)->key) {
    cannot(path + " is not the memory of this run", EINVAL, same_host);
  }
  opened.close_descriptor();
  return opened;
}

Doorbell& Segment::doorbell(int64_t rank) const {
  return reinterpret_cast<Doorbell*>(memory_ + sizeof(Header))[rank];
}

Ring Segment::ring(int64_t from, int64_t to, Lane lane) const {
  const auto world = static_cast<size_t>(shape_.world);
  char* at = memory_ + sizeof(Header) + world * sizeof(Doorbell);
  for (int before = 0; before < lane; ++before) {
    at += world * world * (sizeof(RingControl) + shape_.ring_bytes[before]);
  }
  const size_t bytes = shape_.ring_bytes[lane];
  at += static_cast<size_t>(from * shape_.world + to) * (sizeof(RingControl) + bytes);
  return {reinterpret_cast<RingControl*>(at), at + sizeof(RingControl), bytes};
}

}  // namespace keyseat_comm_shm
