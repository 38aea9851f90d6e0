// Base of data plugins: plans steps, loads rows ahead on threads, packs, counts failures. A plugin
// adds how many samples there are and how one of them is made.
#pragma once

#include <memory>
#include <vector>

#include "keyseat/data/fault.h"
#include "keyseat/interfaces/data.h"

namespace keyseat::data {

// micro_batch_size, max_tokens, global_batch_size, shuffle, threads, prefetch_steps,
// max_failed_samples.
KEYSEAT_API OptionSchema packed_data_options();
KEYSEAT_API Problems validate_packed_data(const Options& options);

// What of a sample is known without decoding its pixels.
struct SampleSize {
  int64_t tokens = 0, patches = 0, images = 0;
  bool operator==(const SampleSize&) const = default;
};

// A source of its own within the data: samples that follow each other by id.
struct SourceShare {
  int64_t samples = 0;
  double weight = 1;  // share of the steps' samples, relative to the other sources; above 0
};

class KEYSEAT_API PackedData : public Data {
 public:
  ~PackedData() override;
  Problems open(const DataFacts& facts) final;
  int64_t size() const final { return size_(); }
  Result<Sample> sample(int64_t id) final;
  Result<Sample> prompt(int64_t id) final;
  StepAssignment plan(int64_t cursor) const final;
  void seek(int64_t cursor) final;
  int64_t cursor() const final;
  std::vector<Row> next_step() final;
  std::map<std::string, std::pair<int64_t, std::string>> failures() const final;
  int64_t max_failed_samples() const final;

 protected:
  explicit PackedData(const Options& options);
  const DataFacts& facts() const { return facts_; }
  const Options& options() const { return options_; }
  // Must be called by the destructor of the most derived class: loader threads call its virtuals.
  void stop_loading();

  virtual Problems open_(const DataFacts& facts) = 0;
  virtual int64_t size_() const = 0;
  // Sources that are mixed by weight; one of all samples by default.
  virtual std::vector<SourceShare> sources_() const;
  // One sample; thread-safe. `pass` tells epochs apart, for augmentation; -1: none.
  virtual Outcome<Sample> load_(int64_t id, int64_t pass) const = 0;
  virtual Outcome<Sample> load_prompt_(int64_t id) const = 0;
  // Size without decoding pixels; thread-safe.
  virtual Outcome<SampleSize> measure_(int64_t id) const = 0;
  // Sizes by id, asked once when a plan is made; nothing for a sample that cannot be measured. By
  // default measure_ of each on `threads` threads.
  virtual std::vector<std::optional<SampleSize>> measure_all_() const;
  virtual std::string key_(int64_t id) const = 0;  // for messages

 private:
  struct State;
  State& planned() const;  // R4 where the source is not open for training
  Problems build_plan();
  Problem no_sample_fits(int64_t limit) const;
  Outcome<Sample> load_checked(int64_t id, int64_t pass) const;

  Options options_;
  DataFacts facts_;
  std::unique_ptr<State> state_;
};

}  // namespace keyseat::data
