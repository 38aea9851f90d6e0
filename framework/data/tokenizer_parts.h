// What a loader reads from a vocabulary file and a Tokenizer works with.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "data/added_tokens.h"
#include "data/bpe.h"
#include "data/pre_tokenizer.h"
#include "keyseat/data/tokenizer.h"

namespace keyseat::data {

struct Tokenizer::Parts {
  std::unique_ptr<Bpe> bpe;
  PreTokenizer pre_tokenizer;
  bool nfc;
  AddedTokenMatcher raw_tokens;         // looked for in the raw text
  AddedTokenMatcher normalized_tokens;  // looked for in what is left, after NFC
  std::unordered_map<int64_t, AddedToken> added;
  std::unordered_map<std::string, int64_t> added_ids;
  int64_t vocab_size;
  std::string digest;
};

using LoadedParts = Result<std::shared_ptr<const Tokenizer::Parts>>;

// `text` is the whole file, `path` only names it in problems.
LoadedParts load_tokenizer_json(const std::string& text, const std::filesystem::path& path);
LoadedParts load_tiktoken(const std::string& text, const std::filesystem::path& path,
                          const TiktokenOptions& options);

// The common end of both loaders. Errors: R6 for empty or repeated added tokens.
LoadedParts assemble_parts(std::unique_ptr<Bpe> bpe, PreTokenizer pre_tokenizer, bool nfc,
                           std::vector<AddedToken> added, std::string digest,
                           const std::filesystem::path& path);

Problem vocabulary_file_problem(const std::filesystem::path& path, int line, std::string what);

}  // namespace keyseat::data
