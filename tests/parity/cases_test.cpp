// Every recorded folder passes, with both kernels and both spellings, and nothing is left out.
#include "nn/kernels/targets.h"
#include "tests/parity/command.h"

using namespace keyseat_parity;

namespace {

void check_passes(const Outcome& outcome) {
  CHECK(outcome.failed() == std::vector<std::string>{});
  REQUIRE(outcome.report.is_object());
  CHECK(outcome.report.at("not_compared") == json::array());
  CHECK(outcome.report.at("pass") == true);
  CHECK(outcome.status == 0);
}

void check_covers_outputs(const Outcome& outcome, const fs::path& folder) {
  const auto outputs =
      keyseat::SafetensorsReader::open((folder / "outputs.safetensors").string()).value_or_throw();
  for (const std::string& name : outputs.names())
    CHECK_MESSAGE(outcome.checks.contains(name), name);
  const json results = json::parse(std::ifstream(folder / "results.json"));
  for (const auto& [name, sums] : results.at("parameters_after_steps").items()) {
    CHECK(outcome.checks.contains("model.safetensors: sum of " + name));
    CHECK(outcome.checks.contains("results.parameters_after_steps." + name + ".delta_abs_sum"));
  }
}

}  // namespace

TEST_CASE("parity: every case passes with the kernels of training") {
  for (const char* name : kCases) {
    CAPTURE(name);
    const Outcome outcome = run_parity(kReference / name);
    check_passes(outcome);
    check_covers_outputs(outcome, kReference / name);
    CHECK(outcome.report.at("case") == name);
    CHECK(outcome.report.at("kernels") == "fast");
    CHECK(outcome.passed("config.published.json against config.json"));
  }
}

// The spellings are also compared option by option in every run above.
TEST_CASE("parity: every case passes with the naive kernels and in the published spelling") {
  for (const char* name : kCases) {
    CAPTURE(name);
    const Outcome outcome =
        run_parity(kReference / name, {"--kernels", "naive", "--config", "config.published.json"});
    check_passes(outcome);
    CHECK(outcome.report.at("kernels") == "naive");
    CHECK(outcome.passed("config.json against config.published.json"));
  }
}

TEST_CASE("parity: every instruction set of this CPU, forced by run.cpu_target") {
  for (const auto& target : keyseat::nn::kernels::supported_targets()) {
    CAPTURE(target.name);
    check_passes(
        run_parity(kReference / "qwen3_vl_moe", {"--set", "run.cpu_target=" + target.name}));
  }
  CHECK(run_parity(kReference / "qwen3_vl_moe", {"--set", "run.cpu_target=no_such"}).status == 2);
}

TEST_CASE("parity: --set is not ignored") {
  const Outcome outcome = run_parity(kReference / "qwen3_moe", {"--set", "loss.aux.weight=0.5"});
  CHECK(outcome.status == 1);
  CHECK_FALSE(outcome.passed("loss"));
  CHECK(outcome.passed("ce_loss"));
}

TEST_CASE("parity: images, sizes and texts") {
  check_passes(run_parity("tests/fixtures/images"));
  check_passes(run_parity("tests/fixtures/smart_resize.csv"));
  check_passes(run_parity("tests/fixtures"));  // a folder that holds the file
  const Outcome tokenizer = run_parity("tests/fixtures/tokenizer");
  CHECK(tokenizer.status == 0);
  CHECK(tokenizer.failed() == std::vector<std::string>{});
  REQUIRE(tokenizer.report.at("not_compared").size() == 1);
  CHECK(tokenizer.report.at("not_compared").at(0).at("name") == "qwen_vocab_cases.jsonl");
}

TEST_CASE("parity: a folder without a recording is refused") {
  CHECK(run_parity("tests/rules").status == 4);
  CHECK(run_parity("tests/fixtures/reference").status == 4);
}
