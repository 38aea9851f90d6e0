// Runs of strategy/three_d whose ranks share rows and cut parameters: they are evaluated, gone on
// from and started from weights as one process is.
#include <doctest/doctest.h>

#include "tests/runs/run_command.h"

using namespace keyseat_runs;

namespace {

const std::vector<std::string> kConstant{"--set", "optimizer.schedule.kind=constant"};

// Eight samples a step, in one micro-batch.
std::vector<std::string> on_one_process(std::vector<std::string> command,
                                        const std::vector<std::string>& more) {
  return joined(joined(std::move(command), {"--set", "data.options.micro_batch_size=8"}), more);
}

// The same on four ranks of one data rank.
std::vector<std::string> on_four_ranks(const std::vector<std::string>& command,
                                       const std::vector<std::string>& degrees,
                                       const std::vector<std::string>& more) {
  std::vector<std::string> arguments = on_one_process(
      command, {"--set", "strategy.plugin=three_d", "--set", "strategy.options.row_tokens=256",
                "--set", "strategy.options.row_patches=128", "--set", "dispatcher.plugin=alltoall",
                "--set", "run.timeout_s=30"});
  for (const std::string& degree : degrees)
    arguments.insert(arguments.end(), {"--set", "strategy.options." + degree});
  return launched(4, joined(std::move(arguments), more));
}

const std::vector<std::vector<std::string>> kLayouts{
    {"tensor=2", "context=2", "context_method=ring", "expert=2", "expert_tensor=2"},
    {"pipeline=2", "tensor=2", "expert=2"}};

void check_same_losses(const fs::path& run, const std::vector<json>& expected) {
  const auto lines = metrics_of(run);
  REQUIRE(lines.size() == expected.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    CHECK(lines[i].at("loss").get<double>() ==
          doctest::Approx(expected[i].at("loss").get<double>()).scale(0).epsilon(1e-5));
    CHECK(lines[i].at("sample_ids") == expected[i].at("sample_ids"));
  }
}

}  // namespace

TEST_CASE("layouts: evaluation on tensor, context and pipeline ranks is that of one process") {
  const Scratch scratch;
  const fs::path run = scratch / "run";
  must_succeed(on_one_process(train_arguments(run), {"--set", "run.steps=8"}));
  for (const char* samples : {"1", "21"}) {
    CAPTURE(samples);
    std::vector<std::string> command = train_arguments(
        run, {"--json", "--examples", "--set", fmt::format("eval.samples={}", samples), "--set",
              "eval.max_new_tokens=3"});
    command[0] = "eval";
    const Ending one = Command(command).wait();
    REQUIRE_MESSAGE(one.status == 0, one.err);
    const json expected = json::parse(one.out);
    for (const auto& degrees : kLayouts) {
      CAPTURE(degrees[0]);
      const Ending four = Command(on_four_ranks(command, degrees, {})).wait();
      REQUIRE_MESSAGE(four.status == 0, four.err);
      const json measured = json::parse(four.out);
      for (const char* name : {"samples", "correct", "failed", "examples", "held_out_samples",
                               "held_out_tokens", "held_out_failed"})
        CHECK_MESSAGE(measured.at(name) == expected.at(name), name);
      CHECK(measured.at("held_out_loss").get<double>() ==
            doctest::Approx(expected.at("held_out_loss").get<double>()).scale(0).epsilon(1e-5));
    }
  }
}

TEST_CASE("layouts: rows of a fixed length leave those of evaluations as they come") {
  const Scratch scratch;
  const std::vector<std::string> evaluated{
      "--set", "run.steps=2",     "--set", "eval.every=2",
      "--set", "eval.samples=40", "--set", "eval.max_new_tokens=2"};
  const auto evaluation = [&](const std::string& name) {
    const json line = metrics_of(scratch / name).back();
    REQUIRE(line.contains("held_out_loss"));
    return line.at("held_out_loss").get<double>();
  };
  must_succeed(on_one_process(train_arguments(scratch / "one"), evaluated));
  // A row that is trained on has 8 x 32 tokens, that of the evaluation 40 x 32.
  must_succeed(on_four_ranks(train_arguments(scratch / "four"),
                             {"tensor=2", "context=2", "expert=4", "fixed_tokens=400"}, evaluated));
  CHECK(evaluation("four") == doctest::Approx(evaluation("one")).scale(0).epsilon(1e-5));
}

TEST_CASE("layouts: a checkpoint is gone on from under any other layout") {
  const Scratch scratch;
  const auto steps = [](int count) { return fmt::format("run.steps={}", count); };
  const fs::path one = scratch / "one";
  must_succeed(on_one_process(train_arguments(one), joined(kConstant, {"--set", steps(8)})));
  const auto expected = metrics_of(one);
  REQUIRE(expected.size() == 8);
  for (size_t layout = 0; layout < kLayouts.size(); ++layout) {
    CAPTURE(layout);
    const fs::path run = scratch / fmt::format("layout-{}", layout);
    // Four steps on this layout, two on one process, two on the other layout.
    must_succeed(on_four_ranks(train_arguments(run), kLayouts[layout],
                               joined(kConstant, {"--set", steps(4)})));
    must_succeed(
        on_one_process(train_arguments(run), joined(kConstant, {"--resume", "--set", steps(6)})));
    must_succeed(on_four_ranks(train_arguments(run), kLayouts[1 - layout],
                               joined(kConstant, {"--resume", "--set", steps(8)})));
    check_same_losses(run, expected);
  }
}

TEST_CASE(
    "layouts: weights of a Hugging Face file reach every piece, and are written as they were") {
  const Scratch scratch;
  must_succeed(on_one_process(train_arguments(scratch / "run"), {"--set", "run.steps=2"}));
  const std::string weights = bytes_of(scratch / "run/final.safetensors");
  fs::create_directories(scratch / "weights");
  fs::copy_file(scratch / "run/final.safetensors", scratch / "weights/model.safetensors");
  // Nothing moves, so that what was loaded is what is written.
  const std::vector<std::string> still{"--set", "run.steps=1",
                                       "--set", "model.init=" + (scratch / "weights").string(),
                                       "--set", "optimizer.options.lr=0.0"};
  must_succeed(on_one_process(train_arguments(scratch / "one"), still));
  for (size_t layout = 0; layout < kLayouts.size(); ++layout) {
    CAPTURE(layout);
    const std::string name = fmt::format("layout-{}", layout);
    must_succeed(on_four_ranks(train_arguments(scratch / name), kLayouts[layout], still));
    CHECK((bytes_of(scratch / name / "final.safetensors") == weights));
    check_same_losses(scratch / name, metrics_of(scratch / "one"));
  }
}
