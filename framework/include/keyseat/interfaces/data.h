// Kind `data`: yields packed micro-batches.
//
// Contract (7-contracts section 4). From (seed, cursor) every rank derives the same assignment of
// the step's samples to data ranks and rows; each loads and packs only its own. The cursor alone is
// the data state. A sample that fails leaves its slot empty and moves no other. plan() is pure;
// next_step() may be served by loader threads ahead of the step, with results that do not depend on
// their number.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "keyseat/batch.h"
#include "keyseat/options.h"
#include "keyseat/plugin.h"

namespace keyseat {

inline constexpr int kDataAbi = 1;

// One sample, decoded and tokenised, not yet packed. CPU tensors.
struct Sample {
  int64_t id = 0;               // index in the source
  std::string key;              // where it came from: "digits-train.tar:000123"
  std::vector<int64_t> tokens;  // placeholders expanded
  std::vector<int64_t>
      labels;  // [tokens], labels[i] = target of position i (shifted), -100 ignored
  std::vector<int8_t> token_type;  // [tokens] 0 text, 1 image, 2 video
  at::Tensor patches;              // f32 [P, 3*t*p*p], images and videos in order of appearance
  std::vector<int64_t> grid_thw;   // [N * 3]
  std::vector<std::string> files;  // image files, for inspect
  std::string text;                // rendered chat, for inspect
  std::string answer;              // prompts only: what the assistant said in the source
};

// The rows of one data rank: sample ids per row; equal on every rank for equal (seed, cursor).
struct StepAssignment {
  int64_t cursor = 0, next_cursor = 0;  // samples consumed before and after the step
  std::vector<std::vector<std::vector<int64_t>>>
      rows;  // [data rank][row][sample ids in epoch order]
};

struct DataFacts {
  InputSpec input;
  int64_t seed = 0;
  int64_t data_ranks = 1, data_rank = 0;
  bool training = true;  // false: source order, no augmentation
  int64_t threads = 1;   // loader threads
};

class KEYSEAT_API Data {
 public:
  virtual ~Data();
  virtual Problems open(
      const DataFacts& facts) = 0;   // builds or reads the index, loads the tokenizer
  virtual int64_t size() const = 0;  // samples in the source
  virtual bool synthetic() const {
    return false;
  }  // (optional) true: no throughput of it is a performance figure
  virtual Result<Sample> sample(int64_t id) = 0;  // training form; thread-safe
  // Evaluation form: the conversation without its last assistant turn, generation prompt added;
  // `answer` set.
  virtual Result<Sample> prompt(int64_t id) = 0;
  virtual std::string decode(
      const std::vector<int64_t>& tokens) const = 0;  // special tokens left out
  virtual int64_t end_token_id() const = 0;           // <|im_end|>
  virtual StepAssignment plan(int64_t cursor) const = 0;
  virtual void seek(int64_t cursor) = 0;
  virtual int64_t cursor() const = 0;
  virtual std::vector<Row> next_step() = 0;  // this data rank's rows, on the CPU; moves the cursor
  // Failures so far by stable reason ("cut_jpeg"), with one example each: "reason" -> (count,
  // example).
  virtual std::map<std::string, std::pair<int64_t, std::string>> failures() const = 0;
};

}  // namespace keyseat
