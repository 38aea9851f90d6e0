#include "keyseat/data/packed_data.h"

#include "data/row_loader.h"
#include "data/step_planner.h"
#include "keyseat/data/packing.h"

namespace keyseat::data {

OptionSchema packed_data_options() {
  return {
      Option("micro_batch_size", OptionType::kInt)
          .optional()
          .range(1, 1 << 20)
          .unit("samples")
          .doc("Samples in one packed row; give this or max_tokens."),
      Option("max_tokens", OptionType::kInt)
          .optional()
          .range(1, 1 << 26)
          .unit("tokens")
          .doc("Rows are filled with whole samples up to this many tokens; give this or "
               "micro_batch_size."),
      Option("global_batch_size", OptionType::kInt)
          .required()
          .range(1, 1 << 26)
          .unit("samples")
          .doc("Samples of one optimizer step over all data ranks; rows beyond one per rank are "
               "accumulated."),
      Option("shuffle", OptionType::kBool)
          .defaults_to(true)
          .doc("Every epoch in an order of its own, from run.seed."),
      Option("threads", OptionType::kInt)
          .defaults_to(int64_t{1})
          .range(0, 256)
          .level(OptionLevel::kTuning)
          .doc("Loader threads per rank; 0 loads inside the step. Results do not depend on it."),
      Option("prefetch_steps", OptionType::kInt)
          .defaults_to(int64_t{2})
          .range(1, 64)
          .unit("steps")
          .level(OptionLevel::kTuning)
          .doc("Steps loaded ahead."),
      Option("max_failed_samples", OptionType::kInt)
          .defaults_to(int64_t{100})
          .range(0, 1e12)
          .unit("samples")
          .doc("Samples that may fail to decode before the run stops."),
  };
}

Problems validate_packed_data(const Options& options) {
  Problems problems;
  const bool by_count = options.has("micro_batch_size"), by_tokens = options.has("max_tokens");
  if (by_count == by_tokens) {
    problems.push_back(options.problem(
        Code::kC4Combination, by_count ? "max_tokens" : "micro_batch_size",
        by_count ? "both micro_batch_size and max_tokens are given"
                 : "neither micro_batch_size nor max_tokens is given",
        "rows are sized either by samples or by tokens", "Give exactly one of them."));
  }
  if (by_count && options.get_int("global_batch_size") % options.get_int("micro_batch_size") != 0) {
    problems.push_back(options.problem(
        Code::kC4Combination, "global_batch_size",
        fmt::format("global_batch_size {} is not a multiple of micro_batch_size {}",
                    options.get_int("global_batch_size"), options.get_int("micro_batch_size")),
        "a step is made of whole rows"));
  }
  return problems;
}

struct PackedData::State {
  std::unique_ptr<StepPlanner> planner;
  std::unique_ptr<RowLoader> loader;
  int64_t cursor = 0;       // of the next step handed out
  int64_t next_queued = 0;  // of the next step queued
  mutable std::mutex mutex;
  std::map<std::string, std::pair<int64_t, std::string>> failures;
  int64_t failed = 0;
};

PackedData::PackedData(const Options& options)
    : options_(options), state_(std::make_unique<State>()) {}

PackedData::~PackedData() = default;

void PackedData::stop_loading() { state_->loader.reset(); }

Problems PackedData::open(const DataFacts& facts) {
  facts_ = facts;
  Problems problems = open_(facts);
  if (!problems.empty()) return problems;
  if (size_() == 0) {
    return {
        options_.problem(Code::kC3Value, "global_batch_size", "the data source holds no samples")};
  }
  return facts.training ? build_plan() : Problems{};
}

Problems PackedData::build_plan() {
  PlanSettings settings;
  settings.samples = size_();
  settings.seed = facts_.seed;
  settings.shuffle = options_.get_bool("shuffle");
  settings.global_batch_size = options_.get_int("global_batch_size");
  settings.micro_batch_size =
      options_.has("micro_batch_size") ? options_.get_int("micro_batch_size") : 0;
  settings.max_tokens = options_.has("max_tokens") ? options_.get_int("max_tokens") : 0;
  settings.data_ranks = facts_.data_ranks;
  const int64_t per_lap = settings.micro_batch_size * settings.data_ranks;
  if (per_lap > 0 && settings.global_batch_size % per_lap != 0) {
    return {options_.problem(
        Code::kC4Combination, "global_batch_size",
        fmt::format("global_batch_size {} is not a multiple of micro_batch_size {} x {} data ranks",
                    settings.global_batch_size, settings.micro_batch_size, settings.data_ranks),
        "every data rank runs the same number of rows")};
  }
  // Sizes are needed to fill rows or to balance several of them; a single row of a fixed count
  // needs none.
  std::vector<SampleSize> sizes;
  if (settings.max_tokens > 0 || settings.global_batch_size > settings.micro_batch_size) {
    sizes.resize(settings.samples);
    const int64_t workers = std::max<int64_t>(options_.get_int("threads"), 1);
    std::atomic<int64_t> next{0};
    std::vector<std::thread> threads;
    for (int64_t w = 0; w < workers; ++w) {
      threads.emplace_back([&] {
        for (int64_t id = next++; id < settings.samples; id = next++) {
          if (const auto size = measure_(id)) sizes[id] = {size.value().first, size.value().second};
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  state_->planner = std::make_unique<StepPlanner>(settings, std::move(sizes));
  state_->loader = std::make_unique<RowLoader>(
      [this](int64_t cursor, const std::vector<int64_t>& ids) { return build_row(cursor, ids); },
      options_.get_int("threads"));
  return {};
}

Result<Sample> PackedData::sample(int64_t id) {
  auto loaded = load_(id, -1);
  if (!loaded) return loaded.fault().problem(key_(id));
  return std::move(loaded).value();
}

Result<Sample> PackedData::prompt(int64_t id) {
  auto loaded = load_prompt_(id);
  if (!loaded) return loaded.fault().problem(key_(id));
  return std::move(loaded).value();
}

PackedData::State& PackedData::planned() const {
  if (!state_->planner) {
    throw Error(Problem{Code::kR4Contract,
                        {},
                        "steps were asked of a data source that is not open for training",
                        "only DataFacts::training makes a plan of steps",
                        "read single samples with sample() or prompt()"});
  }
  return *state_;
}

StepAssignment PackedData::plan(int64_t cursor) const { return planned().planner->plan(cursor); }

void PackedData::seek(int64_t cursor) {
  planned().loader->clear();
  state_->cursor = state_->next_queued = cursor;
}

int64_t PackedData::cursor() const { return state_->cursor; }

std::vector<Row> PackedData::next_step() {
  const auto ahead = static_cast<size_t>(options_.get_int("prefetch_steps"));
  while (planned().loader->queued() <= ahead) {
    StepAssignment step = plan(state_->next_queued);
    state_->loader->add(step.cursor, std::move(step.rows[facts_.data_rank]));
    state_->next_queued = step.next_cursor;
  }
  std::vector<Row> rows = state_->loader->take();
  state_->cursor += options_.get_int("global_batch_size");
  return rows;
}

Row PackedData::build_row(int64_t cursor, const std::vector<int64_t>& ids) {
  const int64_t pass = cursor / size_();
  const int64_t limit =
      options_.has("max_tokens") ? options_.get_int("max_tokens") : facts_.input.max_positions;
  std::vector<Sample> samples;
  int64_t failed = 0;
  for (int64_t id : ids) {
    Outcome<Sample> loaded = load_(id, pass);
    if (loaded && limit > 0 && static_cast<int64_t>(loaded.value().tokens.size()) > limit) {
      loaded = Fault{FaultKind::kTooLong, fmt::format("{} tokens, the limit is {}",
                                                      loaded.value().tokens.size(), limit)};
    }
    if (loaded) {
      samples.push_back(std::move(loaded).value());
      continue;
    }
    ++failed;
    const std::lock_guard<std::mutex> lock(state_->mutex);
    auto& [count, example] = state_->failures[fault_name(loaded.fault().kind)];
    if (++count == 1) example = key_(id) + ": " + loaded.fault().detail;
    if (++state_->failed > options_.get_int("max_failed_samples")) {
      throw Error(Problem{Code::kR6Data, options_.where("max_failed_samples"),
                          fmt::format("{} samples failed to decode, the last one: {}",
                                      state_->failed, loaded.fault().problem(key_(id)).text()),
                          "more than data.options.max_failed_samples",
                          "Look at the source with `keyseat data inspect`."});
    }
  }
  std::vector<const Sample*> pointers;
  for (const Sample& sample : samples) pointers.push_back(&sample);
  PackOptions pack_options;
  pack_options.input = facts_.input;
  return pack(pointers, pack_options, failed);
}

std::map<std::string, std::pair<int64_t, std::string>> PackedData::failures() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->failures;
}

}  // namespace keyseat::data
