// One rank of a test, started by `keyseat launch --program`:
//   cells PLUGIN             runs the conformance cells; says what fails
//   spin PLUGIN              collectives until it is killed
//   disagree PLUGIN HOW      rank 1 makes another call than the others
//   stand_still PLUGIN       rank 1 lives but makes no progress
//   fail PLUGIN              rank 1 throws
//   configuration PLUGIN     rank 1 has another configuration
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/launch_environment.h"
#include "comm/last_words.h"
#include "comm/world.h"
#include "keyseat/registry.h"
#include "tests/comm/cells.h"

namespace keyseat::comm_test {
namespace {

struct Arguments {
  std::string command, plugin, how, token;
  double timeout_seconds = 30;
  int64_t ranks_per_node = 0;
  bool compare = true;
};

std::vector<int64_t> everybody(int64_t world) {
  std::vector<int64_t> ranks(static_cast<size_t>(world));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

int cells(comm::RecordedComm& comm, comm::World& world, int64_t ranks_per_node) {
  Checks checks;
  run_cells(comm, world.rank(), world.size(), ranks_per_node, checks);
  for (const std::string& failure : checks.failures()) fmt::print("FAILED {}\n", failure);
  fmt::print("{} checks, {} failed\n", checks.done(), checks.failures().size());
  return checks.failures().empty() ? 0 : 1;
}

[[noreturn]] void spin(comm::RecordedComm& comm, comm::World& world) {
  CommGroup& group = comm.group(everybody(world.size()), CommChannel::kCompute);
  const auto ranks = static_cast<size_t>(world.size());
  fmt::print("spinning\n");
  std::fflush(stdout);
  for (int64_t round = 0;; ++round) {
    world.activity().set_unit(fmt::format("decoder.layers.{} forward", round % 4));
    at::Tensor sum = at::full({round % 2 == 0 ? 10 : 40000}, 1.0f);
    at::Tensor input = at::full({5000 * world.size()}, 1.0f), output = at::full({5000}, 0.0f);
    auto reduced = group.reduce_scatter(output, input, std::vector<int64_t>(ranks, 5000));
    auto summed = group.all_reduce(sum, ReduceOp::kSum);
    reduced->wait();
    summed->wait();
  }
}

// What rank 1 does differently; the others gather 4 rows each.
void disagree(CommGroup& group, bool odd, const std::string& how, int64_t world) {
  const auto ranks = static_cast<size_t>(world);
  const at::ScalarType type = odd && how == "dtype" ? at::kBFloat16 : at::kFloat;
  const int64_t width = odd && how == "sizes" ? 3 : 2;
  at::Tensor input = at::full({4, width}, 1, type), output = at::full({4 * world, width}, 0, type);
  if (odd && how == "kind") {
    group.all_reduce(output, ReduceOp::kSum)->wait();
  } else {
    group.all_gather(output, input, std::vector<int64_t>(ranks, 4))->wait();
  }
}

// The same calls in another order on two groups of the same ranks.
void disagree_in_order(comm::RecordedComm& comm, bool odd, int64_t world) {
  at::Tensor a = at::full({100}, 1.0f), b = at::full({100}, 1.0f);
  CommGroup& first = comm.group(everybody(world), CommChannel::kCompute);
  CommGroup& second = comm.group(everybody(world), CommChannel::kParameters);
  first.barrier();
  auto x = (odd ? second : first).all_reduce(a, ReduceOp::kSum);
  auto y = (odd ? first : second).all_reduce(b, ReduceOp::kSum);
  x->wait();
  y->wait();
  first.barrier();  // the comparison is not faster than two small calls
  std::this_thread::sleep_for(std::chrono::seconds(1));
  first.barrier();
}

int run(const Arguments& arguments) {
  fmt::print("meeting\n");
  std::fflush(stdout);
  comm::World world(launch_environment(), arguments.timeout_seconds);
  world.agree(
      "configuration",
      {"plugin " + arguments.plugin, "shard = 2",
       arguments.command == "configuration" && world.rank() == 1 ? "expert = 2" : "expert = 1"});
  const int64_t ranks_per_node =
      arguments.ranks_per_node > 0 ? arguments.ranks_per_node : world.size();
  Registry registry(make_plugin_search({}));
  Problems problems;
  const auto plugin = registry.load("comm", arguments.plugin, problems);
  if (plugin == nullptr) throw Error(std::move(problems));
  const Options options = resolve_options(plugin->options(), {}, "test", problems);
  comm::RecordedComm comm(registry.create<Comm>(arguments.plugin, options),
                          {ranks_per_node, arguments.compare, world.monitor(), &world.activity()});
  comm.connect(world.rendezvous(at::kCPU));
  const bool odd = world.rank() == 1;
  if (arguments.command == "cells") return cells(comm, world, ranks_per_node);
  if (arguments.command == "spin") spin(comm, world);
  CommGroup& group = comm.group(everybody(world.size()), CommChannel::kCompute);
  group.barrier();
  world.activity().set_unit("decoder.layers.2 forward");
  if (arguments.command == "stand_still" && odd) {
    std::this_thread::sleep_for(std::chrono::hours(1));
  }
  if (arguments.command == "fail" && odd) {
    throw Error(Problem{Code::kR6Data, {}, "rank 1 cannot read its data", "", ""});
  }
  if (arguments.how == "order") {
    disagree_in_order(comm, odd, world.size());
  } else if (arguments.command == "disagree") {
    disagree(group, odd, arguments.how, world.size());
  }
  group.barrier();
  return 0;
}

int main(int argc, char** argv) {
  CLI::App app{"One rank of a test of communicators"};
  Arguments arguments;
  app.add_option("COMMAND", arguments.command)->required();
  app.add_option("PLUGIN", arguments.plugin)->required();
  app.add_option("HOW", arguments.how);
  app.add_option("--token", arguments.token, "Nothing; tells the processes of a test apart");
  app.add_option("--timeout", arguments.timeout_seconds);
  app.add_option("--ranks-per-node", arguments.ranks_per_node);
  CLI11_PARSE(app, argc, argv);
  at::set_num_threads(1);
  try {
    return run(arguments);
  } catch (const Error& error) {
    return comm::say_last_words(error.problems());
  }
}

}  // namespace
}  // namespace keyseat::comm_test

int main(int argc, char** argv) { return keyseat::comm_test::main(argc, argv); }
