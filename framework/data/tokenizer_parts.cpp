#include "data/tokenizer_parts.h"

#include "data/utf8.h"

namespace keyseat::data {

Problem vocabulary_file_problem(const std::filesystem::path& path, int line, std::string what) {
  return Problem{
      .code = Code::kR6Data,
      .where = {.file = path.string(), .line = line},
      .what = std::move(what),
      .why = "token ids must be exactly those of the model, so nothing is approximated",
      .remedy =
          "give the tokenizer.json of a Qwen model or the tiktoken vocabulary it was made from"};
}

LoadedParts assemble_parts(std::unique_ptr<Bpe> bpe, PreTokenizer pre_tokenizer, bool nfc,
                           std::vector<AddedToken> added, std::string digest,
                           const std::filesystem::path& path) {
  auto vocab_size = static_cast<int64_t>(bpe->tokens().size());
  std::shared_ptr<Tokenizer::Parts> parts(new Tokenizer::Parts{std::move(bpe),
                                                               std::move(pre_tokenizer),
                                                               nfc,
                                                               {},
                                                               {},
                                                               {},
                                                               {},
                                                               vocab_size,
                                                               std::move(digest)});
  for (AddedToken& token : added) {
    if (token.content.empty() || find_invalid_utf8(token.content) != std::string::npos ||
        token.id < 0) {
      return vocabulary_file_problem(path, 0,
                                     "an added token has no text, bad UTF-8, or a negative id");
    }
    // A text may be listed in the vocabulary too, but then under the same id; an id has one text.
    const std::optional<int64_t> other = parts->bpe->id_of(token.content);
    const bool clash = (other && *other != token.id) || parts->added.count(token.id) > 0 ||
                       !parts->added_ids.emplace(token.content, token.id).second;
    if (clash) {
      return vocabulary_file_problem(path, 0,
                                     "added token \"" + token.content + "\" (id " +
                                         std::to_string(token.id) + ") is there twice");
    }
    parts->vocab_size = std::max(parts->vocab_size, token.id + 1);
    AddedToken looked_for = token;
    if (token.normalized && nfc) looked_for.content = to_nfc(token.content);
    (token.normalized ? parts->normalized_tokens : parts->raw_tokens).add(looked_for);
    parts->added.emplace(token.id, std::move(token));
  }
  return std::shared_ptr<const Tokenizer::Parts>(std::move(parts));
}

}  // namespace keyseat::data
