// The same samples and losses for any number of loader threads, and after a stop at any step.
#include "tests/data/data_runs.h"

using namespace keyseat;
using namespace keyseat::testing;

namespace {

// Mixed lengths, packed by tokens, two sources mixed by weight, augmented: all that could depend on
// who loads when.
Values mixed_source(const TempFolder& folder) {
  Files files = {{"a.png", digit_png()}, {"b.jpg", digit_jpeg()}};
  for (int i = 0; i < 9; ++i) {
    files.push_back(
        {std::to_string(i) + ".json",
         digit_record(i % 2 == 0 ? "a.png" : "b.jpg", std::string(size_t(1 + 5 * i), 'y'))});
  }
  return {{"path", std::vector<std::string>{kHeldout, folder.write("own.tar", tar_of(files))}},
          {"weights", std::vector<double>{2, 1}},
          {"tokenizer", std::string("configs/data/tokenizer")},
          {"index_dir", folder.path() + "/index"},
          {"max_tokens", int64_t{160}},
          {"global_batch_size", int64_t{12}},
          {"augment", int64_t{2}}};
}

}  // namespace

TEST_CASE("repeat: rows are the same for 0, 1, 2, 4 threads, and from any cursor on") {
  constexpr int64_t kSteps = 8;
  const TempFolder folder;
  const Values values = mixed_source(folder);
  const auto plain = open_data("webdataset", with(values, {{"threads", int64_t{0}}}));
  std::vector<std::vector<std::string>> expected;
  for (int64_t step = 0; step < kSteps; ++step) expected.push_back(rows_text(plain->next_step()));
  CHECK(expected[0].size() > 2);
  for (const int64_t threads : {1, 2, 4}) {
    INFO(threads << " threads");
    const auto data =
        open_data("webdataset", with(values, {{"threads", threads}, {"prefetch_steps", threads}}));
    for (int64_t step = 0; step < kSteps; ++step)
      CHECK(rows_text(data->next_step()) == expected[static_cast<size_t>(step)]);
    // A run that was stopped before step `stop` and starts again there.
    for (int64_t stop = 0; stop < kSteps; ++stop) {
      INFO("stopped before step " << stop);
      const auto resumed =
          stop % 3 == 0 ? open_data("webdataset", with(values, {{"threads", threads}})) : data;
      resumed->seek(plain->plan(0).next_cursor * stop);
      for (int64_t step = stop; step < std::min(stop + 3, kSteps); ++step)
        CHECK(rows_text(resumed->next_step()) == expected[static_cast<size_t>(step)]);
    }
  }
}

TEST_CASE("repeat: losses are the same for 1, 2 and 4 threads") {
  const TempFolder folder;
  const std::string heldout = std::filesystem::absolute(kHeldout).string();
  const std::string config =
      write_config(folder, "webdataset",
                   "path = [\"" + heldout +
                       "\"]\nmax_tokens = 128\nglobal_batch_size = 12\naugment = 1\n"
                       "index_dir = \"index\"\n");
  std::vector<double> expected;
  for (const int threads : {1, 2, 4}) {
    INFO(threads << " threads");
    const std::string run = fmt::format("run_{}", threads);
    const CommandResult trained =
        keyseat_command(folder, {"train", config, "--set", "run.steps=4", "--set",
                                 "run.dir=" + folder.path() + "/" + run, "--set",
                                 fmt::format("data.options.threads={}", threads)});
    INFO(trained.errors);
    REQUIRE(trained.status == 0);
    std::vector<double> losses;
    for (const auto& step : steps_of(folder, run)) losses.push_back(step["loss"].get<double>());
    REQUIRE(losses.size() == 4);
    if (expected.empty()) expected = losses;
    CHECK(losses == expected);
  }
}
