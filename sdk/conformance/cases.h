// Conformance cases: what `keyseat check` runs, each with an outcome and a text.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

namespace keyseat::conformance {

enum class Outcome { kPassed, kFailed, kSkipped };

struct CaseResult {
  std::string name;
  Outcome outcome = Outcome::kPassed;
  std::string text;  // why it failed or was skipped
};

// Runs cases one after another; whatever a case throws is its failure.
class Cases {
 public:
  // `begin` hears of a case before it runs, so that a crash or a hang has a name; `end` of its
  // outcome.
  Cases(std::function<void(const std::string& name)> begin,
        std::function<void(const CaseResult&)> end)
      : begin_(std::move(begin)), end_(std::move(end)) {}
  void run(const std::string& name, const std::function<void()>& body);

 private:
  std::function<void(const std::string&)> begin_;
  std::function<void(const CaseResult&)> end_;
};

// Inside a case.
[[noreturn]] void fail(const std::string& text);
[[noreturn]] void skip(const std::string& text);
void expect(bool holds, const std::string& text);
// The Error that `body` has to throw is what is wanted; anything else fails.
void expect_refused(const std::string& what, const std::function<void()>& body);
void expect_equal(const std::string& what, const at::Tensor& found, const at::Tensor& expected);
// Relative L2 difference, in fp64. Tensors of zeros are compared absolutely.
void expect_close(const std::string& what, const at::Tensor& found, const at::Tensor& expected,
                  double limit);

}  // namespace keyseat::conformance
