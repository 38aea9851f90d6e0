#include "keyseat/data/conversation_data.h"

#include "base/sha256.h"
#include "data/sample_builder.h"
#include "data/shard_opener.h"
#include "data/source_paths.h"
#include "keyseat/data/tokenizer.h"
#include "keyseat/version.h"

namespace keyseat::data {

struct ConversationData::Source {
  struct Shard {
    ShardReader reader;
    std::vector<std::optional<SampleSize>> sizes;
    int64_t first_id = 0;
  };
  std::optional<SampleBuilder> builder;
  std::vector<Shard> shards;
  std::vector<SourceShare> shares;
  std::vector<ShardIndex> reports;
  int64_t samples = 0;
  int64_t end_token_id = -1;

  const Shard& shard_of(int64_t id) const {
    if (id < 0 || id >= samples) {
      throw Error(Problem{Code::kR4Contract,
                          {},
                          fmt::format("sample {} was asked for, there are {}", id, samples),
                          "",
                          ""});
    }
    const auto behind = std::upper_bound(
        shards.begin(), shards.end(), id,
        [](int64_t wanted, const Shard& shard) { return wanted < shard.first_id; });
    return *std::prev(behind);
  }
  static const Extent& record(const Shard& shard, int64_t id) {
    return shard.reader.listing().records[static_cast<size_t>(id - shard.first_id)];
  }
  Outcome<RecordSource> record_source(int64_t id) const {
    const Shard& shard = shard_of(id);
    const Extent& extent = record(shard, id);
    auto json = shard.reader.json(extent);
    if (!json) return json.fault();
    return RecordSource{
        id, shard.reader.key(extent), std::move(json).value(),
        [&shard, &extent](const std::string& name) { return shard.reader.file(extent, name); }};
  }
};

namespace {

// The model's and the tokenizer's ideas of the vocabulary must be one.
Problems check_vocabulary(const Tokenizer& tokenizer, const InputSpec& input,
                          const Options& options) {
  Problems problems;
  const auto refuse = [&](std::string what, std::string why) {
    problems.push_back(options.problem(Code::kC4Combination, "tokenizer", std::move(what),
                                       std::move(why),
                                       "Use the tokenizer that belongs to the model."));
  };
  if (tokenizer.vocab_size() > input.vocab_size) {
    refuse(fmt::format("the tokenizer has ids up to {}, the model's vocabulary has {} rows",
                       tokenizer.vocab_size() - 1, input.vocab_size),
           "every id needs a row of the embedding");
  }
  if (!tokenizer.token_to_id("<|im_end|>"))
    refuse("the tokenizer has no <|im_end|>", "it ends every message");
  const std::pair<const char*, int64_t> special[] = {
      {"<|image_pad|>", input.image_token_id},
      {"<|video_pad|>", input.video_token_id},
      {"<|vision_start|>", input.vision_start_token_id},
      {"<|vision_end|>", input.vision_end_token_id}};
  for (const auto& [token, wanted] : special) {
    const auto found = tokenizer.token_to_id(token);
    if (wanted >= 0 && found != wanted) {
      refuse(fmt::format("{} is {} in the tokenizer and {} in the model", token,
                         found ? std::to_string(*found) : std::string("missing"), wanted),
             "visual tokens are found by their ids");
    }
  }
  return problems;
}

std::optional<VisualReader> visual_reader(const InputSpec& input, const Options& options) {
  if (input.patch_size == 0) return std::nullopt;
  PatchFormat format;
  format.patch_size = input.patch_size;
  format.temporal_patch_size = input.temporal_patch_size;
  format.merge_size = input.merge_size;
  std::copy_n(input.image_mean.begin(), 3, format.mean.begin());
  std::copy_n(input.image_std.begin(), 3, format.std.begin());
  VisualSettings settings;
  settings.limits.max_pixels = options.get_int("max_image_pixels");
  settings.limits.max_file_bytes = options.get_int("max_image_bytes");
  settings.image = {format.factor(), input.min_pixels, input.max_pixels};
  settings.video = {format.factor(), options.get_int("video_min_pixels"),
                    options.get_int("video_max_pixels")};
  settings.max_frames = options.get_int("max_video_frames");
  settings.takes_videos = input.video_token_id >= 0;
  return VisualReader(format, settings);
}

// All that decides the sizes of samples beside the files themselves.
std::string index_key(const Tokenizer& tokenizer, const InputSpec& input, const Options& options) {
  std::string all = std::string(version()) + "\n" + tokenizer.digest();
  for (const int64_t value :
       {input.patch_size, input.temporal_patch_size, input.merge_size, input.min_pixels,
        input.max_pixels, input.image_token_id, input.video_token_id,
        static_cast<int64_t>(options.get_bool("add_vision_id")),
        options.get_int("max_image_pixels"), options.get_int("max_image_bytes"),
        options.get_int("max_video_frames"), options.get_int("video_min_pixels"),
        options.get_int("video_max_pixels")}) {
    all += fmt::format("\n{}", value);
  }
  return sha256_hex(all);
}

Result<Tokenizer> load_tokenizer(const std::string& path) {
  auto tokenizer = Tokenizer::from_file(path);
  if (!tokenizer) return tokenizer;
  const std::filesystem::path file = path;
  if (auto refused =
          check_chat_template_of(std::filesystem::is_directory(file) ? file : file.parent_path())) {
    return *refused;
  }
  return tokenizer;
}

}  // namespace

ConversationData::ConversationData(const Options& options)
    : PackedData(options), source_(std::make_unique<Source>()) {}

ConversationData::~ConversationData() = default;

Problems ConversationData::open_(const DataFacts& facts) {
  auto tokenizer = load_tokenizer(options().get_string("tokenizer"));
  if (!tokenizer) return {tokenizer.problem()};
  Problems problems = check_vocabulary(tokenizer.value(), facts.input, options());
  if (!problems.empty()) return problems;
  source_->end_token_id = *tokenizer.value().token_to_id("<|im_end|>");
  BuilderSettings settings;
  settings.add_vision_id = options().get_bool("add_vision_id");
  settings.augment = options().get_int("augment");
  settings.blank_images = options().get_bool("blank_images");
  settings.seed = facts.seed;
  source_->builder.emplace(tokenizer.value(), visual_reader(facts.input, options()), settings);
  return open_shards(facts, index_key(tokenizer.value(), facts.input, options()));
}

Problems ConversationData::open_shards(const DataFacts& facts, const std::string& index_key) {
  Problems problems;
  std::vector<std::string> paths;
  std::vector<size_t> shards_of_entry;
  for (const std::string& entry : options().get_string_list("path")) {
    const auto found = shards_of(entry, ending_());
    if (!found) problems.push_back(found.problem());
    if (!found) continue;
    paths.insert(paths.end(), found.value().begin(), found.value().end());
    shards_of_entry.push_back(found.value().size());
  }
  if (!problems.empty()) return problems;

  OpenerSettings settings;
  settings.key = index_key;
  if (options().has("index_dir")) settings.index_folder = options().get_string("index_dir");
  settings.measure = facts.training;
  settings.rebuild = facts.rebuild_index;
  settings.threads = options().get_int("index_threads");
  if (settings.threads == 0)
    settings.threads = std::max<int64_t>(1, std::thread::hardware_concurrency());
  settings.first = facts.data_rank * static_cast<int64_t>(paths.size()) / facts.data_ranks;
  settings.max_file_bytes = options().get_int("max_image_bytes");
  const ShardOpener opener(
      settings, [this](const std::string& path) { return list_with_cut(path); },
      [this](const std::string& path) { return file_folder_(path); },
      [this](const ShardReader& shard, const Extent& record, const ReadFile& read) {
        auto json = shard.json(record);
        if (!json) return Outcome<SampleSize>(json.fault());
        return source_->builder->measure({0, shard.key(record), std::move(json).value(), read});
      });
  std::vector<OpenedShard> opened = opener.open(paths, problems);
  if (!problems.empty()) return problems;

  const bool mixed = options().has("weights");
  size_t next = 0;
  for (size_t entry = 0; entry < shards_of_entry.size(); ++entry) {
    if (mixed || source_->shares.empty())
      source_->shares.push_back({0, mixed ? options().get_float_list("weights")[entry] : 1.0});
    for (size_t i = 0; i < shards_of_entry[entry]; ++i, ++next) {
      const auto count = static_cast<int64_t>(opened[next].shard.listing.records.size());
      source_->shards.push_back({ShardReader(paths[next], std::move(opened[next].shard.listing),
                                             file_folder_(paths[next]), settings.max_file_bytes),
                                 std::move(opened[next].shard.sizes), source_->samples});
      source_->reports.push_back(std::move(opened[next].report));
      source_->samples += count;
      source_->shares.back().samples += count;
    }
  }
  return problems;
}

// What a cut shard lost becomes one record that fails, so that it is counted in every epoch.
Result<ShardListing> ConversationData::list_with_cut(const std::string& path) const {
  auto listing = list_(path);
  if (listing && !listing.value().cut.empty())
    listing.value().records.push_back({kCutRecord, 0, 0});
  return listing;
}

int64_t ConversationData::size_() const { return source_->samples; }

std::vector<SourceShare> ConversationData::sources_() const { return source_->shares; }

std::vector<ShardIndex> ConversationData::index() const { return source_->reports; }

int64_t ConversationData::end_token_id() const { return source_->end_token_id; }

std::string ConversationData::key_(int64_t id) const {
  const Source::Shard& shard = source_->shard_of(id);
  return shard.reader.key(Source::record(shard, id));
}

Outcome<Sample> ConversationData::load_(int64_t id, int64_t pass) const {
  const auto record = source_->record_source(id);
  if (!record) return record.fault();
  return source_->builder->training(record.value(), pass);
}

Outcome<Sample> ConversationData::load_prompt_(int64_t id) const {
  const auto record = source_->record_source(id);
  if (!record) return record.fault();
  return source_->builder->prompt(record.value());
}

Outcome<SampleSize> ConversationData::measure_(int64_t id) const {
  const auto record = source_->record_source(id);
  if (!record) return record.fault();
  return source_->builder->measure(record.value());
}

std::vector<std::optional<SampleSize>> ConversationData::measure_all_() const {
  std::vector<std::optional<SampleSize>> sizes;
  for (const Source::Shard& shard : source_->shards)
    sizes.insert(sizes.end(), shard.sizes.begin(), shard.sizes.end());
  return sizes;
}

std::string ConversationData::decode(const std::vector<int64_t>& tokens) const {
  return source_->builder->tokenizer().decode(tokens, /*skip_special=*/true);
}

std::string ConversationData::token_text(int64_t id) const {
  return std::string(source_->builder->tokenizer().token_bytes(id));
}

}  // namespace keyseat::data
