// Legend: P patches, D elements of a patch.
#include "keyseat/data/packed_data.h"

#include "data/failures.h"
#include "data/row_loader.h"
#include "data/step_planner.h"
#include "data/utf8.h"
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
          .doc("Samples that may fail to decode, on all ranks together; the run stops at the step "
               "that "
               "passes it."),
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
  std::vector<std::optional<SampleSize>> sizes;  // by id; empty where the plan needs none
  int64_t cursor = 0;                            // of the next step handed out
  int64_t next_queued = 0;                       // of the next step queued
  Failures failures;
};

PackedData::PackedData(const Options& options)
    : options_(options), state_(std::make_unique<State>()) {}

PackedData::~PackedData() = default;

void PackedData::stop_loading() { state_->loader.reset(); }

int64_t PackedData::max_failed_samples() const { return options_.get_int("max_failed_samples"); }

std::vector<SourceShare> PackedData::sources_() const { return {{size_(), 1.0}}; }

Problems PackedData::open(const DataFacts& facts) {
  facts_ = facts;
  Problems problems = open_(facts);
  if (!problems.empty()) return problems;
  if (size_() == 0) {
    return {Problem{Code::kR6Data, options_.where("global_batch_size"),
                    "the data source holds no samples", "", ""}};
  }
  return facts.training ? build_plan() : Problems{};
}

namespace {

// Longest sample that a row takes; 0: any.
int64_t longest_sample(const Options& options, const DataFacts& facts) {
  const int64_t row = options.has("max_tokens") ? options.get_int("max_tokens") : 0;
  const int64_t model = facts.input.max_positions;
  return row > 0 && model > 0 ? std::min(row, model) : std::max(row, model);
}

Fault too_long(int64_t tokens, int64_t limit) {
  return {FaultKind::kTooLong, fmt::format("{} tokens, the limit is {}", tokens, limit)};
}

PlanSettings plan_settings(const Options& options, const DataFacts& facts) {
  PlanSettings settings;
  settings.seed = facts.seed;
  settings.shuffle = options.get_bool("shuffle");
  settings.global_batch_size = options.get_int("global_batch_size");
  settings.micro_batch_size =
      options.has("micro_batch_size") ? options.get_int("micro_batch_size") : 0;
  settings.max_tokens = options.has("max_tokens") ? options.get_int("max_tokens") : 0;
  settings.data_ranks = facts.data_ranks;
  return settings;
}

}  // namespace

std::vector<std::optional<SampleSize>> PackedData::measure_all_() const {
  std::vector<std::optional<SampleSize>> sizes(static_cast<size_t>(size_()));
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (int64_t w = std::max<int64_t>(options_.get_int("threads"), 1); w > 0; --w) {
    threads.emplace_back([&] {
      for (size_t id = next++; id < sizes.size(); id = next++) {
        if (const auto size = measure_(static_cast<int64_t>(id))) sizes[id] = size.value();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return sizes;
}

Problems PackedData::build_plan() {
  PlanSettings settings = plan_settings(options_, facts_);
  settings.sources = sources_();
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
  std::vector<SampleSize> planned;
  if (settings.max_tokens > 0 || settings.global_batch_size > settings.micro_batch_size) {
    state_->sizes = measure_all_();
    const int64_t limit = longest_sample(options_, facts_);
    bool usable = false;
    for (const std::optional<SampleSize>& size : state_->sizes) {
      const bool loads = size && (limit == 0 || size->tokens <= limit);
      planned.push_back(loads ? *size : SampleSize{});  // what will not load takes no room
      usable = usable || loads;
    }
    if (!usable) return {no_sample_fits(limit)};
  }
  state_->planner = std::make_unique<StepPlanner>(std::move(settings), std::move(planned));
  const auto build = [this](const PlannedRow& planned_row) {
    std::vector<Sample> samples;
    LoadedRow loaded;
    for (const PlannedSample& wanted : planned_row) {
      Outcome<Sample> sample = load_checked(wanted.id, wanted.pass);
      if (sample) {
        samples.push_back(std::move(sample).value());
      } else {
        loaded.failed.push_back({fault_name(sample.fault().kind),
                                 utf8_lossy(key_(wanted.id) + ": " + sample.fault().detail)});
      }
    }
    std::vector<const Sample*> pointers;
    for (const Sample& sample : samples) pointers.push_back(&sample);
    PackOptions pack_options;
    pack_options.input = facts_.input;
    loaded.row = pack(pointers, pack_options, static_cast<int64_t>(loaded.failed.size()));
    return loaded;
  };
  state_->loader = std::make_unique<RowLoader>(build, options_.get_int("threads"));
  return {};
}

// Why none of the samples can be trained on; measured once more, since only sizes were kept.
Problem PackedData::no_sample_fits(int64_t limit) const {
  Failures failures;
  for (int64_t id = 0; id < size_(); ++id) {
    const Outcome<SampleSize> size = measure_(id);
    const Fault fault = size ? too_long(size.value().tokens, limit) : size.fault();
    add_failure(failures, fault_name(fault.kind), utf8_lossy(key_(id) + ": " + fault.detail));
  }
  return nothing_usable(size_(), "trained on", index(), failures);
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

StepAssignment PackedData::plan(int64_t cursor) const {
  const PlannedStep step = planned().planner->plan(cursor);
  StepAssignment assignment{step.cursor, step.next_cursor, {}};
  for (const auto& rank : step.ranks) {
    auto& rows = assignment.rows.emplace_back();
    for (const PlannedRow& row : rank) {
      auto& ids = rows.emplace_back();
      for (const PlannedSample& sample : row) ids.push_back(sample.id);
    }
  }
  return assignment;
}

void PackedData::seek(int64_t cursor) {
  planned().loader->clear();
  state_->cursor = state_->next_queued = cursor;
}

int64_t PackedData::cursor() const { return state_->cursor; }

std::vector<Row> PackedData::next_step() {
  const auto ahead = static_cast<size_t>(options_.get_int("prefetch_steps"));
  while (planned().loader->queued() <= ahead) {
    PlannedStep step = state_->planner->plan(state_->next_queued);
    state_->loader->add(std::move(step.ranks[static_cast<size_t>(facts_.data_rank)]));
    state_->next_queued = step.next_cursor;
  }
  std::vector<Row> rows;
  for (LoadedRow& loaded : state_->loader->take()) {
    for (const FailedSample& failed : loaded.failed)
      add_failure(state_->failures, failed.reason, failed.example);
    rows.push_back(std::move(loaded.row));
  }
  state_->cursor += options_.get_int("global_batch_size");
  return rows;
}

// A sample that fits the rows and is what the plan was made with.
Outcome<Sample> PackedData::load_checked(int64_t id, int64_t pass) const {
  Outcome<Sample> loaded = load_(id, pass);
  if (!loaded) return loaded;
  const auto tokens = static_cast<int64_t>(loaded.value().tokens.size());
  const at::Tensor& patches_PD = loaded.value().patches;
  const int64_t patches = patches_PD.defined() ? patches_PD.size(0) : 0;
  const int64_t limit = longest_sample(options_, facts_);
  if (limit > 0 && tokens > limit) return too_long(tokens, limit);
  if (state_->sizes.empty()) return loaded;
  const std::optional<SampleSize>& known = state_->sizes[static_cast<size_t>(id)];
  if (!known || known->tokens != tokens || known->patches != patches) {
    return Fault{
        FaultKind::kChanged,
        fmt::format("{} tokens and {} patches, but {} when it was measured", tokens, patches,
                    known ? fmt::format("{} and {}", known->tokens, known->patches)
                          : std::string("it could not be read"))};
  }
  return loaded;
}

std::map<std::string, std::pair<int64_t, std::string>> PackedData::failures() const {
  return state_->failures;
}

}  // namespace keyseat::data
