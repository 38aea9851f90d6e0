// Byte-level BPE tokenizer of the Qwen family: text to token ids and back.
//
// Encoding does what Hugging Face `tokenizers` does: added tokens are cut out of the raw text
// first, each stretch between them is brought to Unicode NFC, split by the pre-tokenizer pattern,
// and merged by byte-pair ranks.
//
// Threads: a Tokenizer is immutable but for an internal locked cache; every const function may be
// called from any number of threads at once. Copies share the vocabulary and are cheap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keyseat/export.h"
#include "keyseat/status.h"

namespace keyseat::data {

// Split patterns of the published models; tokenizer.json carries its own, a tiktoken vocabulary
// carries none.
KEYSEAT_API std::string_view qwen2_pattern();  // Qwen2, Qwen2.5, Qwen3, Qwen3-VL, Qwen3-Next
KEYSEAT_API std::string_view
qwen3_5_pattern();  // Qwen3.5: combining marks (\p{M}) count as letters

// Added tokens of Qwen2, Qwen3 and Qwen3-VL by id; they follow the 151,643 ranks of the tiktoken
// vocabulary.
KEYSEAT_API const std::map<std::string, int64_t>& qwen_special_tokens();

// What a tiktoken vocabulary file does not say.
struct TiktokenOptions {
  std::string pattern{qwen2_pattern()};
  std::map<std::string, int64_t> special_tokens = qwen_special_tokens();
};

struct Encoding {
  std::vector<int64_t> ids;
  std::vector<size_t>
      ends;  // bytes: where token i ends in the normalised text, see Tokenizer::normalize
};

class KEYSEAT_API Tokenizer {
 public:
  // Reads a tokenizer.json, a folder that holds one, or a tiktoken vocabulary (told apart by
  // content). Errors: R7 (cannot be read), R6 (not such a file, or it asks for something this
  // tokenizer does not do).
  static Result<Tokenizer> from_file(const std::filesystem::path& path);
  static Result<Tokenizer> from_tiktoken(const std::filesystem::path& path,
                                         const TiktokenOptions& options = {});

  // Token ids of `text`. With allow_special = false the text of special tokens is encoded as
  // ordinary text. Errors: R6 for bad UTF-8, naming the byte offset.
  Result<std::vector<int64_t>> encode(std::string_view text, bool allow_special = true) const;
  Result<Encoding> encode_with_offsets(std::string_view text, bool allow_special = true) const;

  // The text that the offsets of encode_with_offsets refer to: added tokens as they are, all else
  // in NFC.
  Result<std::string> normalize(std::string_view text, bool allow_special = true) const;

  // Text of `ids`. Each maximal incomplete UTF-8 sequence becomes U+FFFD. Ids without a token (rows
  // that pad a vocabulary, negative ids) contribute nothing, as in Hugging Face tokenizers.
  std::string decode(std::span<const int64_t> ids, bool skip_special = false) const;

  // `token` is the text itself ("<|im_end|>", " the"), not its byte-alphabet spelling.
  std::optional<int64_t> token_to_id(std::string_view token) const;
  // Bytes that one token stands for; empty for an id without a token.
  std::string_view token_bytes(int64_t id) const;
  bool is_special(int64_t id) const;
  int64_t vocab_size() const;  // largest id + 1: the least number of embedding rows

  // Digest (SHA-256, hexadecimal) over all that decides the ids; keys caches of tokenised data.
  const std::string& digest() const;

  struct Parts;  // what the loaders produce

 private:
  explicit Tokenizer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  std::shared_ptr<const Parts> parts_;
};

}  // namespace keyseat::data
