// Kind `data`: yields packed micro-batches.
//
// Contract (7-contracts section 4). From (seed, cursor) every rank derives the same assignment of
// the step's samples to data ranks and rows; each loads and packs only its own. The cursor alone is
// the data state. A sample that fails leaves its slot empty and moves no other; it is counted when
// its step is handed out, so that what was loaded ahead changes no count. plan() is pure;
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

inline constexpr int kDataAbi = 3;

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
  std::vector<std::string>
      files;           // image files and video frames in order of appearance, for inspect
  std::string text;    // rendered chat, for inspect
  std::string answer;  // prompts only: what the assistant said in the source
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
  bool training = true;        // false: source order, no augmentation
  bool rebuild_index = false;  // build the index again even where a stored one fits
};

// What open() knows of one shard (a file of records).
struct ShardIndex {
  std::string path;    // of the shard
  std::string stored;  // file that the index lies in; empty: it is kept in memory only
  std::string state;   // "read", or why it was built: "no index yet", "the shard has changed"
  int64_t samples = 0, tokens = 0, patches = 0, images = 0;
  int64_t failed = 0;  // samples that could not be measured
};

class KEYSEAT_API Data {
 public:
  virtual ~Data();
  // Loads the tokenizer; for training also reads the index, or builds and stores it.
  virtual Problems open(const DataFacts& facts) = 0;
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
  // (optional) The bytes that one token stands for; special tokens by their names.
  virtual std::string token_text(int64_t id) const;
  virtual int64_t end_token_id() const = 0;  // <|im_end|>
  virtual StepAssignment plan(int64_t cursor) const = 0;
  virtual void seek(int64_t cursor) = 0;
  virtual int64_t cursor() const = 0;
  virtual std::vector<Row> next_step() = 0;  // this data rank's rows, on the CPU; moves the cursor
  // Failures in the steps that this instance handed out, by stable reason ("truncated"), with the
  // first one as an example: "reason" -> (count, example).
  virtual std::map<std::string, std::pair<int64_t, std::string>> failures() const = 0;
  // (optional) The run stops at the step at which more samples than this have failed on all ranks
  // together. The core counts them (RowCounts::failed), because every rank has to stop there.
  virtual int64_t max_failed_samples() const;
  // (optional) The index that open() read or built, shard by shard.
  virtual std::vector<ShardIndex> index() const;
};

}  // namespace keyseat
