// Videos as lists of frames, in both sources of conversations, against what transformers' Qwen3-VL
// processor recorded.
#include <ATen/ops/equal.h>

#include "tests/data/data_runs.h"

using namespace keyseat;
using namespace keyseat::testing;
using nlohmann::json;

namespace {

const json& recorded() {
  static const json cases = json::parse(std::ifstream("tests/fixtures/tokenizer/chat_cases.json"));
  return cases;
}

DataFacts recorded_facts() {
  const json& image = recorded()["image_processor"];
  DataFacts facts = digit_facts();
  facts.input.patch_size = image["patch_size"];
  facts.input.temporal_patch_size = image["temporal_patch_size"];
  facts.input.merge_size = image["merge_size"];
  facts.input.min_pixels = image["min_pixels"];
  facts.input.max_pixels = image["max_pixels"];
  const json& tokens = recorded()["special_tokens"];
  facts.input.vision_start_token_id = tokens["<|vision_start|>"];
  facts.input.vision_end_token_id = tokens["<|vision_end|>"];
  facts.input.image_token_id = tokens["<|image_pad|>"];
  facts.input.video_token_id = tokens["<|video_pad|>"];
  return facts;
}

// The case as a record with files: images and frames of the recorded sizes. An answer is added,
// which the prompt leaves out again.
std::string record_of(const json& one, Files& files) {
  json messages = one["messages"];
  size_t image = 0, video = 0;
  for (json& message : messages) {
    if (!message["content"].is_array()) continue;
    for (json& part : message["content"]) {
      if (part["type"] == "image") {
        const json& size = one["image_sizes_hw"][image];
        part["image"] = fmt::format("image{}.png", image++);
        files.push_back({part["image"], png_of(size[0], size[1], 7)});
      } else if (part["type"] == "video") {
        const json& size = one["video_sizes_thw"][video++];
        for (int frame = 0; frame < size[0].get<int>(); ++frame) {
          part["video"].push_back(fmt::format("frame{}-{}.png", video, frame));
          files.push_back(
              {part["video"].back(), png_of(size[1], size[2], static_cast<uint32_t>(100 + frame))});
        }
        part["fps"] = one["video_fps"];
      }
    }
  }
  messages.push_back({{"role", "assistant"}, {"content", "an answer"}});
  return json{{"messages", messages}}.dump();
}

Values values_of(const std::string& path, bool add_vision_id) {
  const json& video = recorded()["video_processor"];
  return {{"path", std::vector<std::string>{path}},
          {"tokenizer", std::string("tests/fixtures/tokenizer")},
          {"add_vision_id", add_vision_id},
          {"video_min_pixels", video["min_pixels"].get<int64_t>()},
          {"video_max_pixels", video["max_pixels"].get<int64_t>()},
          {"micro_batch_size", int64_t{1}},
          {"global_batch_size", int64_t{1}}};
}

const char* const kFrames = R"("video":["1.png","2.png","3.png"])";

std::string video_record(const std::string& part) {
  return R"({"messages":[{"role":"user","content":[{"type":"video",)" + part +
         R"(}]},{"role":"assistant","content":"x"}]})";
}

}  // namespace

TEST_CASE("videos: text, tokens, types and grids of every recorded case, from both sources") {
  int videos = 0;
  for (const json& one : recorded()["cases"]) {
    if (!one["add_generation_prompt"].get<bool>()) continue;  // has no turn to be answered
    CAPTURE(one["name"].get<std::string>());
    const TempFolder folder;
    Files files;
    const std::string record = record_of(one, files);
    for (const auto& [name, bytes] : files) folder.write(name, bytes);
    const bool add_vision_id = one["add_vision_id"];
    const auto lines =
        open_data("conversations", values_of(folder.write("a.jsonl", record), add_vision_id),
                  recorded_facts());
    files.push_back({"a.json", record});
    const auto shard =
        open_data("webdataset", values_of(folder.write("a.tar", tar_of(files)), add_vision_id),
                  recorded_facts());
    for (const auto& data : {lines, shard}) {
      const Sample prompt = data->prompt(0).value_or_throw();
      CHECK(prompt.text == one["expanded"].get<std::string>());
      CHECK(json(prompt.tokens) == one["ids"]);
      CHECK(json(prompt.token_type) == one["mm_token_type_ids"]);
      json grids = one["video_grid_thw"];  // every recorded case has its videos first
      for (const json& grid : one["image_grid_thw"]) grids.push_back(grid);
      std::vector<int64_t> flat;
      for (const json& grid : grids)
        for (const json& edge : grid) flat.push_back(edge);
      CHECK(prompt.grid_thw == flat);
      int64_t patches = 0;
      for (size_t n = 0; n < flat.size(); n += 3) patches += flat[n] * flat[n + 1] * flat[n + 2];
      CHECK((prompt.patches.defined() ? prompt.patches.size(0) : 0) == patches);
    }
    CHECK(rows_text(lines->next_step()) == rows_text(shard->next_step()));
    videos += static_cast<int>(one["video_grid_thw"].size());
  }
  CHECK(videos == 2);
}

TEST_CASE("videos: patches hold pairs of frames, in time; the last frame fills its group") {
  const TempFolder folder;
  for (const char* name : {"1", "2", "3"})
    folder.write(std::string(name) + ".png", png_of(32, 32, static_cast<uint32_t>(*name)));
  const auto open = [&](const std::string& part) {
    return open_data("conversations", values_of(folder.write("a.jsonl", video_record(part)), false),
                     recorded_facts());
  };
  const auto patches_of = [&](const std::string& part) {
    return open(part)->sample(0).value_or_throw().patches.clone();
  };
  const at::Tensor three_PD = patches_of(std::string(kFrames) + R"(,"fps":2)");
  REQUIRE(three_PD.sizes() == at::IntArrayRef({2 * 4, 3 * 2 * 16 * 16}));
  const at::Tensor first_PD = patches_of(R"("video":["1.png","1.png"],"fps":1)");
  const at::Tensor second_PD = patches_of(R"("video":["2.png","2.png"],"fps":1)");
  const at::Tensor last_PD = patches_of(R"("video":["3.png","3.png"],"fps":1)");
  const auto frame = [](const at::Tensor& patches_PD, int64_t f) {
    return patches_PD.view({-1, 3, 2, 256}).select(2, f);
  };
  CHECK(at::equal(frame(three_PD.narrow(0, 0, 4), 0), frame(first_PD, 0)));
  CHECK(at::equal(frame(three_PD.narrow(0, 0, 4), 1), frame(second_PD, 0)));
  CHECK(at::equal(three_PD.narrow(0, 4, 4), last_PD));
  // Times: mean of the group's frames, the last one's own.
  const Sample timed =
      open(std::string(kFrames) + R"(,"timestamps":[1, 2.5, 7.25])")->sample(0).value_or_throw();
  CHECK(timed.text.find("<1.8 seconds>") != std::string::npos);
  CHECK(timed.text.find("<7.2 seconds>") != std::string::npos);
  CHECK(timed.files == std::vector<std::string>{"1.png", "2.png", "3.png"});
}

TEST_CASE("videos: what is no list of frames with times is named") {
  const TempFolder folder;
  folder.write("1.png", png_of(32, 32));
  folder.write("2.png", png_of(32, 32));
  folder.write("3.png", png_of(32, 48));
  const std::pair<const char*, const char*> cases[] = {
      {R"("video":["1.png","2.png"])", "bad_record"},
      {R"("video":["1.png","2.png"],"fps":0)", "bad_record"},
      {R"("video":["1.png","2.png"],"fps":2,"timestamps":[0,1])", "bad_record"},
      {R"("video":["1.png","2.png"],"timestamps":[0])", "bad_record"},
      {R"("video":["1.png","2.png"],"timestamps":[1,0])", "bad_record"},
      {R"("video":["1.png",2],"fps":2)", "bad_record"},
      {R"("video":["1.png"],"fps":2)", "frame_sizes"},
      {R"("video":[],"fps":2)", "frame_sizes"},
      {kFrames, "bad_record"},
      {R"("video":["1.png","3.png"],"fps":2)", "frame_sizes"},
      {R"("video":["1.png","none.png"],"fps":2)", "missing_file"},
      {R"("video":"film.mp4")", "unsupported_format"}};
  std::string lines;
  for (const auto& [part, reason] : cases) lines += video_record(part) + "\n";
  const auto data = open_data("conversations", values_of(folder.write("a.jsonl", lines), false),
                              recorded_facts());
  for (size_t i = 0; i < std::size(cases); ++i) {
    CAPTURE(cases[i].first);
    const auto sample = data->sample(static_cast<int64_t>(i));
    REQUIRE_FALSE(sample.ok());
    CHECK(sample.problem().what.starts_with(cases[i].second));
  }
}
