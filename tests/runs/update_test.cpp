// Which blocks an optimizer step moves, and how far.
#include <doctest/doctest.h>

#include <ATen/ops/equal.h>

#include "keyseat/safetensors.h"
#include "tests/runs/run_command.h"

using namespace keyseat_runs;

namespace {

using keyseat::SafetensorsReader;

SafetensorsReader weights_of(const fs::path& run_dir) {
  return SafetensorsReader::open((run_dir / "final.safetensors").string()).value_or_throw();
}

SafetensorsReader trained(const fs::path& run_dir, std::vector<std::string> more) {
  more.insert(more.end(), {"--set", "run.steps=3", "--set", "optimizer.schedule.kind=constant",
                           "--set", "optimizer.schedule.warmup_steps=0"});
  const Ending ending = train(run_dir, more);
  REQUIRE_MESSAGE(ending.status == 0, ending.err);
  return weights_of(run_dir);
}

bool of_tower(const std::string& name) { return has(name, "visual."); }

// Whether all tensors of the tower and projector, or all others, are the same bits.
struct Same {
  bool tower = true, decoder = true;
};
Same compare(const SafetensorsReader& a, const SafetensorsReader& b) {
  Same same;
  for (const std::string& name : a.names()) {
    if (at::equal(a.tensor(name), b.tensor(name))) continue;
    (of_tower(name) ? same.tower : same.decoder) = false;
  }
  return same;
}

const std::vector<std::string> kText{"--set", "data.plugin=mock",
                                     "--set", "data.options.images=0",
                                     "--set", "data.options.min_tokens=8",
                                     "--set", "data.options.max_sample_tokens=16",
                                     "--set", "data.options.micro_batch_size=2",
                                     "--set", "data.options.global_batch_size=2"};

}  // namespace

TEST_CASE("update: a block that saw no row in a step is not stepped") {
  const Scratch scratch;
  std::vector<std::string> still = kText, moving = kText;
  still.insert(still.end(), {"--set", "optimizer.options.lr=0.0"});
  const auto initial = trained(scratch / "initial", still);
  const auto text_only = trained(scratch / "text", moving);
  const Same same = compare(initial, text_only);
  CHECK(same.tower);  // not even decayed
  CHECK_FALSE(same.decoder);
  std::ifstream stream(scratch / "text/checkpoints/step-00000003/checkpoint.json");
  const json info = json::parse(stream);
  CHECK(info.at("updates") == json{{"vision", 0}, {"projector", 0}, {"decoder", 3}});
  moving.insert(moving.end(), {"--set", "data.options.images=1"});
  CHECK_FALSE(compare(initial, trained(scratch / "images", moving)).tower);
}

TEST_CASE("update: factors of a block on learning rate and weight decay") {
  const Scratch scratch;
  const auto initial = trained(scratch / "initial", {"--set", "optimizer.options.lr=0.0"});
  const auto plain = trained(scratch / "plain", {});
  const Same still =
      compare(initial, trained(scratch / "still", {"--set", "optimizer.lr_factors.vision=0.0",
                                                   "--set", "optimizer.lr_factors.projector=0.0"}));
  CHECK(still.tower);
  CHECK_FALSE(still.decoder);
  // Half the rate with the factor is half the rate without it.
  const auto halved = trained(scratch / "halved", {"--set", "optimizer.lr_factors.vision=0.5",
                                                   "--set", "optimizer.lr_factors.projector=0.5",
                                                   "--set", "optimizer.lr_factors.decoder=0.5"});
  const auto half = trained(scratch / "half", {"--set", "optimizer.options.lr=5e-4"});
  CHECK(compare(half, halved).tower);
  CHECK(compare(half, halved).decoder);
  CHECK_FALSE(compare(plain, halved).decoder);
  const auto undecayed =
      trained(scratch / "undecayed", {"--set", "optimizer.decay_factors.decoder=0.0"});
  const auto no_decay =
      trained(scratch / "no_decay", {"--set", "optimizer.options.weight_decay=0.0", "--set",
                                     "optimizer.decay_factors.vision=3.0"});
  const auto all_zero =
      trained(scratch / "all_zero", {"--set", "optimizer.decay_factors.decoder=0.0", "--set",
                                     "optimizer.decay_factors.vision=0.0", "--set",
                                     "optimizer.decay_factors.projector=0.0"});
  CHECK(compare(no_decay, all_zero).decoder);
  CHECK(compare(no_decay, all_zero).tower);
  CHECK_FALSE(compare(undecayed, all_zero).tower);
  CHECK_FALSE(compare(plain, all_zero).decoder);
}
