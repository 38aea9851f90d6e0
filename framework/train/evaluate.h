// Evaluation: greedy decoding of held-out prompts over the full vocabulary until <|im_end|>,
// compared with the answer.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "train/session.h"

namespace keyseat::train {

struct EvalExample {
  int64_t id = 0;                 // index in the source
  std::string key, answer, text;  // where from, what was expected, what was decoded
  bool finished = false;          // ended by <|im_end|> within max_new_tokens
  bool correct = false;
};

struct EvalResult {
  int64_t samples = 0, correct = 0,
          failed = 0;  // failed: prompts that could not be decoded; they count as wrong
  std::vector<EvalExample> examples;  // all, in source order
  double accuracy() const {
    return samples > 0 ? static_cast<double>(correct) / static_cast<double>(samples) : 0;
  }
};

// A sample is right where the decoded text, trimmed, equals the source's answer and was ended by
// the model itself. `limit` 0: all samples. The data ranks share the samples; all ranks call it and
// get the same result.
EvalResult evaluate(Session& session, Data& data, int64_t max_new_tokens, int64_t limit);

nlohmann::json eval_json(const EvalResult& result, bool examples);

}  // namespace keyseat::train
