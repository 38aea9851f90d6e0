#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

#include "data/data_fixture.h"

using namespace keyseat;
using namespace keyseat::testing;

namespace {

const Values kCommon = {{"tokenizer", std::string("configs/data/tokenizer")},
                        {"micro_batch_size", int64_t{1}},
                        {"global_batch_size", int64_t{1}}};

Values source(const std::string& path, const Values& changes = {}) {
  return with(with(kCommon, {{"path", std::vector<std::string>{path}}}), changes);
}

std::string text_record(const std::string& question, const std::string& answer) {
  return R"({"messages":[{"role":"user","content":")" + question +
         R"("},{"role":"assistant","content":")" + answer + R"("}]})";
}

// The fault of sample `id` in words.
std::string fault_of(Data& data, int64_t id) {
  const auto sample = data.sample(id);
  REQUIRE_FALSE(sample.ok());
  CHECK(sample.problem().code == Code::kR6Data);
  return sample.problem().text();
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("conversations: one line is one sample, blank lines are none") {
  const TempFolder folder;
  folder.write("image.png", digit_png());
  const std::string path = folder.write(
      "train.jsonl", digit_record("image.png") + "\n\n  \n" + text_record("hello", "hi"));
  const auto data = open_data("conversations", source(path));
  REQUIRE(data->size() == 2);
  const Sample first = data->sample(0).value_or_throw(), second = data->sample(1).value_or_throw();
  CHECK(first.key == path + ":1");
  CHECK(second.key == path + ":4");
  CHECK(first.patches.size(0) == 16);
  CHECK_FALSE(second.patches.defined());
  CHECK(second.grid_thw.empty());
  CHECK(data->prompt(1).value_or_throw().answer == "hi");
}

TEST_CASE("conversations: the same record gives the same sample as a shard of webdataset") {
  const TempFolder folder;
  folder.write("a.png", digit_png());
  const auto lines =
      open_data("conversations", source(folder.write("a.jsonl", digit_record("a.png"))));
  const std::string tar =
      folder.write("a.tar", tar_of({{"a.png", digit_png()}, {"a.json", digit_record("a.png")}}));
  const auto shard =
      open_data("webdataset", with(kCommon, {{"path", std::vector<std::string>{tar}}}));
  CHECK(rows_text(lines->next_step()) == rows_text(shard->next_step()));
}

TEST_CASE("conversations: every assistant turn is supervised") {
  const TempFolder folder;
  const std::string path = folder.write(
      "a.jsonl",
      R"({"messages":[{"role":"system","content":"be kind"},{"role":"user","content":"one"},)"
      R"({"role":"assistant","content":"two"},{"role":"user","content":"three"},)"
      R"({"role":"assistant","content":"four"}]})");
  const auto data = open_data("conversations", source(path));
  const Sample sample = data->sample(0).value_or_throw();
  std::vector<int64_t> supervised;
  for (const int64_t label : sample.labels) {
    if (label >= 0) supervised.push_back(label);
  }
  CHECK(data->decode(supervised) == "twofour");
  CHECK(std::count(supervised.begin(), supervised.end(), data->end_token_id()) == 2);
  // Only the last turn is asked for.
  CHECK(data->prompt(0).value_or_throw().answer == "four");
  CHECK(has(data->prompt(0).value_or_throw().text, "two"));
}

TEST_CASE("conversations: image names start at image_root, by default beside the file") {
  const TempFolder folder;
  folder.write("pictures/a.png", digit_png());
  const std::string path = folder.write("lists/a.jsonl", digit_record("a.png"));
  const auto lost = open_data("conversations", source(path));
  CHECK(has(fault_of(*lost, 0), "missing_file"));
  const auto found =
      open_data("conversations", source(path, {{"image_root", folder.path() + "/pictures"}}));
  CHECK(found->sample(0).ok());
}

TEST_CASE("conversations: what cannot be used is named with its line") {
  const TempFolder folder;
  folder.write("a.png", digit_png());
  std::filesystem::create_directories(folder.path() + "/folder.png");
  const std::string path = folder.write(
      "a.jsonl",
      "[1, 2]\n"                                 // 0
      "{\"messages\": []}\n"                     // 1
          + digit_record("folder.png") + "\n"    // 2
          + text_record("\xc3\x28", "x") + "\n"  // 3: bad UTF-8
          + R"({"messages":[{"role":"user","content":[{"type":"video","video":"v.mp4"}]}]})" +
          "\n" + R"({"messages":[{"role":"user","content":"no answer"}]})" + "\n"  // 5
          + text_record("stray <|image_pad|> placeholder", "x"));                  // 6
  const auto data = open_data("conversations", source(path));
  CHECK(has(fault_of(*data, 0), path + ":1"));
  CHECK(has(fault_of(*data, 0), "bad_record"));
  CHECK(has(fault_of(*data, 2), "unreadable_file"));
  CHECK(has(fault_of(*data, 3), "bad_utf8"));
  CHECK(has(fault_of(*data, 4), "unsupported_format"));
  CHECK(has(fault_of(*data, 6), "placeholder_mismatch"));
  CHECK_FALSE(data->prompt(5).ok());
  CHECK_FALSE(data->prompt(1).ok());
}

TEST_CASE("conversations: limits of images") {
  const TempFolder folder;
  folder.write("a.png", digit_png());
  const std::string path = folder.write("a.jsonl", digit_record("a.png"));
  const auto bytes = open_data("conversations", source(path, {{"max_image_bytes", int64_t{50}}}));
  CHECK(has(fault_of(*bytes, 0), "file_too_large"));
  const auto pixels = open_data("conversations", source(path, {{"max_image_pixels", int64_t{63}}}));
  CHECK(has(fault_of(*pixels, 0), "too_many_pixels"));
}

TEST_CASE("conversations: samples longer than the model fail, shorter ones go on") {
  const TempFolder folder;
  const std::string path = folder.write(
      "a.jsonl", text_record(std::string(4000, 'q'), "x") + "\n" + text_record("short", "x"));
  const auto data = open_data("conversations", source(path, {{"micro_batch_size", int64_t{2}},
                                                             {"global_batch_size", int64_t{2}}}));
  const std::vector<Row> rows = data->next_step();
  CHECK(rows.at(0).facts.counts.failed == 1);
  CHECK(rows.at(0).facts.sample_ids == std::vector<int64_t>{1});
  CHECK(data->failures().count("too_long") == 1);
}

TEST_CASE("conversations: a model without vision takes text only") {
  const TempFolder folder;
  folder.write("a.png", digit_png());
  const std::string path =
      folder.write("a.jsonl", digit_record("a.png") + "\n" + text_record("hello", "hi"));
  DataFacts facts;
  facts.input.vocab_size = 640;
  facts.input.position_rule = "plain";
  const auto data = open_data("conversations", source(path), facts);
  CHECK(has(fault_of(*data, 0), "the model takes text only"));
  CHECK(data->sample(1).ok());
}

TEST_CASE("conversations: a file that is none is refused") {
  const TempFolder folder;
  const auto refused = [&](const std::string& path) {
    return make_plugin<Data>("conversations", source(path))->open(digit_facts());
  };
  check_problem(refused(folder.path() + "/missing.jsonl"), Code::kR7File, "no such shard");
  check_problem(refused(folder.path()), Code::kR7File, "a folder of *.jsonl files");
  check_problem(refused(folder.write("empty.jsonl", "\n\n")), Code::kR6Data,
                "holds no conversation");
}
