#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>

#include <mutex>

#include "keyseat/registry.h"
#include "tests/dispatchers/layer.h"

namespace keyseat::test {
namespace {

at::Tensor nowhere(int64_t rows, int64_t top_k) { return at::full({rows, top_k}, -1, at::kLong); }

}  // namespace

Mesh DispatcherLayout::mesh(int64_t rank) const {
  Problems problems;
  MeshDegrees degrees;
  degrees.shard = world();
  degrees.expert = expert;
  degrees.expert_tensor = expert_tensor;
  Mesh mesh =
      Mesh::build(degrees, world(), rank, ranks_per_node > 0 ? ranks_per_node : world(), problems);
  if (!problems.empty()) throw Error(problems);
  return mesh;
}

at::Tensor random_choices(int64_t tokens, int64_t top_k, int64_t experts, uint64_t seed) {
  return at::rand({tokens, experts}, at::detail::createCPUGenerator(seed), at::kFloat)
      .argsort(1, /*descending=*/false)
      .narrow(1, 0, top_k)
      .contiguous();
}

std::vector<DispatcherCase> dispatcher_cases(int64_t world, int64_t experts, int64_t top_k) {
  const std::vector<std::string> names = {"equal T",
                                          "unequal T",
                                          "a rank with one token",
                                          "empty ranks",
                                          "a rank without rows for its experts",
                                          "one expert",
                                          "padding"};
  std::vector<DispatcherCase> cases;
  for (size_t situation = 0; situation < names.size(); ++situation) {
    DispatcherCase test{.name = names[situation], .experts = experts};
    for (int64_t rank = 0; rank < world; ++rank) {
      const auto seed = static_cast<uint64_t>(100 * (situation + 1)) + static_cast<uint64_t>(rank);
      int64_t tokens = 9;
      if (situation == 1) tokens = 5 + 2 * rank;
      if (situation == 2 && rank == world - 1) tokens = 1;
      if (situation == 3) tokens = rank % 2 == 0 ? 0 : 4;
      at::Tensor index = random_choices(tokens, top_k, experts, seed);
      if (situation == 4) index = random_choices(tokens, top_k, experts - experts / world, seed);
      if (situation == 5) index = at::full({tokens, 1}, experts - 1, at::kLong);
      test.real.push_back(tokens);
      // Half of the first rank's rows, and two of the others'.
      if (situation == 6) {
        index = at::cat({index, nowhere(rank == 0 ? tokens : 2, index.size(1))});
      }
      test.index.push_back(index);
    }
    cases.push_back(std::move(test));
  }
  return cases;
}

MakeDispatcher plugin_dispatcher(const std::string& name,
                                 const std::map<std::string, OptionValue>& options) {
  // One registry: a library is loaded once per process.
  static Registry registry(make_plugin_search({}));
  Problems problems;
  const auto plugin = registry.load("dispatcher", name, problems);
  if (plugin == nullptr) throw Error(problems);
  const Options resolved = resolve_options(plugin->options(), options, "test", problems);
  if (!problems.empty()) throw Error(problems);
  return [name, resolved] {
    static std::mutex mutex;  // ranks are threads
    const std::lock_guard<std::mutex> lock(mutex);
    return registry.create<Dispatcher>(name, resolved);
  };
}

}  // namespace keyseat::test
