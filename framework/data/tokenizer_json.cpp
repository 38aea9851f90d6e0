// Reads tokenizer.json as Hugging Face `tokenizers` writes it. Whatever would change the ids and is
// not implemented is refused by name. `truncation` and `padding` are not read: they belong to a
// call, and transformers resets them.
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/sha256.h"
#include "data/byte_alphabet.h"
#include "data/tokenizer_parts.h"

namespace keyseat::data {
namespace {

using nlohmann::json;

// Thrown inside this file only, turned into a Problem by load_tokenizer_json.
struct Refusal {
  std::string what;
};

std::string type_of(const json& node) {
  return node.is_object() ? node.value("type", "without type") : "null";
}

bool reads_nfc(const json& normalizer) {
  if (normalizer.is_null()) return false;
  if (type_of(normalizer) == "NFC") return true;
  throw Refusal{"normalizer " + type_of(normalizer) + " is not supported, only NFC or none"};
}

void require_plain_byte_level(const json& node) {
  if (node.value("add_prefix_space", true))
    throw Refusal{"pre_tokenizer ByteLevel with add_prefix_space"};
  if (node.value("use_regex", true))
    throw Refusal{"pre_tokenizer ByteLevel with use_regex (the GPT-2 pattern)"};
}

std::string split_pattern(const json& pre_tokenizer) {
  if (type_of(pre_tokenizer) != "Sequence" || pre_tokenizer.at("pretokenizers").size() != 2) {
    throw Refusal{"pre_tokenizer " + type_of(pre_tokenizer) +
                  " is not supported, only a Sequence of Split and ByteLevel"};
  }
  const json& split = pre_tokenizer.at("pretokenizers").at(0);
  const json& byte_level = pre_tokenizer.at("pretokenizers").at(1);
  if (type_of(split) != "Split" || type_of(byte_level) != "ByteLevel") {
    throw Refusal{"pre_tokenizer Sequence of " + type_of(split) + " and " + type_of(byte_level) +
                  " is not supported, only Split and ByteLevel"};
  }
  if (split.at("behavior") != "Isolated" || split.value("invert", false)) {
    throw Refusal{"pre_tokenizer Split must have behavior Isolated and not invert"};
  }
  if (!split.at("pattern").contains("Regex"))
    throw Refusal{"pre_tokenizer Split must have a Regex pattern"};
  require_plain_byte_level(byte_level);
  return split.at("pattern").at("Regex").get<std::string>();
}

void check_model(const json& model) {
  if (type_of(model) != "BPE")
    throw Refusal{"model " + type_of(model) + " is not supported, only BPE"};
  if (model.value("byte_fallback", false)) throw Refusal{"BPE with byte_fallback is not supported"};
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    const bool unset = !model.contains(key) || model.at(key).is_null() || model.at(key) == "";
    if (!unset) throw Refusal{std::string("BPE with ") + key + " is not supported"};
  }
}

std::vector<std::string> read_vocabulary(const json& vocabulary) {
  std::vector<std::string> tokens;
  // Ids size an array: a stray huge one must not take the memory of the machine.
  const int64_t limit = static_cast<int64_t>(vocabulary.size()) * 4 + 65536;
  for (const auto& [token, id_node] : vocabulary.items()) {
    const auto id = id_node.get<int64_t>();
    if (id < 0 || id >= limit)
      throw Refusal{"token \"" + token + "\" has the id " + std::to_string(id)};
    if (static_cast<size_t>(id) >= tokens.size()) tokens.resize(static_cast<size_t>(id) + 1);
    if (!tokens[static_cast<size_t>(id)].empty())
      throw Refusal{"two tokens have the id " + std::to_string(id)};
    tokens[static_cast<size_t>(id)] = bytes_of_token(token);
  }
  return tokens;
}

// Merges are pairs, or in older files "left right"; no token contains a space in its byte-alphabet
// spelling.
std::pair<std::string, std::string> read_merge(const json& merge) {
  if (merge.is_array() && merge.size() == 2) {
    return {bytes_of_token(merge[0].get<std::string>()),
            bytes_of_token(merge[1].get<std::string>())};
  }
  const auto text = merge.get<std::string>();
  const size_t space = text.find(' ');
  if (space == std::string::npos) throw Refusal{"merge \"" + text + "\" is not a pair"};
  return {bytes_of_token(text.substr(0, space)), bytes_of_token(text.substr(space + 1))};
}

std::vector<AddedToken> read_added_tokens(const json& list) {
  std::vector<AddedToken> added;
  for (const json& node : list) {
    AddedToken token{node.at("content").get<std::string>(), node.at("id").get<int64_t>(),
                     node.value("special", false), node.value("normalized", false)};
    for (const char* key : {"single_word", "lstrip", "rstrip"}) {
      if (node.value(key, false))
        throw Refusal{"added token \"" + token.content + "\" with " + key + " is not supported"};
    }
    added.push_back(std::move(token));
  }
  return added;
}

void check_ends(const json& root) {
  const json post_processor = root.value("post_processor", json());
  if (!post_processor.is_null() && type_of(post_processor) != "ByteLevel") {
    throw Refusal{"post_processor " + type_of(post_processor) +
                  " is not supported (it would add tokens)"};
  }
  const json decoder = root.value("decoder", json());
  if (type_of(decoder) != "ByteLevel")
    throw Refusal{"decoder " + type_of(decoder) + " is not supported, only ByteLevel"};
}

LoadedParts load(const std::string& text, const std::filesystem::path& path) {
  const Result<json> parsed = parse_json(text, path.string());
  if (!parsed) {
    Problem problem = vocabulary_file_problem(path, 0, parsed.problem().what);
    problem.where = parsed.problem().where;
    return problem;
  }
  const json& root = parsed.value();
  const json& model = root.at("model");
  check_model(model);
  check_ends(root);
  const bool nfc = reads_nfc(root.value("normalizer", json()));
  Result<PreTokenizer> pre_tokenizer =
      PreTokenizer::compile(split_pattern(root.value("pre_tokenizer", json())));
  if (!pre_tokenizer) throw Refusal{pre_tokenizer.problem().what};
  Result<std::unique_ptr<Bpe>> bpe = Bpe::from_tokens(read_vocabulary(model.at("vocab")));
  if (!bpe) throw Refusal{bpe.problem().what};
  int32_t rank = 0;
  for (const json& merge : model.at("merges")) {
    const auto [left, right] = read_merge(merge);
    if (const auto problem = bpe.value()->add_merge(left, right, rank++))
      throw Refusal{problem->what};
  }
  if (model.value("ignore_merges", false)) bpe.value()->take_whole_pieces();
  return assemble_parts(std::move(bpe).value(), std::move(pre_tokenizer).value(), nfc,
                        read_added_tokens(root.value("added_tokens", json::array())),
                        sha256_hex(text), path);
}

}  // namespace

LoadedParts load_tokenizer_json(const std::string& text, const std::filesystem::path& path) {
  try {
    return load(text, path);
  } catch (const Refusal& refusal) {
    return vocabulary_file_problem(path, 0, refusal.what);
  } catch (const json::exception& error) {
    return vocabulary_file_problem(path, 0, "not a tokenizer.json: " + json_mismatch(error));
  }
}

}  // namespace keyseat::data
