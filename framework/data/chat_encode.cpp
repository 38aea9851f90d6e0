#include "data/chat_segments.h"

namespace keyseat::data {
namespace {

struct Span {  // bytes of the normalised text that are supervised
  size_t begin;
  size_t end;
};

// Where the supervised segments lie in the normalised text. Segments can be normalised one by one
// because each border is a line end or an added token, over which nothing composes or reorders.
Result<std::vector<Span>> supervised_spans(const Tokenizer& tokenizer,
                                           const std::vector<Segment>& expanded) {
  std::vector<Span> spans;
  size_t at = 0;
  for (const Segment& segment : expanded) {
    const Result<std::string> normalized = tokenizer.normalize(segment.text);
    if (!normalized) return normalized.problem();
    const size_t end = at + normalized.value().size();
    if (segment.is_supervised) spans.push_back({at, end});
    at = end;
  }
  return spans;
}

Problem missing_token(std::string_view token) {
  return Problem{
      .code = Code::kR6Data,
      .where = {},
      .what = "the vocabulary has no token " + std::string(token),
      .why = "the built-in chat template writes it as one token",
      .remedy =
          "use the vocabulary of a Qwen2 or later model, vision-language for images and videos"};
}

std::optional<Problem> check_vocabulary(const Tokenizer& tokenizer, const Visuals& visuals) {
  std::vector<std::string_view> needed = {kMessageStart, kMessageEnd};
  if (!visuals.images.empty())
    needed.insert(needed.end(), {kVisionStart, kVisionEnd, kImagePlaceholder});
  if (!visuals.videos.empty())
    needed.insert(needed.end(), {kVisionStart, kVisionEnd, kVideoPlaceholder});
  for (const std::string_view token : needed) {
    if (!tokenizer.token_to_id(token)) return missing_token(token);
  }
  return std::nullopt;
}

}  // namespace

Result<ChatTokens> encode_chat(const Tokenizer& tokenizer, const std::vector<Message>& messages,
                               const ChatOptions& options, const Visuals& visuals) {
  if (auto problem = check_vocabulary(tokenizer, visuals)) return *std::move(problem);
  std::vector<Segment> segments = render_segments(messages, options);
  ChatTokens tokens;
  Expander expander(visuals);
  for (Segment& segment : segments) {
    std::string expanded;
    if (auto problem = expander.append(segment.text, expanded)) return *std::move(problem);
    tokens.expanded.append(expanded);
    segment.text = std::move(expanded);
  }
  if (auto problem = expander.finish()) return *std::move(problem);

  Result<Encoding> encoding = tokenizer.encode_with_offsets(tokens.expanded);
  if (!encoding) return encoding.problem();
  const Result<std::vector<Span>> spans = supervised_spans(tokenizer, segments);
  if (!spans) return spans.problem();

  tokens.ids = std::move(encoding.value().ids);
  const std::optional<int64_t> image_id = tokenizer.token_to_id(kImagePlaceholder);
  const std::optional<int64_t> video_id = tokenizer.token_to_id(kVideoPlaceholder);
  auto span = spans.value().begin();
  size_t begin = 0;
  for (size_t i = 0; i < tokens.ids.size(); ++i) {
    const size_t end = encoding.value().ends[i];
    while (span != spans.value().end() && span->end <= begin) ++span;
    const bool is_inside = span != spans.value().end() && begin >= span->begin && end <= span->end;
    const int8_t token_type = tokens.ids[i] == image_id ? 1 : tokens.ids[i] == video_id ? 2 : 0;
    tokens.token_type.push_back(token_type);
    tokens.loss_mask.push_back(is_inside && token_type == 0);
    begin = end;
  }
  return tokens;
}

std::vector<int64_t> ChatTokens::shifted_labels() const {
  std::vector<int64_t> labels(ids.size(), kIgnoredLabel);
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    if (loss_mask[i + 1]) labels[i] = ids[i + 1];
  }
  return labels;
}

}  // namespace keyseat::data
