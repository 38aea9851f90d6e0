#include "keyseat/data/tokenizer.h"

#include <fstream>
#include <iterator>

#include "data/byte_alphabet.h"
#include "data/tokenizer_parts.h"
#include "data/utf8.h"

namespace keyseat::data {
namespace {

Result<std::string> read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) {
    return Problem{
        .code = Code::kR7File,
        .where = {.file = path.string()},
        .what = "the vocabulary cannot be read",
        .why = "no such file, or no permission",
        .remedy = "give a tokenizer.json, a folder that holds one, or a tiktoken vocabulary"};
  }
  return text;
}

// Pieces are merged with 32-bit positions; NFC makes text at most three times as long.
constexpr size_t kMaxTextBytes = size_t{256} << 20;

std::optional<Problem> check_text(std::string_view text) {
  if (text.size() > kMaxTextBytes) {
    return Problem{.code = Code::kR6Data,
                   .where = {},
                   .what = "a text of " + std::to_string(text.size()) + " bytes, the limit is " +
                           std::to_string(kMaxTextBytes),
                   .why = "no sample is that long",
                   .remedy = "split the record"};
  }
  const size_t offset = find_invalid_utf8(text);
  if (offset == std::string_view::npos) return std::nullopt;
  return Problem{
      .code = Code::kR6Data,
      .where = {},
      .what = "bad UTF-8 at byte " + std::to_string(offset) + " of " + std::to_string(text.size()),
      .why = "text is encoded by its characters",
      .remedy = "convert the data to UTF-8 or leave the record out"};
}

// Walks through `text` as both encode and normalize see it: on_added(content as matched, id),
// on_stretch(NFC text).
template <typename OnAdded, typename OnStretch>
std::optional<Problem> walk(const Tokenizer::Parts& parts, std::string_view text,
                            bool allow_special, OnAdded on_added, OnStretch on_stretch) {
  const auto cut = [&](const AddedTokenMatcher& matcher, std::string_view whole, auto&& on_rest) {
    std::optional<Problem> problem;
    for (size_t at = 0; at < whole.size() && !problem;) {
      const auto match = matcher.find(whole, at, allow_special);
      const size_t end = match ? match->begin : whole.size();
      if (end > at) problem = on_rest(whole.substr(at, end - at));
      if (match) on_added(whole.substr(match->begin, match->end - match->begin), match->id);
      at = match ? match->end : whole.size();
    }
    return problem;
  };
  return cut(parts.raw_tokens, text, [&](std::string_view raw) {
    const std::string stretch = parts.nfc ? to_nfc(raw) : std::string(raw);
    return cut(parts.normalized_tokens, stretch, on_stretch);
  });
}

}  // namespace

std::string_view qwen2_pattern() {
  return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
}

std::string_view qwen3_5_pattern() {
  return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
}

const std::map<std::string, int64_t>& qwen_special_tokens() {
  static const std::map<std::string, int64_t> tokens = {
      {"<|endoftext|>", 151643},        {"<|im_start|>", 151644},       {"<|im_end|>", 151645},
      {"<|object_ref_start|>", 151646}, {"<|object_ref_end|>", 151647}, {"<|box_start|>", 151648},
      {"<|box_end|>", 151649},          {"<|quad_start|>", 151650},     {"<|quad_end|>", 151651},
      {"<|vision_start|>", 151652},     {"<|vision_end|>", 151653},     {"<|vision_pad|>", 151654},
      {"<|image_pad|>", 151655},        {"<|video_pad|>", 151656}};
  return tokens;
}

Result<Tokenizer> Tokenizer::from_file(const std::filesystem::path& path) {
  std::error_code ignored;  // a folder that cannot be examined fails to open below
  const bool folder = std::filesystem::is_directory(path, ignored);
  const std::filesystem::path file = folder ? path / "tokenizer.json" : path;
  const Result<std::string> text = read_file(file);
  if (!text) return text.problem();
  const size_t first = text.value().find_first_not_of(" \t\r\n");
  const bool is_json =
      first != std::string::npos && text.value()[first] == '{';  // not a base64 digit
  LoadedParts parts =
      is_json ? load_tokenizer_json(text.value(), file) : load_tiktoken(text.value(), file, {});
  if (!parts) return parts.problem();
  return Tokenizer(std::move(parts).value());
}

Result<Tokenizer> Tokenizer::from_tiktoken(const std::filesystem::path& path,
                                           const TiktokenOptions& options) {
  const Result<std::string> text = read_file(path);
  if (!text) return text.problem();
  LoadedParts parts = load_tiktoken(text.value(), path, options);
  if (!parts) return parts.problem();
  return Tokenizer(std::move(parts).value());
}

Result<Encoding> Tokenizer::encode_with_offsets(std::string_view text, bool allow_special) const {
  if (auto problem = check_text(text)) return *std::move(problem);
  Encoding encoding;
  size_t end = 0;
  std::vector<size_t> piece_ends;
  const auto problem = walk(
      *parts_, text, allow_special,
      [&](std::string_view content, int64_t id) {
        encoding.ids.push_back(id);
        encoding.ends.push_back(end += content.size());
      },
      [&](std::string_view stretch) -> std::optional<Problem> {
        piece_ends.clear();
        if (auto failed = parts_->pre_tokenizer.split(stretch, piece_ends)) return failed;
        size_t piece_start = 0;
        for (const size_t piece_end : piece_ends) {
          parts_->bpe->encode(stretch.substr(piece_start, piece_end - piece_start), encoding.ids);
          piece_start = piece_end;
        }
        for (size_t i = encoding.ends.size(); i < encoding.ids.size(); ++i) {
          end += parts_->bpe->tokens()[static_cast<size_t>(encoding.ids[i])].size();
          encoding.ends.push_back(end);
        }
        return std::nullopt;
      });
  if (problem) return *problem;
  return encoding;
}

Result<std::vector<int64_t>> Tokenizer::encode(std::string_view text, bool allow_special) const {
  Result<Encoding> encoding = encode_with_offsets(text, allow_special);
  if (!encoding) return encoding.problem();
  return std::move(encoding.value().ids);
}

Result<std::string> Tokenizer::normalize(std::string_view text, bool allow_special) const {
  if (auto problem = check_text(text)) return *std::move(problem);
  std::string normalized;
  walk(
      *parts_, text, allow_special,
      [&](std::string_view content, int64_t) { normalized.append(content); },
      [&](std::string_view stretch) -> std::optional<Problem> {
        normalized.append(stretch);
        return std::nullopt;
      });
  return normalized;
}

std::string Tokenizer::decode(std::span<const int64_t> ids, bool skip_special) const {
  std::string bytes;
  for (const int64_t id : ids) {
    if (const auto added = parts_->added.find(id); added != parts_->added.end()) {
      // Decoders see an added token in the spelling of the byte alphabet, like any other.
      if (!skip_special || !added->second.special)
        bytes.append(bytes_of_token(added->second.content));
    } else {
      bytes.append(token_bytes(id));
    }
  }
  return utf8_lossy(bytes);
}

std::optional<int64_t> Tokenizer::token_to_id(std::string_view token) const {
  const auto added = parts_->added_ids.find(std::string(token));
  return added != parts_->added_ids.end() ? added->second : parts_->bpe->id_of(token);
}

std::string_view Tokenizer::token_bytes(int64_t id) const {
  if (const auto added = parts_->added.find(id); added != parts_->added.end())
    return added->second.content;
  const auto& tokens = parts_->bpe->tokens();
  const bool known = id >= 0 && id < static_cast<int64_t>(tokens.size());
  return known ? std::string_view(tokens[static_cast<size_t>(id)]) : std::string_view();
}

bool Tokenizer::is_special(int64_t id) const {
  const auto added = parts_->added.find(id);
  return added != parts_->added.end() && added->second.special;
}

int64_t Tokenizer::vocab_size() const { return parts_->vocab_size; }

const std::string& Tokenizer::digest() const { return parts_->digest; }

}  // namespace keyseat::data
