#include "sdk/conformance/finite_differences.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>

#include "keyseat/random.h"

namespace keyseat::conformance {
namespace {

// Between two points whose distance is a share of the parameter's size, a slope is right to a few
// per cent: curvature on one side, fp32 on the other. A wrong gradient is off by far more.
constexpr double kSlopeLimit = 0.03;
constexpr double kShares[] = {0.1, 0.03, 0.01, 0.003, 0.001, 0.0003};
constexpr double kLossNoise = 1e-6;  // relative, of a loss in fp32
constexpr int kOthers = 12;          // parameters of other blocks

enum class Verdict { kRight, kWrong, kUnresolved };

struct Slope {
  Verdict verdict = Verdict::kUnresolved;
  double expected = 0, found = 0;
};

class Prober {
 public:
  explicit Prober(Model& model) : model_(model), params_(model.chain(), true) {
    base_ = model_.run(params_, model_.rows());
  }
  const ModelParams& params() const { return params_; }

  // The slope of the loss along `direction` (of length 1), against `expected`.
  Slope probe(int unit, int param, const at::Tensor& direction, double expected) {
    Slope best{Verdict::kUnresolved, expected, 0};
    const double size = std::max(params_.value(unit, param).norm().item<double>(), 0.1);
    for (const double share : kShares) {
      const double step = share * size;
      const double noise = kLossNoise * std::max(1.0, std::abs(base_.total)) / step;
      if (noise > kSlopeLimit * expected) continue;  // fp32 cannot tell
      const ModelRun ahead = run_at(unit, param, direction, step);
      const ModelRun behind = run_at(unit, param, direction, -step);
      // A token that changes its expert makes the loss jump; a shorter step may change none.
      if (ahead.routed != base_.routed || behind.routed != base_.routed) continue;
      const double found = (ahead.total - behind.total) / (2 * step);
      if (best.verdict == Verdict::kUnresolved ||
          std::abs(found - expected) < std::abs(best.found - expected)) {
        best.found = found;
      }
      best.verdict = std::abs(best.found - expected) <= kSlopeLimit * expected + noise
                         ? Verdict::kRight
                         : Verdict::kWrong;
      if (best.verdict == Verdict::kRight) return best;
    }
    return best;
  }

 private:
  ModelRun run_at(int unit, int param, const at::Tensor& direction, double step) {
    at::Tensor value = params_.value(unit, param).detach();  // the same memory
    const at::Tensor before = value.clone();
    value.add_(direction, step);
    Model::RunOptions forward;
    forward.backward = false;
    ModelRun run = model_.run(params_, model_.rows(), forward);
    value.copy_(before);
    return run;
  }

  Model& model_;
  ModelParams params_;
  ModelRun base_;
};

// The gradient with a random half of its elements set to zero.
at::Tensor half_of(const at::Tensor& gradient, const std::string& name) {
  const at::Tensor random = at::empty_like(gradient);
  fill_normal(random, derive_seed(5, name), 1.0);
  return gradient * random.gt(0);
}

}  // namespace

void check_finite_differences(Model& model) {
  Prober prober(model);
  int resolved = 0, others = 0;
  std::vector<std::string> wrong;
  const auto check = [&](int unit, int param, const std::string& name, const char* what,
                         const at::Tensor& along) {
    const double length = along.norm().item<double>();
    if (length == 0) return;
    const Slope slope = prober.probe(unit, param, along / length, length);
    if (slope.verdict != Verdict::kUnresolved) ++resolved;
    if (slope.verdict == Verdict::kWrong) {
      wrong.push_back(fmt::format("{} {}: autograd says {:.4g}, the loss {:.4g}", name, what,
                                  slope.expected, slope.found));
    }
  };
  for (int unit = 0; unit < model.chain().size(); ++unit) {
    const ChainUnit& one = model.chain().units()[static_cast<size_t>(unit)];
    const bool own = one.block == model.block();
    for (int param = 0; param < static_cast<int>(one.param_names.size()); ++param) {
      const std::string& name = one.param_names[static_cast<size_t>(param)];
      const bool owner = one.owners[static_cast<size_t>(param)] == ParamRef{unit, param};
      // Of other blocks, the first matrices of a few units.
      if (!owner || (!own && (param > 0 || ++others > kOthers))) continue;
      const at::Tensor gradient = prober.params().gradient(unit, param);
      if (!gradient.defined()) {
        wrong.push_back(name + " has no gradient");
        continue;
      }
      check(unit, param, name, "along its gradient", gradient);
      if (own) check(unit, param, name, "along half of its gradient", half_of(gradient, name));
    }
  }
  expect(wrong.empty(),
         fmt::format("{} slopes are wrong:\n{}", wrong.size(), fmt::join(wrong, "\n")));
  expect(resolved > 0, "no gradient is large enough to be seen in the loss");
}

}  // namespace keyseat::conformance
