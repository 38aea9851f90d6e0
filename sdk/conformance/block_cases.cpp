// A block inside the model of --config: its gradients against finite differences, its fast kernels
// against the plain ones, and the rules of units (7-contracts section 1).
#include "keyseat/interfaces/block.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include "sdk/conformance/finite_differences.h"
#include "sdk/conformance/model.h"
#include "sdk/conformance/replay_units.h"

namespace keyseat::conformance {
namespace {

// Other kernels, and other orders of the same sums.
constexpr double kKernelLimit = 1e-4, kOrderLimit = 1e-5;

using Gradients = std::map<std::string, at::Tensor>;

Gradients gradients_of(const Chain& chain, const ModelParams& params) {
  Gradients all;
  for (int unit = 0; unit < chain.size(); ++unit) {
    const ChainUnit& one = chain.units()[static_cast<size_t>(unit)];
    for (size_t param = 0; param < one.param_names.size(); ++param) {
      const at::Tensor gradient = params.gradient(unit, static_cast<int>(param));
      if (gradient.defined()) all[one.param_names[param]] = gradient;
    }
  }
  return all;
}

Gradients gradients(Model& model, const Model::RunOptions& options = {}, bool with_sinks = true) {
  ModelParams params(model.chain(), with_sinks);
  model.run(params, model.rows(), options);
  return gradients_of(model.chain(), params);
}

void compare(const Gradients& found, const Gradients& expected, double limit) {
  for (const auto& [name, gradient] : expected) {
    expect(found.contains(name), "there is no gradient of " + name);
    if (limit == 0) {
      expect_equal("the gradient of " + name, found.at(name), gradient);
    } else {
      expect_close("the gradient of " + name, found.at(name), gradient, limit);
    }
  }
}

void check_specs(const Subject& subject) {
  std::set<std::string> names;
  for (const auto& unit : subject.make<Block>()->units()) {
    const UnitSpec& spec = unit->spec();
    expect(!spec.name.empty(), "a unit has no name");
    expect(names.insert(spec.name).second, "two units are called " + spec.name);
    expect(!spec.writes.empty(), "unit " + spec.name + " writes nothing");
    std::set<std::string> params;
    for (const ParamSpec& param : spec.params) {
      expect(!param.name.empty() && params.insert(param.name).second,
             "a parameter of unit " + spec.name + " has no name of its own");
      expect(param.numel() > 0, "parameter " + param.name + " of " + spec.name + " is empty");
    }
  }
  expect(!names.empty(), "the block has no units");
}

void check_cost(const Subject& subject) {
  WorkloadShape one;
  one.tokens = 64;
  one.patches = 64;
  one.visual_tokens = 16;
  one.supervised = 32;
  one.sequence_squares = 64 * 64;
  one.frame_squares = 64 * 64;
  WorkloadShape two = one;
  for (double* size : {&two.tokens, &two.patches, &two.visual_tokens, &two.supervised,
                       &two.sequence_squares, &two.frame_squares}) {
    *size *= 2;
  }
  for (const auto& unit : subject.make<Block>()->units()) {
    const std::string& name = unit->spec().name;
    const Cost none = unit->cost({}), small = unit->cost(one), large = unit->cost(two);
    for (const Cost& cost : {none, small, large}) {
      expect(std::isfinite(cost.flops) && cost.flops >= 0 && std::isfinite(cost.activation_bytes) &&
                 cost.activation_bytes >= 0,
             "the cost of unit " + name + " is negative or not finite");
    }
    expect(none.flops == 0, "unit " + name + " costs FLOPs where there is no work");
    expect(large.flops >= small.flops && large.activation_bytes >= small.activation_bytes,
           "twice the work costs less in unit " + name);
  }
}

void check_packing(Model& model) {
  ModelParams params(model.chain(), true);
  Model::RunOptions forward;
  forward.backward = false;
  std::vector<Row> together, apart;
  together.push_back(model.row({1, 2, 3}));
  for (const int64_t id : {1, 2, 3}) apart.push_back(model.row({id}));
  const ModelRun one = model.run(params, std::move(together), forward);
  const ModelRun three = model.run(params, std::move(apart), forward);
  if (!one.losses.contains("ce")) skip("the model of --config has no loss \"ce\"");
  const double found = one.losses.at("ce"), expected = three.losses.at("ce");
  expect(std::abs(found - expected) <= kOrderLimit * std::abs(expected),
         fmt::format("the loss of three samples in one row is {}, in rows of their own {}: samples "
                     "see each other",
                     found, expected));
}

void check_rows(Model& model) {
  const std::vector<std::vector<int64_t>> cases = {{}, {0}, {0, 3}};
  for (const std::vector<int64_t>& ids : cases) {
    ModelParams params(model.chain(), true);
    std::vector<Row> rows;
    rows.push_back(model.row(ids));
    const ModelRun result = model.run(params, std::move(rows));
    expect(std::isfinite(result.total), "the loss is not finite");
    for (const auto& [name, gradient] : gradients_of(model.chain(), params)) {
      expect(gradient.isfinite().all().item<bool>(), "the gradient of " + name + " is not finite");
    }
  }
}

}  // namespace

void block_cases(const Subject& subject, Cases& cases) {
  cases.run("units: names, parameters and what they write", [&] { check_specs(subject); });
  cases.run("cost: finite, none without work, growing with it", [&] { check_cost(subject); });
  cases.run("gradients: finite differences of the loss, parameter by parameter", [&] {
    Model model(subject);
    check_finite_differences(model);
  });
  cases.run("gradients: fast kernels and plain ones agree", [&] {
    Model model(subject);
    Model::RunOptions naive;
    naive.kernels = Kernels::kNaive;
    compare(gradients(model), gradients(model, naive), kKernelLimit);
  });
  cases.run("gradients: with sinks as without", [&] {
    Model model(subject);
    compare(gradients(model), gradients(model, {}, /*with_sinks=*/false), kOrderLimit);
  });
  cases.run("gradients: the same when every unit is run again, bit for bit", [&] {
    Model model(subject);
    ReplayUnits replay;
    Model::RunOptions options;
    options.recompute = &replay;
    compare(gradients(model, options), gradients(model), 0);
  });
  cases.run("gradients: the same with all micro-batches in flight", [&] {
    Model model(subject);
    Model::RunOptions options;
    options.all_in_flight = true;
    compare(gradients(model, options), gradients(model), kOrderLimit);
  });
  cases.run("rows: no token at all, text only, several texts", [&] {
    Model model(subject);
    check_rows(model);
  });
  cases.run("rows: samples of one row do not see each other", [&] {
    Model model(subject);
    check_packing(model);
  });
}

}  // namespace keyseat::conformance
