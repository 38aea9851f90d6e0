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

TEST_CASE("broken inputs: a source with nothing usable is an error that counts the reasons") {
  const TempFolder folder;
  std::string damaged = png_of(32, 32);
  damaged[damaged.size() - 14] = static_cast<char>(damaged[damaged.size() - 14] ^ 1);
  folder.write("damaged.png", damaged);
  folder.write("good.png", digit_png());
  const std::string missing = digit_record("nowhere.png") + "\n";
  const std::string unanswered = R"({"messages":[{"role":"user","content":"why?"}]})";
  const std::string good = folder.write("good.jsonl", digit_record("good.png") + "\n");
  const std::string bad = folder.write("bad.jsonl", missing + "{cut\n" + missing);
  folder.write("damaged.jsonl", digit_record("damaged.png") + "\n");
  folder.write("unanswered.jsonl", unanswered + "\n");
  const auto options = [](const std::string& file, int samples, int rows) {
    return fmt::format("path = [\"{}\"]\nmicro_batch_size = {}\nglobal_batch_size = {}\n", file,
                       samples / rows, samples);
  };
  struct Nothing {
    std::string options, text, reason;
  };
  const std::string bad_reasons = "\n  1 bad_json: " + bad + ":2: ";
  const Nothing sources[] = {
      {options("bad.jsonl", 3, 1), "none of the 3 samples of " + bad, bad_reasons},
      {options("bad.jsonl", 3, 3), "none of the 3 samples of " + bad, bad_reasons},
      {options("bad.jsonl", 1, 1), "none of the 2 samples of " + bad, "missing_file: " + bad},
      {options("damaged.jsonl", 2, 2), "none of the 2 samples of ",
       "2 corrupt: " + folder.path() + "/damaged.jsonl:1: "},
      {options("unanswered.jsonl", 1, 1), "none of the 1 samples of ", "1 unsupervised: "},
  };
  for (const Nothing& nothing : sources) {
    INFO(nothing.options);
    const std::string config = write_config(folder, "conversations", nothing.options);
    const CommandResult trained = keyseat_command(folder, {"train", config, "--overwrite"});
    INFO(trained.errors);
    CHECK(trained.status == 4);
    CHECK(trained.errors.find("R6 " + nothing.text) != std::string::npos);
    CHECK(trained.errors.find(nothing.reason) != std::string::npos);
    CHECK_FALSE(std::filesystem::exists(folder.path() + "/run/final.safetensors"));
  }

  // Held-out data: told before the first step, not at the first evaluation.
  const std::string config = write_config(folder, "conversations", options("good.jsonl", 1, 1));
  const std::vector<std::string> held_out = {config, "--set", "eval.options.path=[\"" + bad + "\"]",
                                             "--set", "eval.every=2"};
  std::vector<std::string> train = {"train", "--overwrite"}, eval = {"eval"};
  train.insert(train.end(), held_out.begin(), held_out.end());
  eval.insert(eval.end(), held_out.begin(), held_out.end());
  const CommandResult trained = keyseat_command(folder, train);
  CHECK(trained.status == 4);
  CHECK(trained.errors.find("none of the 3 samples of " + bad + " can be evaluated") !=
        std::string::npos);
  CHECK(steps_of(folder, "run").empty());
  REQUIRE(keyseat_command(folder, {"train", config, "--overwrite"}).status == 0);
  for (const char* measure : {"loss", "accuracy"}) {
    INFO(measure);
    std::vector<std::string> one = eval;
    one.insert(one.end(), {"--set", fmt::format("eval.measure=[\"{}\"]", measure)});
    const CommandResult evaluated = keyseat_command(folder, one);
    CHECK(evaluated.status == 4);
    CHECK(evaluated.output == "");
    CHECK(evaluated.errors.find("2 missing_file: " + bad + ":1: ") != std::string::npos);
  }
}
