// Frozen blocks: no gradient memory, no backward work, and the same gradients for the rest.
#include <ATen/record_function.h>

#include "keyseat/memory.h"
#include "runtime/size_classes.h"
#include "tests/executor/poisoning_strategy.h"
#include "tests/executor/proof.h"

using namespace keyseat;
using namespace keyseat::testing;

namespace {

using Freeze = std::vector<std::string>;

size_t gradient_bytes() {
  return memory_statistics().categories[static_cast<size_t>(MemoryCategory::kGradients)];
}

// A model, the bytes that its gradients take, and what one step over the mixed rows does.
struct FrozenRun {
  explicit FrozenRun(const Freeze& freeze)
      : before((install_caching_allocator(size_t{64} << 20), gradient_bytes())),
        strategy(std::make_shared<PoisoningStrategy>(make_plugin<Strategy>("single"))),
        model(small_blocks(), freeze,
              [&] {
                SmallParts parts;
                parts.strategy = strategy;
                return parts;
              }()),
        bytes(gradient_bytes() - before) {}

  bool frozen(const Freeze& freeze, int unit) const {
    const std::string& block = model.chain().units()[unit].block;
    return std::find(freeze.begin(), freeze.end(), block) != freeze.end();
  }

  size_t before;
  std::shared_ptr<PoisoningStrategy> strategy;
  SmallModel model;
  size_t bytes;
};

// How often the product of a weight gradient is added into a sink while it lives.
class WeightProducts {
 public:
  WeightProducts() : before_(counted()) {
    handle_ = at::addGlobalCallback(
        at::RecordFunctionCallback(&count).scopes({at::RecordScope::FUNCTION}));
  }
  ~WeightProducts() { at::removeCallback(handle_); }
  int found() const { return counted() - before_; }

 private:
  static std::atomic<int>& counted() {
    static std::atomic<int> calls{0};
    return calls;
  }
  static std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& function) {
    if (std::string_view(function.name()) == "aten::addmm_") ++counted();
    return nullptr;
  }
  at::CallbackHandle handle_;
  int before_;
};

// Gradient memory of the trained units only, one flat buffer each.
void check_gradient_memory(const FrozenRun& run) {
  if (!caching_allocator_installed()) return;  // sanitizer builds have no ledger
  size_t expected = 0;
  for (const ChainUnit& unit : run.model.chain().units()) {
    if (!unit.trainable) continue;
    size_t elements = 0;
    for (const ParamSpec& param : unit.unit->spec().params) {
      elements += static_cast<size_t>((param.numel() + 15) / 16 * 16);
    }
    expected += size_class_bytes(size_class_of(4 * elements));
  }
  CHECK(run.bytes == expected);
}

// Returns how many products of weight gradients the step made.
int check_frozen(const Freeze& freeze) {
  CAPTURE(freeze.size());
  FrozenRun run(freeze);
  check_gradient_memory(run);
  const WeightProducts products;
  const Outcome found = step(run.model);
  const int made = products.found();
  const Outcome all = oracle();
  CHECK(found.losses == all.losses);
  const Chain& chain = run.model.chain();
  // A unit runs backward where something trains in it or before it, once per row.
  for (int unit = 0; unit < chain.size(); ++unit) {
    CAPTURE(chain.units()[unit].name);
    const auto& backwards = run.strategy->backwards;
    const bool expected = chain.units()[unit].runs_backward;
    CHECK(std::count(backwards.begin(), backwards.end(), unit) == (expected ? 5 : 0));
    CHECK((run.model.executor().seconds()[unit].backward > 0) == expected);
    for (const std::string& name : chain.units()[unit].param_names) {
      CAPTURE(name);
      REQUIRE(found.gradients.contains(name) != run.frozen(freeze, unit));
      if (!run.frozen(freeze, unit)) {
        CHECK(at::equal(found.gradients.at(name), all.gradients.at(name)));
      }
    }
    for (size_t i = 0; i < chain.units()[unit].param_names.size(); ++i) {
      if (!run.frozen(freeze, unit)) continue;
      const ParamHandle& handle = run.strategy->before_forward(unit, true).at(i);
      run.strategy->after_forward(unit);
      CHECK_FALSE(handle.trainable());
      CHECK_FALSE(handle.value().grad().defined());
    }
  }
  return made;
}

int units_that_run_backward(const Freeze& freeze) {
  const Chain chain = chain_of(small_blocks(), freeze);
  return static_cast<int>(std::count_if(chain.units().begin(), chain.units().end(),
                                        [](const ChainUnit& unit) { return unit.runs_backward; }));
}

// Products of weight gradients per row: every linear layer of these blocks has one.
constexpr int kRows = 5;
constexpr int kTower = 1 + 3 * 4;  // patches; qkv, proj, two of the mlp
constexpr int kProjector = 3 * 2;  // three mergers of two

}  // namespace

TEST_CASE("proof: a frozen tower runs no backward") {
  CHECK(units_that_run_backward({}) == 12);
  CHECK(units_that_run_backward({"vision"}) == 12 - 4);
  CHECK(check_frozen({}) - check_frozen({"vision"}) == kRows * kTower);
}

TEST_CASE("proof: a frozen decoder passes gradients on and makes none of its own") {
  CHECK(units_that_run_backward({"decoder"}) == 12);
  CHECK(check_frozen({"decoder"}) == kRows * (kTower + kProjector));
}

TEST_CASE("proof: everything frozen but the projector") {
  CHECK(units_that_run_backward({"vision", "decoder"}) == 12 - 4);
  CHECK(check_frozen({"vision", "decoder"}) == kRows * kProjector);
}

TEST_CASE("proof: everything frozen") {
  CHECK(units_that_run_backward({"vision", "projector", "decoder"}) == 0);
  CHECK(check_frozen({"vision", "projector", "decoder"}) == 0);
}
