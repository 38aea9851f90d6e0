#include "comm/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/sha256.h"
#include "comm/last_words.h"
#include "comm/meeting_guard.h"
#include "comm/monitor.h"

namespace keyseat::comm {
namespace {

constexpr size_t kMostDiffering = 8;  // differing lines that are shown
// Beyond the time-out, a rank that hears nothing at all waits this share of it longer, so that one
// that was told says why.
constexpr double kGuardShare = 0.15;
constexpr double kShortestWait = 0.001;  // seconds

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

std::vector<uint8_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }

Problem unreachable(const LaunchEnvironment& environment, const std::string& why) {
  return {Code::kR2Communication,
          {},
          fmt::format("rank {} of {} cannot meet the others at {} port {}", environment.rank,
                      environment.world, environment.master_host, environment.master_port),
          why,
          "Set MASTER_ADDR to the host of rank 0 and MASTER_PORT to a free port "
          "there; see that nothing else listens on it."};
}

Error cannot_meet(const LaunchEnvironment& environment, const std::string& why) {
  if (environment.rank != 0) note_lost_peer();
  return Error(unreachable(environment, why));
}

c10::intrusive_ptr<c10d::Store> open_store(const LaunchEnvironment& environment, double timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(environment.master_port);
  options.isServer = environment.rank == 0 && !environment.store_elsewhere;
  options.waitWorkers = false;
  options.timeout = milliseconds(timeout);
  if (options.isServer && environment.master_socket >= 0) {
    options.masterListenFd = static_cast<size_t>(environment.master_socket);
  }
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(environment.master_host, options);
    return c10::make_intrusive<c10d::PrefixStore>("keyseat" + environment.attempt,
                                                  std::move(store));
  } catch (const c10::Error& error) {
    throw cannot_meet(environment, error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw cannot_meet(environment, error.what());
  }
}

}  // namespace

World::World(const LaunchEnvironment& environment, double timeout_seconds)
    : environment_(environment), timeout_seconds_(timeout_seconds) {
  if (environment_.world == 1) return;
  catch_terminate();
  const MeetingGuard guard(
      (1 + kGuardShare) * timeout_seconds,
      unreachable(environment_, fmt::format("rank 0 gave no answer for {} s: "
                                            "it is stopped, or its host is gone",
                                            timeout_seconds)));
  const Clock::time_point end = deadline();
  store_ = open_store(environment_, timeout_seconds);
  store_->set(fmt::format("joined/{}", rank()), bytes("1"));
  for (int64_t other = 0; other < size(); ++other) {
    wait_for(fmt::format("joined/{}", other), "joined", end);
  }
  const auto publish = [&](const MonitorAddress& address) {
    store_->set("monitor", bytes(fmt::format("{} {}", address.port, address.key)));
  };
  const auto look_up = [&] {
    const std::string text = wait_for("monitor", "joined", end);
    const size_t space = text.find(' ');
    return MonitorAddress{std::atoi(text.c_str()), text.substr(space + 1)};
  };
  try {
    monitor_ = std::make_unique<Monitor>(
        MonitorSettings{rank(), size(), timeout_seconds, environment_.master_host}, publish,
        look_up);
  } catch (const Error&) {
    if (rank() != 0) note_lost_peer();  // rank 0 was there, and cannot be reached
    throw;
  }
}

World::~World() = default;

World::Clock::time_point World::deadline() const {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(
                            std::chrono::duration<double>(timeout_seconds_));
}

Activity& World::activity() { return monitor_ != nullptr ? monitor_->activity() : alone_; }

Rendezvous World::rendezvous(at::Device device) const {
  Rendezvous rendezvous;
  rendezvous.rank = environment_.rank;
  rendezvous.world = environment_.world;
  rendezvous.local_rank = environment_.local_rank;
  rendezvous.local_world = environment_.local_world;
  rendezvous.hosts = environment_.hosts;
  rendezvous.host = environment_.master_host;
  rendezvous.port = environment_.master_port;
  rendezvous.timeout_seconds = timeout_seconds_;
  rendezvous.device = device;
  rendezvous.store = store_.get();
  return rendezvous;
}

std::vector<int64_t> World::missing(const std::string& key) const {
  std::vector<int64_t> ranks;
  for (int64_t rank = 0; rank < size(); ++rank) {
    if (!store_->check({fmt::format("{}/{}", key, rank)})) ranks.push_back(rank);
  }
  return ranks;
}

// The value of a key that another rank sets; `what` is the family of keys that every rank sets.
std::string World::wait_for(const std::string& key, const std::string& what,
                            Clock::time_point end) {
  std::string why;
  try {
    const double left = std::chrono::duration<double>(end - Clock::now()).count();
    store_->wait({key}, milliseconds(std::max(left, kShortestWait)));
    const std::vector<uint8_t> value = store_->get(key);
    return {value.begin(), value.end()};
  } catch (const c10::Error& error) {
    why = error.what_without_backtrace();
  }
  if (monitor_ != nullptr) monitor_->check();
  std::vector<int64_t> ranks;
  try {
    ranks = missing(what);
  } catch (const c10::Error&) {
    throw cannot_meet(environment_, why);  // rank 0 is gone
  }
  note_lost_peer();
  throw Error(Problem{Code::kR2Communication,
                      {},
                      fmt::format("ranks [{}] of {} did not come within {} s",
                                  fmt::join(ranks, ", "), size(), timeout_seconds_),
                      "every rank of the job has to start",
                      "Look at their output; run.timeout_s is how long the others wait."});
}

void World::agree(const std::string& what, const std::vector<std::string>& lines) {
  if (size() == 1) return;
  const Clock::time_point end = deadline();
  const std::string text = fmt::format("{}", fmt::join(lines, "\n"));
  store_->set(fmt::format("{}.text/{}", what, rank()), bytes(text));
  store_->set(fmt::format("{}/{}", what, rank()), bytes(sha256_hex(text)));
  const std::string first = wait_for(what + "/0", what, end);
  for (int64_t other = 1; other < size(); ++other) {
    if (wait_for(fmt::format("{}/{}", what, other), what, end) == first) continue;
    const auto lines_of = [&](int64_t rank) {
      std::istringstream stream(wait_for(fmt::format("{}.text/{}", what, rank), what, end));
      std::vector<std::string> found;
      for (std::string line; std::getline(stream, line);) found.push_back(line);
      return found;
    };
    throw Error(Problem{Code::kC5RanksDisagree,
                        {},
                        fmt::format("ranks 0 and {} do not run the same {}:\n{}", other, what,
                                    difference("rank 0", lines_of(0), fmt::format("rank {}", other),
                                               lines_of(other))),
                        "all ranks of a run need the same plugin files and options",
                        "Give every rank the same files, --set and environment."});
  }
}

std::string difference(const std::string& name_a, const std::vector<std::string>& a,
                       const std::string& name_b, const std::vector<std::string>& b) {
  const auto only_in = [](const std::vector<std::string>& lines,
                          const std::vector<std::string>& others) {
    std::vector<std::string> found;
    for (const std::string& line : lines) {
      if (std::find(others.begin(), others.end(), line) == others.end()) found.push_back(line);
    }
    return found;
  };
  std::string text;
  const auto show = [&](const std::string& name, const std::vector<std::string>& lines) {
    for (size_t i = 0; i < lines.size(); ++i) {
      if (i == kMostDiffering) {
        text += fmt::format("  {}: ... and {} more\n", name, lines.size() - i);
        break;
      }
      text += fmt::format("  {}: {}\n", name, lines[i]);
    }
  };
  show(name_a, only_in(a, b));
  show(name_b, only_in(b, a));
  if (!text.empty()) text.pop_back();
  return text;
}

}  // namespace keyseat::comm
