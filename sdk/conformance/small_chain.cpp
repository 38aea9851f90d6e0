// Legend: T row tokens, H hidden.
#include "sdk/conformance/small_chain.h"

#include "sdk/conformance/cases.h"

namespace keyseat::conformance {
namespace {

using testing::FunctionBlock;
using testing::kHidden;

// hidden += scale * tanh(hidden W) inside `region`, with a second region inside it.
FunctionBlock::Part region_part(Region region) {
  const std::string name(region_name(region));
  const Dim T = DimSymbol::kT, H = kHidden;
  const UnitSpec spec =
      testing::unit_spec("region." + name, {testing::param("w", {kHidden, kHidden})},
                         {testing::spec("hidden", {T, H})}, {testing::spec("hidden", {T, H})});
  const auto forward = [region](const Params& params, const Tensors& in, StepContext& context) {
    const ParamHandle w = params.at("w");
    const auto outer = [w, &context](const std::vector<at::Tensor>& x) {
      // What is decided once holds for the second run, too.
      const auto scale = context.keep<double>("scale", [&context] {
        return 0.25 + 0.5 * static_cast<double>(context.random_seed(Region::kMlp) % 1000) / 1000;
      });
      const auto inner = [](const std::vector<at::Tensor>& y) {
        return std::vector<at::Tensor>{y[0].tanh(), y[0].sigmoid()};
      };
      const auto parts = context.region(Region::kLayernorm, inner, {testing::linear(x[0], w)});
      return std::vector<at::Tensor>{x[0] + parts[0] * parts[1] * scale};
    };
    return Tensors{{"hidden", context.region(region, outer, {in.at("hidden")})[0]}};
  };
  return {spec, forward};
}

}  // namespace

std::vector<NamedBlock> small_blocks() {
  std::vector<NamedBlock> blocks = testing::vision_language_blocks();
  std::vector<FunctionBlock::Part> parts;
  for (const Region region : all_regions()) parts.push_back(region_part(region));
  // In front of the decoder's head, which is its own last unit: anchored behind the layers.
  for (FunctionBlock::Part& part : parts) part.spec.after = "router.stats.1";
  blocks.push_back(testing::block("regions", std::move(parts)));
  return blocks;
}

Chain small_chain(const std::vector<std::string>& freeze) {
  Problems problems;
  Chain chain = Chain::build(small_blocks(), freeze, problems);
  if (!problems.empty()) throw Error(std::move(problems));
  return chain;
}

std::vector<Row> small_rows() {
  return {testing::make_row(9, 3, 1), testing::make_row(5, 0, 2), testing::make_row(7, 7, 3),
          testing::make_row(0, 0, 4)};
}

void expect_gradients(const Gradients& found, const Gradients& expected, double limit) {
  for (const auto& [name, gradient] : expected) {
    expect(found.contains(name), "there is no gradient of " + name);
    expect_close("the gradient of " + name, found.at(name), gradient, limit);
  }
  expect(found.size() == expected.size(), "there are gradients of parameters that are not trained");
}

void expect_equal_gradients(const Gradients& found, const Gradients& expected) {
  for (const auto& [name, gradient] : expected) {
    expect(found.contains(name), "there is no gradient of " + name);
    expect_equal("the gradient of " + name, found.at(name), gradient);
  }
  expect(found.size() == expected.size(), "there are gradients of parameters that are not trained");
}

}  // namespace keyseat::conformance
