// From a record to a sample, stage by stage: messages, sizes of images and videos, tokens, patches.
#pragma once

#include <optional>
#include <string>

#include "data/visuals.h"
#include "keyseat/data/packed_data.h"
#include "keyseat/data/tokenizer.h"

namespace keyseat::data {

// A record as it lies in its source.
struct RecordSource {
  int64_t id = 0;  // of the sample
  std::string key;
  std::string json;
  ReadFile read;  // the files that it names
};

struct BuilderSettings {
  bool add_vision_id = false;
  int64_t augment = 0;  // pixels
  bool blank_images = false;
  int64_t seed = 0;
};

class SampleBuilder {
 public:
  // `visuals`: nothing for models without vision.
  SampleBuilder(Tokenizer tokenizer, std::optional<VisualReader> visuals,
                const BuilderSettings& settings)
      : tokenizer_(std::move(tokenizer)), visuals_(std::move(visuals)), settings_(settings) {}

  // `pass`: of augmentation; -1: none.
  Outcome<Sample> training(const RecordSource& record, int64_t pass) const;
  // Without its last assistant turn, which becomes `answer`.
  Outcome<Sample> prompt(const RecordSource& record) const;
  Outcome<SampleSize> measure(const RecordSource& record) const;
  const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  struct Draft;
  Outcome<Draft> draft(const RecordSource& record, bool is_prompt) const;
  Outcome<std::vector<Visual>> visuals_of(const std::vector<Message>& messages,
                                          const ReadFile& read) const;
  Outcome<Sample> finish(Draft draft, int64_t pass) const;

  Tokenizer tokenizer_;
  std::optional<VisualReader> visuals_;
  BuilderSettings settings_;
};

}  // namespace keyseat::data
