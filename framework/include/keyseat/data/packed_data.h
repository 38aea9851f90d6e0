// Base of data plugins: plans steps, loads rows ahead on threads, packs, counts failures. A plugin
// adds how many samples there are and how one of them is made.
#pragma once

#include <memory>
#include <mutex>

#include "keyseat/data/fault.h"
#include "keyseat/interfaces/data.h"

namespace keyseat::data {

// micro_batch_size, max_tokens, global_batch_size, shuffle, threads, prefetch_steps,
// max_failed_samples.
KEYSEAT_API OptionSchema packed_data_options();
KEYSEAT_API Problems validate_packed_data(const Options& options);

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

 protected:
  explicit PackedData(const Options& options);
  const DataFacts& facts() const { return facts_; }
  const Options& options() const { return options_; }
  // Must be called by the destructor of the most derived class: loader threads call its virtuals.
  void stop_loading();

  virtual Problems open_(const DataFacts& facts) = 0;
  virtual int64_t size_() const = 0;
  // One sample; thread-safe. `pass` tells epochs apart, for augmentation; -1: none.
  virtual Outcome<Sample> load_(int64_t id, int64_t pass) const = 0;
  virtual Outcome<Sample> load_prompt_(int64_t id) const = 0;
  // Tokens and patches without decoding pixels; thread-safe. A sample that cannot be measured
  // counts as nothing.
  virtual Outcome<std::pair<int64_t, int64_t>> measure_(int64_t id) const = 0;
  virtual std::string key_(int64_t id) const = 0;  // for messages

 private:
  struct State;
  State& planned() const;  // R4 where the source is not open for training
  Row build_row(int64_t cursor, const std::vector<int64_t>& ids);
  Problems build_plan();

  Options options_;
  DataFacts facts_;
  std::unique_ptr<State> state_;
};

}  // namespace keyseat::data
