#include "sdk/conformance/cases.h"

#include <ATen/TensorOperators.h>

#include "interfaces/contract.h"
#include "keyseat/status.h"
#include "plugin/load.h"

namespace keyseat::conformance {
namespace {

struct Failure {
  std::string text;
};
struct Skip {
  std::string text;
};

void expect_same_shape(const std::string& what, const at::Tensor& found,
                       const at::Tensor& expected) {
  expect(found.defined(), what + " is undefined");
  if (found.sizes() != expected.sizes() || found.scalar_type() != expected.scalar_type()) {
    fail(fmt::format("{} is {}, expected {}", what, tensor_text(found), tensor_text(expected)));
  }
}

}  // namespace

void Cases::run(const std::string& name, const std::function<void()>& body) {
  begin_(name);
  CaseResult result{name, Outcome::kPassed, ""};
  try {
    body();
  } catch (const Failure& failure) {
    result = {name, Outcome::kFailed, failure.text};
  } catch (const Skip& reason) {
    result = {name, Outcome::kSkipped, reason.text};
  } catch (const Error& error) {
    result = {name, Outcome::kFailed, problems_text(error.problems())};
  } catch (...) {
    result = {name, Outcome::kFailed, "threw: " + current_exception_text()};
  }
  end_(result);
}

void fail(const std::string& text) { throw Failure{text}; }
void skip(const std::string& text) { throw Skip{text}; }
void expect(bool holds, const std::string& text) {
  if (!holds) fail(text);
}

void expect_refused(const std::string& what, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error&) {
    return;
  }
  fail(what + " was accepted; an Error with the reason is wanted");
}

void expect_equal(const std::string& what, const at::Tensor& found, const at::Tensor& expected) {
  expect_same_shape(what, found, expected);
  if (found.equal(expected)) return;
  const at::Tensor difference = (found.to(at::kDouble) - expected.to(at::kDouble)).abs();
  fail(fmt::format("{} differs by up to {:.3g}, and has to be equal bit for bit", what,
                   difference.max().item<double>()));
}

void expect_close(const std::string& what, const at::Tensor& found, const at::Tensor& expected,
                  double limit) {
  expect_same_shape(what, found, expected);
  const double size = expected.to(at::kDouble).norm().item<double>();
  const double difference =
      (found.to(at::kDouble) - expected.to(at::kDouble)).norm().item<double>();
  const double allowed = limit * std::max(size, 1e-6);
  if (difference <= allowed) return;  // a NaN is not
  fail(fmt::format("{} is off by {:.3g} of its size {:.3g} (relative {:.3g}, limit {:.3g})", what,
                   difference, size, size > 0 ? difference / size : difference, limit));
}

}  // namespace keyseat::conformance
