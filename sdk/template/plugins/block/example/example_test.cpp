// The plugin through the real loader. `keyseat check FILE.so --set ...` compares its gradients with
// finite differences.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include "keyseat/interfaces/block.h"
#include "keyseat/registry.h"

using namespace keyseat;

namespace {

constexpr int64_t kHidden = 6, kOutHidden = 5;
using Values = std::map<std::string, OptionValue>;

// build/bin/TEST lies beside build/plugins.
std::shared_ptr<const LoadedPlugin> load() {
  const auto build = std::filesystem::canonical("/proc/self/exe").parent_path().parent_path();
  Registry registry(make_plugin_search({{build / "plugins", "the test"}}));
  Problems problems;
  auto plugin = registry.load("block", "example", problems);
  REQUIRE_MESSAGE(plugin != nullptr, problems_text(problems));
  return plugin;
}

std::shared_ptr<Block> make(Values values) {
  values.insert({{"hidden_size", kHidden}, {"out_hidden_size", kOutHidden}});
  const auto plugin = load();
  Problems problems;
  const Options options = resolve_options(plugin->options(), values, "test", problems);
  REQUIRE_MESSAGE(problems.empty(), problems_text(problems));
  return std::static_pointer_cast<Block>(plugin->create(options, {}));
}

// Parameters as they start, except that matrices are all `matrix`.
Params parameters(const UnitSpec& spec, double matrix) {
  std::vector<ParamHandle> handles;
  for (const ParamSpec& param : spec.params) {
    const double value = param.init.kind == Init::Kind::kZeros  ? 0
                         : param.init.kind == Init::Kind::kOnes ? 1
                                                                : matrix;
    handles.push_back(ParamHandle::of(at::ones(param.shape).mul(value)));
  }
  return Params(&spec.params, std::move(handles));
}

// Runs the regions of a unit as they come.
class PlainCall {
 public:
  explicit PlainCall(const Params& params)
      : context_([&] {
          StepContext::State state;
          state.unit = "test.unit";
          state.params = &params;
          state.kept = &kept_;
          return state;
        }()) {}
  StepContext& operator*() { return context_; }

 private:
  std::vector<StepContext::Kept> kept_;
  StepContext context_;
};

}  // namespace

TEST_CASE("example: a merger per tap, anchored to its writer, then the final one") {
  const auto units = make({{"deepstack_features", int64_t{2}}})->units();
  REQUIRE(units.size() == 3);
  CHECK(units[1]->spec().after == "vision.tap.1");
  CHECK(units[1]->spec().writes[0].name == "deepstack.1");
  CHECK(units[2]->spec().after.empty());
  CHECK(units[2]->spec().writes[0].name == "vision.merged");
}

TEST_CASE("example: with flat patches only the skip speaks") {
  const auto units = make({})->units();
  const Unit& merger = *units[0];
  const Params params = parameters(merger.spec(), 0.5);
  PlainCall call(params);
  const Tensors out = merger.forward(params, {{"vision.hidden", at::ones({8, kHidden})}}, *call);
  // A constant vector is normalised to zero, so W_in, W_out add nothing; the skip adds 6 * 0.5.
  CHECK(out.at("vision.merged").allclose(at::ones({2, kOutHidden}).mul(3.0)));
}

TEST_CASE("example: no patch at all is an ordinary size") {
  const auto units = make({})->units();
  const Params params = parameters(units[0]->spec(), 0.5);
  PlainCall call(params);
  const Tensors out =
      units[0]->forward(params, {{"vision.hidden", at::zeros({0, kHidden})}}, *call);
  CHECK(out.at("vision.merged").sizes() == at::IntArrayRef{0, kOutHidden});
}

TEST_CASE("example: a width of zero is refused") {
  Problems problems;
  resolve_options(load()->options(), {{"hidden_size", int64_t{0}}, {"out_hidden_size", int64_t{4}}},
                  "test", problems);
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].code == Code::kC3Value);
}
