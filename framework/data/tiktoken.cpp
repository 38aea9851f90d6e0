// Reads a tiktoken vocabulary: one line per token, its bytes in base64, a space, its rank, which is
// also its id.
#include <array>
#include <charconv>

#include "base/sha256.h"
#include "data/tokenizer_parts.h"

namespace keyseat::data {
namespace {

constexpr std::array<int, 256> make_base64_values() {
  std::array<int, 256> values{};
  for (int& value : values) value = -1;
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < kAlphabet.size(); ++i)
    values[static_cast<unsigned char>(kAlphabet[i])] = static_cast<int>(i);
  return values;
}

std::optional<std::string> decode_base64(std::string_view text) {
  static constexpr auto kValues = make_base64_values();
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  if (text.empty() || text.size() % 4 == 1) return std::nullopt;
  std::string bytes;
  unsigned buffer = 0;
  int bits = 0;
  for (const char c : text) {
    const int value = kValues[static_cast<unsigned char>(c)];
    if (value < 0) return std::nullopt;
    buffer = (buffer << 6) | static_cast<unsigned>(value);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      bytes.push_back(static_cast<char>((buffer >> bits) & 0xFF));
    }
  }
  return bytes;
}

}  // namespace

LoadedParts load_tiktoken(const std::string& text, const std::filesystem::path& path,
                          const TiktokenOptions& options) {
  std::vector<std::string> tokens;
  const size_t limit = text.size();  // a rank sizes an array; no file has more ranks than bytes
  int line_number = 0;
  for (size_t at = 0; at < text.size();) {
    ++line_number;
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line(text.data() + at, end - at);
    at = end + 1;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty()) continue;
    const size_t space = line.find(' ');
    size_t rank = 0;
    const auto [rest, error] =
        space == std::string_view::npos
            ? std::from_chars_result{line.data(), std::errc::invalid_argument}
            : std::from_chars(line.data() + space + 1, line.data() + line.size(), rank);
    const std::optional<std::string> bytes = decode_base64(line.substr(0, space));
    if (error != std::errc() || rest != line.data() + line.size() || !bytes || rank >= limit) {
      return vocabulary_file_problem(path, line_number,
                                     "not a tiktoken line: base64 token, space, rank");
    }
    if (rank >= tokens.size()) tokens.resize(rank + 1);
    if (!tokens[rank].empty()) {
      return vocabulary_file_problem(path, line_number,
                                     "rank " + std::to_string(rank) + " appears twice");
    }
    tokens[rank] = *bytes;
  }
  Result<std::unique_ptr<Bpe>> bpe = Bpe::from_tokens(std::move(tokens));
  if (!bpe) return vocabulary_file_problem(path, 0, bpe.problem().what);
  bpe.value()->merge_by_token_id();
  bpe.value()->take_whole_pieces();
  Result<PreTokenizer> pre_tokenizer = PreTokenizer::compile(options.pattern);
  if (!pre_tokenizer) return pre_tokenizer.problem();

  std::string identity = sha256_hex(text) + options.pattern;
  std::vector<AddedToken> added;
  for (const auto& [content, id] : options.special_tokens) {
    added.push_back({.content = content, .id = id, .special = true, .normalized = false});
    identity.append(content).append("=").append(std::to_string(id)).append("\n");
  }
  return assemble_parts(std::move(bpe).value(), std::move(pre_tokenizer).value(), /*nfc=*/true,
                        std::move(added), sha256_hex(identity), path);
}

}  // namespace keyseat::data
