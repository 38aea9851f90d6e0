// What all sources of conversations can be told.
#include "keyseat/data/conversation_data.h"

namespace keyseat::data {

OptionSchema conversation_options() {
  OptionSchema schema = packed_data_options();
  const std::vector<OptionSpec> own = {
      Option("path", OptionType::kPathList)
          .required()
          .doc("Shards, in order: files, folders of them, or patterns such as \"train-*\"."),
      Option("weights", OptionType::kFloatList)
          .optional()
          .range(1e-6, 1e6)
          .doc("Makes every entry of `path` a source of its own, with epochs of its own, and draws "
               "samples in these proportions; unset: one source, every sample once per epoch."),
      Option("tokenizer", OptionType::kPath)
          .required()
          .doc("A tokenizer.json, a folder that holds one, or a tiktoken vocabulary."),
      Option("add_vision_id", OptionType::kBool)
          .defaults_to(false)
          .doc("Write \"Picture 1: \" before images, as the chat template's option of that name."),
      Option("augment", OptionType::kInt)
          .defaults_to(int64_t{0})
          .range(0, 64)
          .unit("pixels")
          .doc("Training images are moved by up to this many pixels of the source in each "
               "direction, edges repeated."),
      Option("blank_images", OptionType::kBool)
          .defaults_to(false)
          .doc("Replace every image by a gray one of its size: the control that shows what images "
               "contribute."),
      Option("max_image_pixels", OptionType::kInt)
          .defaults_to(int64_t{64} << 20)
          .range(1, 1e12)
          .unit("pixels")
          .level(OptionLevel::kTuning)
          .doc("Larger images fail before they are decoded."),
      Option("max_image_bytes", OptionType::kSize)
          .defaults_to(int64_t{256} << 20)
          .range(1, 1e12)
          .unit("bytes")
          .level(OptionLevel::kTuning)
          .doc("Larger image files and records fail before they are read."),
      Option("max_video_frames", OptionType::kInt)
          .defaults_to(int64_t{768})
          .range(2, 1 << 20)
          .unit("frames")
          .level(OptionLevel::kTuning)
          .doc("Videos of more frames fail."),
      Option("video_min_pixels", OptionType::kInt)
          .defaults_to(int64_t{4096})
          .range(1, 1e12)
          .unit("pixels")
          .level(OptionLevel::kTuning)
          .doc(
              "Least pixels of all frames of a video together, as `shortest_edge` of the published "
              "video processor."),
      Option("video_max_pixels", OptionType::kInt)
          .defaults_to(int64_t{25165824})
          .range(1, 1e12)
          .unit("pixels")
          .level(OptionLevel::kTuning)
          .doc("Most pixels of all frames of a video together, as `longest_edge` of the published "
               "video processor."),
      Option("index_dir", OptionType::kPath)
          .optional()
          .level(OptionLevel::kTuning)
          .doc("Folder for the index of shards whose own folder cannot be written."),
      Option("index_threads", OptionType::kInt)
          .defaults_to(int64_t{0})
          .range(0, 1024)
          .level(OptionLevel::kTuning)
          .scope(OptionScope::kPerRank)
          .doc("Threads that build the index of shards; 0: one per core."),
  };
  schema.insert(schema.end(), own.begin(), own.end());
  return schema;
}

Problems validate_conversations(const Options& options) {
  Problems problems = validate_packed_data(options);
  const size_t paths = options.get_string_list("path").size();
  if (paths == 0)
    problems.push_back(options.problem(Code::kC3Value, "path", "path names no shard"));
  if (options.has("weights") && options.get_float_list("weights").size() != paths) {
    problems.push_back(options.problem(Code::kC4Combination, "weights",
                                       fmt::format("{} weights are given for {} entries of path",
                                                   options.get_float_list("weights").size(), paths),
                                       "every entry is a source of its own",
                                       "Give one weight per entry."));
  }
  if (options.get_int("video_min_pixels") > options.get_int("video_max_pixels")) {
    problems.push_back(options.problem(Code::kC4Combination, "video_min_pixels",
                                       "video_min_pixels is above video_max_pixels"));
  }
  return problems;
}

}  // namespace keyseat::data
