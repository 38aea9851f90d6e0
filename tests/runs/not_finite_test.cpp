// A step that is not finite is refused, and the message names where it begins.
#include <doctest/doctest.h>

#include <limits>

#include "keyseat/safetensors.h"
#include "tests/runs/run_command.h"

using namespace keyseat_runs;

namespace {

void check_stopped(const Ending& ending, const std::vector<std::string>& parts) {
  INFO(ending.err);
  CHECK(ending.status == 4);
  CHECK(has(ending.err, "R5 step "));
  CHECK(has(ending.err, "No parameter was changed by this step"));
  for (const std::string& part : parts) CHECK_MESSAGE(has(ending.err, part), part);
}

}  // namespace

TEST_CASE("not finite: a parameter is named with the micro-batch and the samples") {
  const Scratch scratch;
  REQUIRE(train(scratch / "run", {"--set", "run.steps=1"}).status == 0);
  const auto reader = keyseat::SafetensorsReader::open((scratch / "run/final.safetensors").string())
                          .value_or_throw();
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const std::string& name : reader.names()) {
    tensors.emplace_back(name, reader.tensor(name).clone());
    if (!has(name, "layers.1.self_attn.q_proj")) continue;
    tensors.back().second.view({-1}).select(0, 7).fill_(std::numeric_limits<float>::quiet_NaN());
  }
  const std::string file = (scratch / "broken.safetensors").string();
  keyseat::write_safetensors(file, tensors);
  const Ending ending = train(scratch / "broken", {"--set", "model.init=" + file});
  check_stopped(ending, {"in micro-batch 0, parameter decoder.layers.1.self_attn.q_proj.weight [",
                         "in forward: 1 of", "the first is nan",
                         "samples of the row: ", "digits-heldout.tar"});
  CHECK(metrics_of(scratch / "broken").empty());
  CHECK_FALSE(fs::exists(scratch / "broken/final.safetensors"));
}

TEST_CASE("not finite: a tensor of the forward after a step that was too large") {
  const Scratch scratch;
  const Ending ending =
      train(scratch / "run", {"--set", "optimizer.options.lr=1e30", "--set",
                              "optimizer.schedule.warmup_steps=0", "--set", "run.threads=1"});
  check_stopped(ending, {"R5 step 1 gave", "in micro-batch 0, ", "in forward: "});
  CHECK(metrics_of(scratch / "run").size() == 1);
}

TEST_CASE("not finite: a gradient of the backward where the forward is sound") {
  const Scratch scratch;
  const Ending ending = train(scratch / "run", {"--set", "loss.z.weight=8e40"});
  check_stopped(ending, {"R5 step 0 gave", "gradient", "in backward: "});
}
