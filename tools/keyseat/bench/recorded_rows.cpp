#include "tools/keyseat/bench/recorded_rows.h"

namespace keyseat::tool::bench {

namespace {

Problem no_samples() {
  return {Code::kR6Data,
          {},
          "a recorded row has no single samples",
          "it was packed when it was read",
          "Evaluate with a data plugin."};
}

}  // namespace

StepAssignment RecordedRows::plan(int64_t cursor) const {
  return {cursor, cursor + size(), {{row_.facts.sample_ids}}};
}

// Units write into no input, so all steps share the tensors.
std::vector<Row> RecordedRows::next_step() {
  cursor_ += size();
  return {row_};
}

Result<Sample> RecordedRows::sample(int64_t) { return no_samples(); }
Result<Sample> RecordedRows::prompt(int64_t) { return no_samples(); }

}  // namespace keyseat::tool::bench
