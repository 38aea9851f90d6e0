#include "tests/equivalence/mutation_check.h"

#include <doctest/doctest.h>

#include "tests/mutation.h"

namespace keyseat::test {

void check_mutations(const LayoutChoice& choice, const LayoutModel& model, const StepShape& shape,
                     const std::vector<std::string>& mutations) {
  LayoutChoice single;
  single.freeze = choice.freeze;
  const LayoutResult oracle = run_layout(single, model, shape);
  const LayoutDifference difference = compare_layouts(run_layout(choice, model, shape), oracle);
  INFO(difference.text());
  CHECK(difference.within_limits());
  for (const std::string& name : mutations) {
    INFO("mutation ", name);
    const Mutation mutation(name);
    bool seen = false;
    try {
      seen = !compare_layouts(run_layout(choice, model, shape), oracle).within_limits();
    } catch (const Error&) {
      seen = true;
    }
    CHECK_MESSAGE(seen, "the test does not see this mutation");
  }
}

}  // namespace keyseat::test
