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

// Weights of one step, with one tensor changed.
std::string changed_weights(const Scratch& scratch, const std::string& tensor,
                            const std::function<void(at::Tensor&)>& change) {
  REQUIRE(train(scratch / "first", {"--set", "run.steps=1"}).status == 0);
  const auto reader =
      keyseat::SafetensorsReader::open((scratch / "first/final.safetensors").string())
          .value_or_throw();
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  int changed = 0;
  for (const std::string& name : reader.names()) {
    tensors.emplace_back(name, reader.tensor(name).clone());
    if (!has(name, tensor)) continue;
    change(tensors.back().second);
    ++changed;
  }
  CHECK(changed > 0);
  const std::string file = (scratch / "changed.safetensors").string();
  keyseat::write_safetensors(file, tensors);
  return file;
}

}  // namespace

TEST_CASE("not finite: a parameter is named with the micro-batch and the samples") {
  const Scratch scratch;
  const std::string file =
      changed_weights(scratch, "layers.1.self_attn.q_proj", [](at::Tensor& weight) {
        weight.view({-1}).select(0, 7).fill_(std::numeric_limits<float>::quiet_NaN());
      });
  const Ending ending = train(scratch / "broken", {"--set", "model.init=" + file});
  check_stopped(ending, {"in micro-batch 0, parameter decoder.layers.1.self_attn.q_proj.weight [",
                         "in forward: 1 of", "the first is nan",
                         "samples of the row: ", "digits-heldout.tar"});
  CHECK(metrics_of(scratch / "broken").empty());
  CHECK_FALSE(fs::exists(scratch / "broken/final.safetensors"));
}

TEST_CASE("not finite: a tensor of the forward after steps that were too large") {
  const Scratch scratch;
  // Every step multiplies the weights by -1e5.
  const Ending ending =
      train(scratch / "run",
            {"--set", "optimizer.options.lr=100", "--set", "optimizer.options.weight_decay=1000",
             "--set", "optimizer.schedule.warmup_steps=0", "--set", "run.threads=1"});
  check_stopped(ending, {"in micro-batch 0, ", "in forward: "});
  const size_t steps = metrics_of(scratch / "run").size();
  CHECK(steps > 0);
  CHECK(has(ending.err, fmt::format("R5 step {} gave", steps)));
}

TEST_CASE("not finite: a gradient of the backward where the forward is sound") {
  const Scratch scratch;
  // The z-loss grows with the square of the router's weights, its gradient with that times their
  // size and the weight of the loss.
  const std::string file = changed_weights(scratch, "layers.0.mlp.gate.weight",
                                           [](at::Tensor& weight) { weight.mul_(2e18); });
  const Ending ending =
      train(scratch / "run", {"--set", "loss.z.weight=1e6", "--set", "model.init=" + file});
  check_stopped(ending, {"R5 step 0 gave", "gradient", "in backward: "});
}
