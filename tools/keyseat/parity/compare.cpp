#include "tools/keyseat/parity/compare.h"

#include <ATen/TensorOperators.h>

namespace keyseat::tool::parity {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kSmallest = 1e-300;  // divisor where everything recorded is zero

// The indices of a flat position, as "[2, 0, 5]".
std::string place(int64_t flat, at::IntArrayRef shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    index[i] = flat % shape[i];
    flat /= shape[i];
  }
  return fmt::format("[{}]", fmt::join(index, ", "));
}

void judge(Check& check, const Tolerance& tolerance, double largest_recorded) {
  check.limit = tolerance.limit;
  check.measure = tolerance.measure;
  const bool by_norm = tolerance.measure == Measure::kRelL2;
  // Written so that NaN fails.
  check.pass = (by_norm ? check.rel_l2 : check.max_abs) <= tolerance.limit;
  if (by_norm && tolerance.element_share > 0) {
    check.pass =
        check.pass && check.max_abs <= tolerance.element_share * std::max(largest_recorded, 1e-7);
  }
}

}  // namespace

Check compare_tensors(const std::string& name, const at::Tensor& computed,
                      const at::Tensor& recorded, const Tolerance& tolerance) {
  Check check;
  check.name = name;
  if (computed.sizes() != recorded.sizes()) {
    check.max_abs = check.rel_l2 = kInfinity;
    judge(check, tolerance, 0);
    check.detail =
        fmt::format("computed shape [{}], recorded [{}]", fmt::join(computed.sizes(), ", "),
                    fmt::join(recorded.sizes(), ", "));
    return check;
  }
  if (recorded.numel() == 0) {
    judge(check, tolerance, 0);
    return check;
  }
  const at::Tensor expected = recorded.to(at::kDouble);
  const at::Tensor difference = (computed.to(at::kDouble) - expected).abs().flatten();
  check.max_abs = difference.max().item<double>();
  check.rel_l2 =
      difference.norm().item<double>() / std::max(expected.norm().item<double>(), kSmallest);
  judge(check, tolerance, expected.abs().max().item<double>());
  if (!check.pass) {
    const int64_t worst = difference.argmax().item<int64_t>();
    check.detail = fmt::format("element {} is {}, recorded {}", place(worst, recorded.sizes()),
                               computed.flatten()[worst].item<double>(),
                               recorded.flatten()[worst].item<double>());
  }
  return check;
}

Check compare_numbers(const std::string& name, double computed, double recorded,
                      const Tolerance& tolerance) {
  Check check;
  check.name = name;
  check.max_abs = std::abs(computed - recorded);
  check.rel_l2 = check.max_abs == 0 ? 0 : check.max_abs / std::max(std::abs(recorded), kSmallest);
  judge(check, tolerance, std::abs(recorded));
  if (!check.pass) check.detail = fmt::format("is {}, recorded {}", computed, recorded);
  return check;
}

Check exact_check(const std::string& name, std::string detail) {
  Check check;
  check.name = name;
  check.pass = detail.empty();
  check.max_abs = check.rel_l2 = check.pass ? 0 : kInfinity;
  check.detail = std::move(detail);
  return check;
}

}  // namespace keyseat::tool::parity
