// Parameters are readable between gather and release only, and nothing notices.
#include "tests/executor/poisoning_strategy.h"
#include "tests/executor/proof.h"

using namespace keyseat;
using namespace keyseat::testing;

namespace {

struct PoisonedModel {
  explicit PoisonedModel(const Values& decoder = {}, at::ScalarType compute_dtype = at::kFloat)
      : strategy(std::make_shared<PoisoningStrategy>(make_plugin<Strategy>("single"))),
        model(small_blocks(decoder), {}, [&] {
          SmallParts parts;
          parts.strategy = strategy;
          parts.compute_dtype = compute_dtype;
          return parts;
        }()) {}
  std::shared_ptr<PoisoningStrategy> strategy;
  SmallModel model;
};

const Values kTied = {{"tie_word_embeddings", true}};

}  // namespace

TEST_CASE("proof: parameters that are NaN outside of gather..release change no bit") {
  for (const Values& decoder : {Values{}, kTied}) {
    CAPTURE(decoder.size());
    PoisonedModel poisoned(decoder);
    const Outcome found = step(poisoned.model);
    check_all_trained(found);
    check_bitwise(found, oracle(decoder));
    CHECK(poisoned.strategy->all_closed());
    CHECK(poisoned.strategy->most_open() == 2);  // the unit at work and the one behind it
  }
}

TEST_CASE("proof: the same with compute copies in bf16 and masters in fp32") {
  PoisonedModel poisoned({}, at::kBFloat16);
  const Outcome found = step(poisoned.model);
  check_all_trained(found);
  check_bitwise(found, oracle({}, at::kBFloat16));
  CHECK(poisoned.strategy->all_closed());
}

TEST_CASE("proof: several steps, and evaluation in between") {
  PoisonedModel poisoned;
  const Outcome first = step(poisoned.model);
  const auto losses = poisoned.model.run(mixed_rows(poisoned.model), /*training=*/false);
  CHECK(losses == first.losses);
  check_bitwise(step(poisoned.model), first);
  CHECK(poisoned.strategy->all_closed());
}

TEST_CASE("proof: the poison bites where a backward reads parameters that were not gathered") {
  PoisonedModel poisoned;
  poisoned.strategy->gathers_for_backward = false;
  const Outcome found = step(poisoned.model);
  int broken = 0;
  for (const auto& [name, gradient] : found.gradients) {
    broken += !gradient.isfinite().all().item<bool>();
  }
  CHECK(found.losses == oracle().losses);
  CHECK(broken > static_cast<int>(found.gradients.size()) / 2);
}
