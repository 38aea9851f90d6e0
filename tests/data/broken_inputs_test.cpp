// A folder of broken inputs: each gives a named count of its own, and training goes on with the
// rest.
#include "tests/data/data_runs.h"

using namespace keyseat;
using namespace keyseat::testing;
using nlohmann::json;

namespace {

std::string text_record(const std::string& question) {
  return R"({"messages":[{"role":"user","content":")" + question +
         R"("},{"role":"assistant","content":"x"}]})";
}

std::string tar_record(const std::string& video) {
  return R"({"messages":[{"role":"user","content":[{"type":"video",)" + video +
         R"(}]},{"role":"assistant","content":"x"}]})";
}

// A PNG whose header claims that size; its pixels are those of a digit.
std::string claimed_png(uint32_t height, uint32_t width) {
  std::string png = digit_png();
  for (int i = 0; i < 4; ++i) {
    png[static_cast<size_t>(16 + i)] = static_cast<char>(width >> (24 - 8 * i));
    png[static_cast<size_t>(20 + i)] = static_cast<char>(height >> (24 - 8 * i));
  }
  return png;
}

struct Case {
  std::string reason;  // empty: a good record
  std::string record;
};

// Writes the files and the list; one case per line.
std::vector<Case> write_broken(const TempFolder& folder) {
  const std::string jpeg = digit_jpeg(), png = digit_png();
  folder.write("good.png", png);
  folder.write("jpeg_named.png", jpeg);  // a wrong ending alone does no harm
  folder.write("cut.jpg", jpeg.substr(0, jpeg.size() / 2));
  folder.write("notes.jpg", "this is no image");
  folder.write("gif.png", std::string("GIF89a\1\0\1\0", 10));
  folder.write("empty.png", "");
  folder.write("bomb.png", claimed_png(60000, 60000));
  folder.write("long.png", claimed_png(1, 70000));
  folder.write("thin.png", png_of(1, 300));
  std::string damaged = png_of(32, 32);
  damaged[damaged.size() - 14] = static_cast<char>(damaged[damaged.size() - 14] ^ 1);  // a checksum
  folder.write("damaged.png", damaged);
  folder.write("large.png", png_of(16, 16) + std::string(300000, 'x'));
  std::filesystem::create_directories(folder.path() + "/folder.png");
  folder.write("small.png", png_of(32, 32));
  folder.write("wide.png", png_of(32, 64));

  const std::vector<Case> cases = {
      {"", digit_record("good.png")},
      {"", digit_record("jpeg_named.png")},
      {"", text_record("a text")},
      {"", tar_record(R"("video":["small.png","small.png","small.png"],"fps":2)")},
      {"truncated", digit_record("cut.jpg")},
      {"unknown_format", digit_record("notes.jpg")},
      {"unsupported_format", digit_record("gif.png")},
      {"empty_file", digit_record("empty.png")},
      {"too_many_pixels", digit_record("bomb.png")},
      {"edge_too_long", digit_record("long.png")},
      {"aspect_ratio", digit_record("thin.png")},
      {"corrupt", digit_record("damaged.png")},
      {"file_too_large", digit_record("large.png")},
      {"unreadable_file", digit_record("folder.png")},
      {"missing_file", digit_record("nowhere.png")},
      {"bad_utf8", text_record("\xc3\x28")},
      {"bad_json", R"({"messages": [{"role": "user", "cont)"},
      {"bad_record", R"({"text": "no messages"})"},
      {"unknown_role", R"({"messages":[{"role":"wizard","content":"x"}]})"},
      {"placeholder_mismatch", text_record("stray <|image_pad|>")},
      {"too_long", text_record(std::string(9000, 'q'))},
      {"frame_sizes", tar_record(R"("video":["small.png","wide.png"],"fps":2)")},
      {"too_many_frames",
       tar_record(R"("video":["small.png","small.png","small.png","small.png"],"fps":2)")},
  };
  std::string lines;
  for (const Case& one : cases) lines += one.record + "\n";
  folder.write("broken.jsonl", lines);
  return cases;
}

size_t good_of(const std::vector<Case>& cases) {
  return static_cast<size_t>(std::count_if(cases.begin(), cases.end(),
                                           [](const Case& one) { return one.reason.empty(); }));
}

std::string options_of_all(size_t samples) {
  return fmt::format(
      "path = [\"broken.jsonl\"]\nmicro_batch_size = {0}\nglobal_batch_size = {0}\n"
      "max_image_bytes = 200000\nmax_video_frames = 3\n",
      samples);
}

}  // namespace

TEST_CASE("broken inputs: each has a count of its own, training goes on with the rest") {
  const TempFolder folder;
  const std::vector<Case> cases = write_broken(folder);
  const size_t good = good_of(cases);
  const std::string config = write_config(folder, "conversations", options_of_all(cases.size()));
  const CommandResult trained = keyseat_command(folder, {"train", config});
  INFO(trained.errors);
  REQUIRE(trained.status == 0);
  const std::vector<json> steps = steps_of(folder, "run");
  REQUIRE(steps.size() == 2);
  for (size_t s = 0; s < 2; ++s) {
    CHECK(steps[s]["samples"] == good);
    CHECK(steps[s]["failed_samples"] == cases.size() - good);
    CHECK(std::isfinite(steps[s]["loss"].get<double>()));
    const json& failures = steps[s]["data_failures"];
    CHECK(failures.size() == cases.size() - good);
    for (size_t line = 0; line < cases.size(); ++line) {
      if (cases[line].reason.empty()) continue;
      INFO(cases[line].reason);
      REQUIRE(failures.contains(cases[line].reason));
      CHECK(failures[cases[line].reason]["count"] == s + 1);
      const auto example = failures[cases[line].reason]["example"].get<std::string>();
      CHECK(example.find(fmt::format("broken.jsonl:{}: ", line + 1)) != std::string::npos);
    }
  }
  // The same names in `data inspect`.
  const CommandResult inspected = keyseat_command(folder, {"data", "inspect", config, "--json"});
  REQUIRE(inspected.status == 0);
  const json report = json::parse(inspected.output);
  CHECK(report["usable"] == good + 1);  // the long one is a sample, but no row takes it
  for (const Case& one : cases) {
    if (one.reason.empty() || one.reason == "too_long") continue;
    INFO(one.reason);
    CHECK(report["reasons"][one.reason]["count"] == 1);
  }
}

TEST_CASE("broken inputs: the limit stops the run at the same step, whatever is loaded ahead") {
  const TempFolder folder;
  const std::vector<Case> cases = write_broken(folder);
  const size_t broken = cases.size() - good_of(cases);
  const std::string config = write_config(
      folder, "conversations",
      options_of_all(cases.size()) + fmt::format("max_failed_samples = {}\n", 2 * broken));
  for (const auto& [threads, ahead] : {std::pair{0, 1}, {1, 8}, {4, 4}}) {
    INFO(threads << " threads, " << ahead << " steps ahead");
    const std::string run = fmt::format("run_{}", threads);
    const CommandResult stopped =
        keyseat_command(folder, {"train", config, "--set", "run.steps=5", "--set",
                                 "run.dir=" + folder.path() + "/" + run, "--set",
                                 fmt::format("data.options.threads={}", threads), "--set",
                                 fmt::format("data.options.prefetch_steps={}", ahead)});
    CHECK(stopped.status == 4);
    CHECK(stopped.errors.find(fmt::format("{} samples failed to decode, {} are allowed", 3 * broken,
                                          2 * broken)) != std::string::npos);
    CHECK(stopped.errors.find("broken.jsonl:5") != std::string::npos);
    CHECK(steps_of(folder, run).size() == 2);
  }
}

TEST_CASE("broken inputs: a cut shard is counted, and what lies before the cut is trained on") {
  const TempFolder folder;
  const std::string whole = tar_of({{"a.png", digit_png()},
                                    {"a.json", digit_record("a.png")},
                                    {"b.png", digit_png()},
                                    {"b.json", digit_record("b.png")}});
  folder.write("cut.tar", whole.substr(0, whole.size() - 1024 - 700));
  const std::string config = write_config(
      folder, "webdataset", "path = [\"cut.tar\"]\nmicro_batch_size = 2\nglobal_batch_size = 2\n");
  const CommandResult trained = keyseat_command(folder, {"train", config});
  INFO(trained.errors);
  REQUIRE(trained.status == 0);
  const std::vector<json> steps = steps_of(folder, "run");
  REQUIRE(steps.size() == 2);
  CHECK(steps[1]["samples"] == 1);
  CHECK(steps[1]["data_failures"]["cut_shard"]["count"] == 2);
  CHECK(trained.errors.find("the tar file") != std::string::npos);  // warned of at the start
}
