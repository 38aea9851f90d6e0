// keyseat check: conformance passes what is right, and finds and names what is wrong.
#include <doctest/doctest.h>

#include <cstdlib>

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/loader/plugin_files.h"

using namespace keyseat_loader;

namespace {

#define CHECK_CONTAINS(text, part) CHECK_MESSAGE((text).find(part) != std::string::npos, text)

// While it lives, commands run without the leak check of the asan preset: GCC 12's ends with a
// signal of its own in a `check` whose child was killed.
struct WithoutLeakCheck {
  WithoutLeakCheck() { ::setenv("ASAN_OPTIONS", "detect_leaks=0", 1); }
  ~WithoutLeakCheck() { ::unsetenv("ASAN_OPTIONS"); }
  WithoutLeakCheck(const WithoutLeakCheck&) = delete;
};

const std::string kDigits = " --config configs/runs/digits.toml ";

std::string plugin(const std::string& kind_name) {
  return (build_dir() / "plugins" / ("keyseat_" + kind_name + ".so")).string();
}

// Ends with `status` and every case as JSON.
nlohmann::json check(const std::string& arguments, int status) {
  const CommandResult result = run_keyseat("check --json " + arguments);
  CHECK_MESSAGE(result.status == status, result.out, result.err);
  const auto json = nlohmann::json::parse(result.out, nullptr, false);
  REQUIRE_MESSAGE(!json.is_discarded(), result.out);
  return json;
}

std::string failures(const nlohmann::json& report) {
  std::string names;
  for (const auto& one : report["cases"]) {
    if (one["outcome"] == "FAILED") names += one["name"].get<std::string>() + "; ";
  }
  return names;
}

std::string zoo_dispatcher() {
  return (build_dir() / "zoo" / "keyseat_dispatcher_wrong_dispatcher.so").string();
}

// The same with one fault.
std::string wrong(const std::string& fault) {
  return zoo_dispatcher() + kDigits +
         "--set dispatcher.plugin=wrong_dispatcher --set dispatcher.options.fault=" + fault;
}

}  // namespace

TEST_CASE("check: plugins of the tree keep the contracts of their kinds") {
  for (const char* one :
       {"dispatcher_local", "recompute_none", "strategy_single", "comm_self", "optimizer_adamw"}) {
    const auto report = check(plugin(one), 0);
    CHECK_MESSAGE(report["failed"] == 0, one, ": ", failures(report));
    CHECK(report["passed"].get<int>() >= 13);
    CHECK(report["skipped"] == 0);
  }
  const auto data =
      check(plugin("data_webdataset") + kDigits + "--set data.options.micro_batch_size=8", 0);
  CHECK_MESSAGE(data["skipped"] == 0, data.dump(2));
  const auto block = check(plugin("block_qwen3_vl_projector") + kDigits, 0);
  CHECK_MESSAGE(block["skipped"] == 0, block.dump(2));
}

TEST_CASE("check: without --config what needs options is skipped, and says so") {
  const CommandResult text = run_keyseat("check " + plugin("block_qwen3_vl_projector"));
  CHECK(text.status == 0);
  CHECK_CONTAINS(text.out, "skipped  instances: two at once");
  CHECK_CONTAINS(text.out, "it has required options: give --config");
}

TEST_CASE("check: every fault of a dispatcher is found, in the case that is about it") {
  const auto right = check(wrong("none"), 0);
  CHECK_MESSAGE(right["failed"] == 0, failures(right));
  // On one rank, then on two and on four.
  CHECK(right["passed"].get<int>() > 30);
  const std::pair<const char*, const char*> faults[] = {
      {"weights", "layer, forward and backward"},
      {"counts", "layer, forward and backward"},
      {"lost_row", "layer, forward and backward"},
      {"no_backward", "moe_layer: result and all gradients"},
      {"accepts_all", "plan: an index outside of the experts is refused"},
      {"no_sum", "2 ranks, forward and backward: uneven ranks"},
      {"stdout", "output: nothing was written to stdout"},
  };
  for (const auto& [fault, name] : faults) {
    CAPTURE(fault);
    const auto report = check(wrong(fault), 4);
    CHECK(report["ok"] == false);
    CHECK_CONTAINS(failures(report), name);
  }
}

TEST_CASE("check: a crash and a hang end, with the case that they happened in") {
  const WithoutLeakCheck sanitizer_options;
  const auto crash = check(wrong("crash"), 4);
  CHECK_CONTAINS(crash["problems"][0]["text"].get<std::string>(),
                 "R4 dispatcher/wrong_dispatcher ended the process by signal 6 (Aborted) in case "
                 "\"layer, forward and backward");
  CHECK(crash["passed"].get<int>() > 5);
  const auto hang = check("--timeout 15 " + wrong("hang"), 4);
  CHECK_CONTAINS(hang["problems"][0]["text"].get<std::string>(),
                 "R4 dispatcher/wrong_dispatcher did not come to an end in case \"layer");
}

TEST_CASE("check: a configuration that is wrong or about another plugin is refused") {
  const auto other = check(zoo_dispatcher() + kDigits, 2);
  CHECK_CONTAINS(other["problems"][0]["text"].get<std::string>(),
                 "C4 the configuration does not use dispatcher/wrong_dispatcher");
  const auto unknown = check(wrong("nothing_known"), 2);
  CHECK_CONTAINS(unknown["problems"][0]["text"].get<std::string>(), "C3 \"fault\"");
}

TEST_CASE("check: plugins that are damaged anywhere end in an answer") {
  const std::string good = read_bytes(good_file());
  std::mt19937 random(7);
  for (int round = 0; round < 10; ++round) {
    const TemporaryFolder folder;
    std::string bytes = good;
    for (int change = 0; change < 200; ++change) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    const auto file = folder.write("keyseat_recompute_none.so", bytes);
    const CommandResult result = run_keyseat("check --timeout 20 " + file.string());
    CHECK_MESSAGE((result.status == 0 || result.status == 3 || result.status == 4), result.err);
    CHECK((result.status == 0 || !result.err.empty() || !result.out.empty()));
  }
}
