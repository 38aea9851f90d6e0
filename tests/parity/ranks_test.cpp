// The recorded models on several ranks: rows are dealt out to them, some get none, and what is
// compared are losses, gradients, norms and steps.
#include "tests/parity/command.h"

using namespace keyseat_parity;

namespace {

struct RankLayout {
  int ranks, expert;
  const char* dispatcher;
};

std::vector<std::string> sets_of(const RankLayout& layout) {
  return {"--set", "strategy.plugin=fsdp",
          "--set", "strategy.options.shard=" + std::to_string(layout.ranks),
          "--set", "strategy.options.expert=" + std::to_string(layout.expert),
          "--set", std::string("dispatcher.plugin=") + layout.dispatcher,
          "--set", "run.timeout_s=60"};
}

// Layouts of strategy/three_d: degrees by the names of their options.
std::vector<std::string> sets_of(const std::map<std::string, std::string>& options,
                                 const char* dispatcher) {
  std::vector<std::string> sets = {"--set", "strategy.plugin=three_d",
                                   "--set", std::string("dispatcher.plugin=") + dispatcher,
                                   "--set", "run.timeout_s=60"};
  for (const auto& [option, value] : options) {
    sets.push_back("--set");
    sets.push_back("strategy.options." + option + "=" + value);
  }
  return sets;
}

void check_outcome(const char* name, const std::vector<std::string>& sets, int ranks) {
  CAPTURE(name);
  CAPTURE(sets);
  CAPTURE(ranks);
  const Outcome outcome = run_parity(kReference / name, sets, ranks);
  for (const std::string& failed : outcome.failed()) FAIL_CHECK(outcome.checks.at(failed).dump());
  CHECK(outcome.status == 0);
  CHECK(outcome.checks.size() > 40);
  CHECK(outcome.passed("loss"));
  CHECK(outcome.passed("results.steps.2.grad_norm"));
}

void check_case(const char* name, const RankLayout& layout) {
  check_outcome(name, sets_of(layout), layout.ranks);
}

}  // namespace

TEST_CASE("parity on ranks: every recorded model on two ranks, by every dispatcher in turn") {
  const char* const dispatchers[] = {"allgather", "alltoall", "hybrid_ep"};
  int turn = 0;
  for (const char* name : kCases) {
    const bool dense = std::string(name) == "qwen3_vl_dense";
    check_case(name, dense ? RankLayout{2, 1, "local"} : RankLayout{2, 2, dispatchers[turn++ % 3]});
  }
}

TEST_CASE("parity on ranks: four ranks, more than there are rows") {
  for (const char* dispatcher : {"allgather", "alltoall", "hybrid_ep"})
    check_case("qwen3_moe", {4, 4, dispatcher});
  check_case("qwen3_vl_moe_mixed", {4, 2, "hybrid_ep"});
}

TEST_CASE("parity on ranks: tensor, context, pipeline and experts of three_d") {
  struct Layout {
    int ranks;
    std::map<std::string, std::string> options;
  };
  const Layout tensor{2, {{"tensor", "2"}}};
  const Layout tensor_experts{2, {{"tensor", "2"}, {"expert", "2"}}};
  const Layout ring{2, {{"context", "2"}, {"context_method", "ring"}, {"expert", "2"}}};
  const Layout slices{4, {{"tensor", "2"}, {"expert", "2"}, {"expert_tensor", "2"}}};
  const Layout all{8, {{"pipeline", "2"}, {"tensor", "2"}, {"context", "2"}, {"expert", "4"}}};
  const Layout pipeline{2, {{"pipeline", "2"}}};
  check_outcome("qwen3_vl_dense", sets_of(tensor.options, "local"), tensor.ranks);
  check_outcome("qwen3_vl_dense",
                sets_of({{"tensor", "2"}, {"sequence_parallel", "false"}}, "local"), 2);
  check_outcome("qwen3_vl_moe", sets_of(tensor.options, "local"), tensor.ranks);
  check_outcome("qwen3_vl_moe", sets_of(tensor_experts.options, "alltoall"), tensor_experts.ranks);
  check_outcome("qwen3_vl_moe", sets_of(slices.options, "allgather"), slices.ranks);
  check_outcome("qwen3_vl_moe_mixed", sets_of(ring.options, "hybrid_ep"), ring.ranks);
  check_outcome("qwen3_vl_moe", sets_of(all.options, "hybrid_ep"), all.ranks);
  check_outcome("qwen3_vl_moe_video", sets_of(pipeline.options, "local"), pipeline.ranks);
  check_outcome("qwen3_vl_moe_video", sets_of(ring.options, "alltoall"), ring.ranks);
  check_outcome("qwen3_moe", sets_of(slices.options, "hybrid_ep"), slices.ranks);
  check_outcome("qwen3_moe_sparse_step", sets_of(all.options, "alltoall"), all.ranks);
}

TEST_CASE("parity on ranks: a layout that does not divide ends with C4 and its rule") {
  const auto bin = fs::canonical("/proc/self/exe").parent_path() / "keyseat";
  const std::string command = quoted(bin) + " launch -n 2 -- parity " +
                              quoted(kReference / "qwen3_vl_moe") +
                              " --set strategy.plugin=fsdp --set strategy.options.expert=3 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  char buffer[4096];
  for (size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  const int status = pclose(pipe);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 2);
  CHECK_MESSAGE(text.find("C4 ") != std::string::npos, text);
  CHECK_MESSAGE(text.find("expert 3 does not divide the 2 ranks") != std::string::npos, text);
}
