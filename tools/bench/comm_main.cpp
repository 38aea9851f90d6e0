// One rank of tools/bench/comm.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <numeric>

#include "base/launch_environment.h"
#include "comm/last_words.h"
#include "comm/world.h"
#include "keyseat/registry.h"

namespace {

using keyseat::CommGroup;

constexpr int kWarmup = 3, kRounds = 15;
constexpr double kTimeout = 60;

struct Case {
  const char* name;
  std::function<void(CommGroup&)> run;
  double sent_share;  // bytes a rank sends, of the bytes it gives
};

std::vector<Case> cases(int64_t bytes, int64_t ranks) {
  const int64_t rows = bytes / 4 / ranks * ranks;
  const auto world = static_cast<size_t>(ranks);
  const at::Tensor whole = at::ones({rows}), other = at::empty({rows});
  const at::Tensor part = at::ones({rows / ranks}), all = at::empty({rows * ranks});
  const std::vector<int64_t> parts(world, rows / ranks), wholes(world, rows);
  const double share = static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  return {
      {"all_gather", [=](CommGroup& g) { g.all_gather(all, whole, wholes)->wait(); },
       static_cast<double>(ranks - 1)},
      {"reduce_scatter", [=](CommGroup& g) { g.reduce_scatter(part, whole, parts)->wait(); },
       share},
      {"all_to_all", [=](CommGroup& g) { g.all_to_all(other, whole, parts, parts)->wait(); },
       share},
      {"all_reduce", [=](CommGroup& g) { g.all_reduce(other, keyseat::ReduceOp::kMax)->wait(); },
       2 * share},
      {"small all_reduce (256 bytes)",
       [=](CommGroup& g) { g.all_reduce(other.narrow(0, 0, 64), keyseat::ReduceOp::kMax)->wait(); },
       0}};
}

double seconds_of(const Case& one, CommGroup& group) {
  group.barrier();
  const auto begin = std::chrono::steady_clock::now();
  one.run(group);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

void compare(const Case& one, int64_t bytes, CommGroup& shm, CommGroup& gloo, bool prints) {
  std::vector<double> shm_seconds, gloo_seconds;
  for (int round = 0; round < kWarmup + kRounds; ++round) {
    const double a = seconds_of(one, shm), b = seconds_of(one, gloo);
    if (round < kWarmup) continue;
    shm_seconds.push_back(a);
    gloo_seconds.push_back(b);
  }
  if (!prints) return;
  const double a = median(shm_seconds), b = median(gloo_seconds);
  const auto rate = [&](double seconds) {
    return one.sent_share > 0
               ? fmt::format("{:.2f} GB/s",
                             one.sent_share * static_cast<double>(bytes) / seconds / 1e9)
               : fmt::format("{:.0f} us", seconds * 1e6);
  };
  fmt::print("{:30} shm {:>10}   gloo {:>10}   ratio {:.1f}\n", one.name, rate(a), rate(b), b / a);
  std::fflush(stdout);
}

std::shared_ptr<keyseat::Comm> connected(keyseat::Registry& registry, const std::string& name,
                                         const keyseat::comm::World& world) {
  keyseat::Problems problems;
  const auto plugin = registry.load("comm", name, problems);
  if (plugin == nullptr) throw keyseat::Error(std::move(problems));
  const auto options = keyseat::resolve_options(plugin->options(), {}, "default", problems);
  auto comm = registry.create<keyseat::Comm>(name, options);
  comm->connect(world.rendezvous(at::kCPU));
  return comm;
}

int run(int64_t bytes) {
  at::set_num_threads(1);
  keyseat::comm::World world(keyseat::launch_environment(), kTimeout);
  if (world.size() == 1 || bytes < 4096) {
    fmt::print(stderr, "usage: tools/bench/comm [RANKS >= 2] [BYTES >= 4096]\n");
    return 2;
  }
  keyseat::Registry registry(keyseat::make_plugin_search({}));
  const auto shm = connected(registry, "shm", world), gloo = connected(registry, "gloo", world);
  std::vector<int64_t> ranks(static_cast<size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  CommGroup& by_shm = shm->group(ranks);
  CommGroup& by_gloo = gloo->group(ranks);
  if (world.leads()) {
    fmt::print("{} ranks on {} cores, {} bytes per rank, medians of {} interleaved rounds\n",
               world.size(), std::thread::hardware_concurrency(), bytes, kRounds);
  }
  for (const Case& one : cases(bytes, world.size())) {
    compare(one, bytes, by_shm, by_gloo, world.leads());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? std::atoll(argv[1]) : 1 << 24);
  } catch (const keyseat::Error& error) {
    return keyseat::comm::say_last_words(error.problems());
  }
}
