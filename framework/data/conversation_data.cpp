// Legend: P patches, D elements of a patch.
#include "keyseat/data/conversation_data.h"

#include <ATen/ops/empty.h>

#include "data/image_augment.h"
#include "keyseat/data/resize.h"

namespace keyseat::data {

Record::~Record() = default;

OptionSchema conversation_options() {
  OptionSchema schema = packed_data_options();
  const std::vector<OptionSpec> own = {
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
          .doc("Larger image files fail before they are read."),
  };
  schema.insert(schema.end(), own.begin(), own.end());
  return schema;
}

ConversationData::ConversationData(const Options& options) : PackedData(options) {
  limits_.max_pixels = options.get_int("max_image_pixels");
  limits_.max_file_bytes = options.get_int("max_image_bytes");
}

ConversationData::~ConversationData() = default;

Problems ConversationData::open_(const DataFacts& facts) {
  Result<Tokenizer> tokenizer = Tokenizer::from_file(options().get_string("tokenizer"));
  if (!tokenizer) return {tokenizer.problem()};
  tokenizer_ = tokenizer.value();
  const std::filesystem::path path = options().get_string("tokenizer");
  if (auto refused =
          check_chat_template_of(std::filesystem::is_directory(path) ? path : path.parent_path())) {
    return {*refused};
  }
  if (facts.input.patch_size > 0) {
    PatchFormat format;
    format.patch_size = facts.input.patch_size;
    format.temporal_patch_size = facts.input.temporal_patch_size;
    format.merge_size = facts.input.merge_size;
    std::copy_n(facts.input.image_mean.begin(), 3, format.mean.begin());
    std::copy_n(facts.input.image_std.begin(), 3, format.std.begin());
    cutter_.emplace(format);
  }
  Problems problems = check_vocabulary(facts);
  if (!problems.empty()) return problems;
  end_token_id_ = *tokenizer_->token_to_id("<|im_end|>");
  return open_source_();
}

// The model's and the tokenizer's ideas of the vocabulary must be one.
Problems ConversationData::check_vocabulary(const DataFacts& facts) const {
  Problems problems;
  const auto refuse = [&](std::string what, std::string why) {
    problems.push_back(options().problem(Code::kC4Combination, "tokenizer", std::move(what),
                                         std::move(why),
                                         "Use the tokenizer that belongs to the model."));
  };
  if (tokenizer_->vocab_size() > facts.input.vocab_size) {
    refuse(fmt::format("the tokenizer has ids up to {}, the model's vocabulary has {} rows",
                       tokenizer_->vocab_size() - 1, facts.input.vocab_size),
           "every id needs a row of the embedding");
  }
  if (!tokenizer_->token_to_id("<|im_end|>"))
    refuse("the tokenizer has no <|im_end|>", "it ends every message");
  const std::pair<const char*, int64_t> special[] = {
      {"<|image_pad|>", facts.input.image_token_id},
      {"<|video_pad|>", facts.input.video_token_id},
      {"<|vision_start|>", facts.input.vision_start_token_id},
      {"<|vision_end|>", facts.input.vision_end_token_id}};
  for (const auto& [token, wanted] : special) {
    const auto found = tokenizer_->token_to_id(token);
    if (wanted >= 0 && found != wanted) {
      refuse(fmt::format("{} is {} in the tokenizer and {} in the model", token,
                         found ? std::to_string(*found) : std::string("missing"), wanted),
             "visual tokens are found by their ids");
    }
  }
  return problems;
}

Outcome<Sample> ConversationData::load_(int64_t id, int64_t pass) const {
  return build(id, pass, Form::kTraining);
}
Outcome<Sample> ConversationData::load_prompt_(int64_t id) const {
  return build(id, -1, Form::kPrompt);
}

Outcome<std::pair<int64_t, int64_t>> ConversationData::measure_(int64_t id) const {
  const auto built = build(id, -1, Form::kMeasure);
  if (!built) return built.fault();
  int64_t patches = 0;
  const auto& grid = built.value().grid_thw;
  for (size_t n = 0; n < grid.size(); n += 3) patches += grid[n] * grid[n + 1] * grid[n + 2];
  return std::pair<int64_t, int64_t>(static_cast<int64_t>(built.value().tokens.size()), patches);
}

namespace {

// An image part on its way to patches.
struct Visual {
  std::vector<uint8_t> bytes;
  ImageSize target;
  PatchGrid grid;
};

Fault bad_record(const Problem& problem) { return {FaultKind::kBadRecord, problem.what}; }

Outcome<std::vector<Message>> read_messages(const Record& record) {
  const auto root = nlohmann::json::parse(record.json(), nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded()) return Fault{FaultKind::kBadRecord, "not JSON, or not UTF-8"};
  if (!root.is_object() || !root.contains("messages"))
    return Fault{FaultKind::kBadRecord, "has no \"messages\""};
  auto messages = parse_messages(root["messages"], {record.key(), 0, 0});
  if (!messages) return bad_record(messages.problem());
  return std::move(messages).value();
}

// Takes the last assistant turn off; its text is the answer.
Outcome<std::string> take_answer(std::vector<Message>& messages) {
  if (messages.empty() || messages.back().role != Role::kAssistant) {
    return Fault{FaultKind::kBadRecord, "does not end with an assistant message to compare with"};
  }
  std::string answer;
  for (const Part& part : messages.back().parts) answer += part.text;
  messages.pop_back();
  return answer;
}

}  // namespace

Outcome<Sample> ConversationData::build(int64_t id, int64_t pass, Form form) const {
  auto found = record_(id);
  if (!found) return found.fault();
  const Record& record = *found.value();
  auto parsed = read_messages(record);
  if (!parsed) return parsed.fault();
  std::vector<Message>& messages = parsed.value();

  Sample sample;
  sample.id = id;
  sample.key = record.key();
  ChatOptions chat;
  chat.add_vision_id = options().get_bool("add_vision_id");
  if (form == Form::kPrompt) {
    auto answer = take_answer(messages);
    if (!answer) return answer.fault();
    sample.answer = std::move(answer).value();
    chat.add_generation_prompt = true;
  }

  // Sizes first: they decide the number of placeholders.
  std::vector<Visual> visuals;
  Visuals sizes;
  const InputSpec& input = facts().input;
  sizes.merge_size = std::max<int64_t>(input.merge_size, 1);
  sizes.temporal_patch_size = std::max<int64_t>(input.temporal_patch_size, 1);
  for (const Message& message : messages) {
    for (const Part& part : message.parts) {
      if (part.type == PartType::kText) continue;
      if (part.type == PartType::kVideo)
        return Fault{FaultKind::kUnsupportedFormat, "holds a video part; this source reads images"};
      if (!cutter_)
        return Fault{FaultKind::kBadRecord, "holds an image, the model takes text only"};
      auto bytes = record.file(part.source);
      if (!bytes) return bytes.fault();
      Visual visual;
      visual.bytes = std::move(bytes).value();
      const auto header = read_image_header(visual.bytes, limits_);
      if (!header) return Fault{header.fault().kind, part.source + ": " + header.fault().detail};
      const auto target =
          smart_resize({header.value().height(), header.value().width()},
                       {cutter_->format().factor(), input.min_pixels, input.max_pixels});
      if (!target) return Fault{target.fault().kind, part.source + ": " + target.fault().detail};
      visual.target = target.value();
      visual.grid = cutter_->grid(visual.target.height, visual.target.width);
      sizes.images.push_back(visual.grid);
      sample.files.push_back(part.source);
      for (int64_t edge : {visual.grid.t, visual.grid.h, visual.grid.w})
        sample.grid_thw.push_back(edge);
      visuals.push_back(std::move(visual));
    }
  }
  auto tokens = encode_chat(*tokenizer_, messages, chat, sizes);
  if (!tokens) return Fault{FaultKind::kBadText, tokens.problem().what};
  sample.tokens = std::move(tokens.value().ids);
  sample.token_type = std::move(tokens.value().token_type);
  sample.labels = form == Form::kPrompt ? std::vector<int64_t>(sample.tokens.size(), kIgnoredLabel)
                                        : std::vector<int64_t>();
  if (form != Form::kPrompt) {
    tokens.value().ids = sample.tokens;
    sample.labels = tokens.value().shifted_labels();
  }
  sample.text = std::move(tokens.value().expanded);
  if (form == Form::kMeasure || visuals.empty()) return sample;

  int64_t patches = 0;
  for (const Visual& visual : visuals) patches += visual.grid.patches();
  const int64_t elements = cutter_->format().row_size();
  sample.patches = at::empty({patches, elements}, at::TensorOptions(at::kFloat));
  float* next = sample.patches.data_ptr<float>();
  for (size_t n = 0; n < visuals.size(); ++n) {
    const Visual& visual = visuals[n];
    auto decoded = decode_image(visual.bytes, limits_);
    if (!decoded)
      return Fault{decoded.fault().kind, sample.files[n] + ": " + decoded.fault().detail};
    Image image = std::move(decoded).value();
    const int64_t shift = options().get_int("augment");
    if (pass >= 0 && shift > 0) {
      image = shifted(image,
                      augmentation_shift(facts().seed, id, pass, static_cast<int64_t>(n), shift));
    }
    if (options().get_bool("blank_images")) image = blank(image);
    image = resize_bicubic(image, visual.target);
    const auto count = static_cast<size_t>(visual.grid.patches() * elements);
    const auto cut = cutter_->cut(std::span<const Image>(&image, 1), std::span<float>(next, count));
    if (!cut) return Fault{cut.fault().kind, sample.files[n] + ": " + cut.fault().detail};
    next += count;
  }
  return sample;
}

std::string ConversationData::decode(const std::vector<int64_t>& tokens) const {
  return tokenizer_->decode(tokens, /*skip_special=*/true);
}

}  // namespace keyseat::data
