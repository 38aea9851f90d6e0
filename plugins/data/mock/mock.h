// Random samples: bring-up without data. Figures of such a run are no performance measurement, and
// every line says so.
#pragma once

#include "keyseat/data/packed_data.h"

namespace keyseat_data_mock {

class Mock final : public keyseat::data::PackedData {
 public:
  static keyseat::OptionSchema options();
  static keyseat::Problems validate(const keyseat::Options& options);
  Mock(const keyseat::Options& options, const keyseat::PluginHost& host);
  ~Mock() override;

  bool synthetic() const override { return true; }
  std::string decode(const std::vector<int64_t>& tokens) const override;
  int64_t end_token_id() const override { return 0; }

 protected:
  keyseat::Problems open_(const keyseat::DataFacts& facts) override;
  int64_t size_() const override { return samples_; }
  keyseat::data::Outcome<keyseat::Sample> load_(int64_t id, int64_t pass) const override;
  keyseat::data::Outcome<keyseat::Sample> load_prompt_(int64_t id) const override;
  keyseat::data::Outcome<keyseat::data::SampleSize> measure_(int64_t id) const override;
  std::string key_(int64_t id) const override;

 private:
  // Tokens without pixels.
  keyseat::Sample text_of(int64_t id) const;
  int64_t samples_, min_tokens_, max_sample_tokens_, images_, image_patches_;
};

}  // namespace keyseat_data_mock
