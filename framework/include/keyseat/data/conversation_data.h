// Data made of chat records with image files: from a record to a packed sample. Plugins add where
// records come from.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "keyseat/data/chat.h"
#include "keyseat/data/image.h"
#include "keyseat/data/packed_data.h"
#include "keyseat/data/patches.h"
#include "keyseat/data/tokenizer.h"

namespace keyseat::data {

// One record as it lies in the source: {"messages": [...]} and the files that its image parts name.
class KEYSEAT_API Record {
 public:
  virtual ~Record();
  virtual std::string key() const = 0;  // "digits-train.tar:000123"
  virtual std::string json() const = 0;
  virtual Outcome<std::vector<uint8_t>> file(const std::string& name) const = 0;
};

// tokenizer, add_vision_id, augment, blank_images, image limits; beside those of
// packed_data_options().
KEYSEAT_API OptionSchema conversation_options();

class KEYSEAT_API ConversationData : public PackedData {
 public:
  ~ConversationData() override;
  std::string decode(const std::vector<int64_t>& tokens) const final;
  int64_t end_token_id() const final { return end_token_id_; }

 protected:
  explicit ConversationData(const Options& options);
  // Finds the records; called by open before anything else of the source.
  virtual Problems open_source_() = 0;
  virtual Outcome<std::unique_ptr<Record>> record_(int64_t id) const = 0;  // thread-safe

 private:
  Problems open_(const DataFacts& facts) final;
  Outcome<Sample> load_(int64_t id, int64_t pass) const final;
  Outcome<Sample> load_prompt_(int64_t id) const final;
  Outcome<std::pair<int64_t, int64_t>> measure_(int64_t id) const final;

  enum class Form { kTraining, kPrompt, kMeasure };
  Outcome<Sample> build(int64_t id, int64_t pass, Form form) const;
  Problems check_vocabulary(const DataFacts& facts) const;

  std::optional<Tokenizer> tokenizer_;
  std::optional<PatchCutter> cutter_;  // nothing for models without vision
  ImageLimits limits_;
  int64_t end_token_id_ = -1;
};

}  // namespace keyseat::data
