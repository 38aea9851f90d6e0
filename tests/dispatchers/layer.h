// Test support: one mixture-of-experts exchange on thread ranks, against one process that holds
// every expert and moves no row. Legend: T tokens, K choices, H hidden, E experts, I expert width.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "keyseat/interfaces/dispatcher.h"
#include "keyseat/mesh.h"
#include "tests/ranks/thread_comm.h"

namespace keyseat::test {

// Every rank has an instance of its own, as every process has.
using MakeDispatcher = std::function<std::shared_ptr<Dispatcher>()>;

struct DispatcherLayout {
  std::string name;
  int64_t expert = 2, expert_tensor = 1;
  int64_t expert_data = 1;     // dispatch groups side by side
  int64_t ranks_per_node = 0;  // 0: one node
  int64_t world() const { return expert * expert_tensor * expert_data; }
  int64_t group_size() const { return expert * expert_tensor; }
  Mesh mesh(int64_t rank) const;
};

// What the routers chose; the rest is made from it.
struct DispatcherCase {
  std::string name;
  int64_t experts = 8;
  std::vector<at::Tensor> index = {};  // per rank: i64 [T, K]
  std::vector<int64_t> real =
      {};  // per rank: rows of real tokens; the rest is padding, full of NaN
  int64_t hidden = 6;
  at::ScalarType dtype = at::kFloat;
  int64_t capacity = 0;
};

// T random tokens of K different experts each.
at::Tensor random_choices(int64_t tokens, int64_t top_k, int64_t experts, uint64_t seed);
// A case of `world` ranks for each situation that dispatchers got wrong somewhere.
std::vector<DispatcherCase> dispatcher_cases(int64_t world, int64_t experts, int64_t top_k);

struct DispatcherLimits {
  double error = 1e-5;  // relative L2
  bool traffic = true;  // measured bytes must be those that traffic() predicts
  bool results = true;  // compared; not where rows may be dropped
  double timeout_seconds = 30;
};

// Everything that is wrong with plan, dispatch, experts, combine and their backward on this layout;
// empty where nothing is. An Error of the run is one more line.
std::vector<std::string> dispatcher_differences(const DispatcherCase& test,
                                                const DispatcherLayout& layout,
                                                const MakeDispatcher& make,
                                                const DispatcherLimits& limits = {});

// dispatcher/NAME through the registry, with these options.
MakeDispatcher plugin_dispatcher(const std::string& name,
                                 const std::map<std::string, OptionValue>& options = {});

}  // namespace keyseat::test
