// Byte-pair encoding of one piece: starting from single bytes, the adjacent pair of lowest rank
// merges first, the leftmost of equals, until no pair is in the table.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/piece_cache.h"
#include "keyseat/status.h"

namespace keyseat::data {

struct PairMerge {
  int32_t rank;
  int32_t id;  // of the merged token
};

class Bpe {
 public:
  // `tokens[id]` are the bytes of token id, empty where there is none.
  // Errors: R6 if two tokens have the same bytes or one of the 256 single bytes is missing.
  static Result<std::unique_ptr<Bpe>> from_tokens(std::vector<std::string> tokens);

  // Merge rule number `rank`: left + right. Errors: R6 if either, or what they make, is no token.
  std::optional<Problem> add_merge(std::string_view left, std::string_view right, int32_t rank);
  // tiktoken vocabularies have no rules: any pair whose bytes are a token merges, and its id is its
  // rank.
  void merge_by_token_id() { by_token_id_ = true; }
  // A piece that is a token as a whole is taken at once, even if no chain of merges leads to it.
  void take_whole_pieces() { take_whole_pieces_ = true; }

  // Appends the ids of `piece`, any bytes. Threads: may be called from several at once.
  void encode(std::string_view piece, std::vector<int64_t>& ids) const;

  std::optional<int64_t> id_of(std::string_view token) const;
  const std::vector<std::string>& tokens() const { return tokens_; }

 private:
  explicit Bpe(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {}
  std::optional<PairMerge> merge_of(int32_t left, int32_t right, std::string_view merged) const;
  void merge(std::string_view piece, std::vector<int64_t>& ids) const;

  struct PairHash {
    size_t operator()(uint64_t pair) const {
      return static_cast<size_t>((pair * 0x9E3779B97F4A7C15ULL) >> 20);
    }
  };

  std::vector<std::string> tokens_;
  std::unordered_map<std::string_view, int32_t> ids_;  // keys view tokens_
  std::array<int32_t, 256> byte_ids_{};
  std::unordered_map<uint64_t, PairMerge, PairHash> merges_;
  bool by_token_id_ = false;
  bool take_whole_pieces_ = false;
  mutable PieceCache cache_;
};

}  // namespace keyseat::data
