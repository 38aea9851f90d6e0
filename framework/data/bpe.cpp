#include "data/bpe.h"

#include <algorithm>
#include <queue>

namespace keyseat::data {
namespace {

uint64_t pair_key(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

Problem vocabulary_problem(std::string what) {
  return Problem{
      .code = Code::kR6Data,
      .where = {},
      .what = std::move(what),
      .why = "byte-level BPE needs one token for each byte, and each merge must make a token",
      .remedy = "check that the vocabulary file is complete and of one model"};
}

// A symbol of the piece being merged: a token, linked to its neighbours. size 0 marks one merged
// into its left.
struct Symbol {
  int32_t id;
  int32_t previous;
  int32_t next;
  uint32_t start;
  uint32_t size;
};

struct Candidate {
  int32_t rank;
  int32_t position;  // of the left symbol
  int32_t id;
  uint32_t size;  // bytes of the merged token; with `id` it tells a candidate that neighbours have
                  // overtaken
  bool operator<(const Candidate& other) const {  // std::priority_queue puts the greatest first
    return rank != other.rank ? rank > other.rank : position > other.position;
  }
};

}  // namespace

Result<std::unique_ptr<Bpe>> Bpe::from_tokens(std::vector<std::string> tokens) {
  std::unique_ptr<Bpe> bpe(new Bpe(std::move(tokens)));
  bpe->ids_.reserve(bpe->tokens_.size());
  for (size_t id = 0; id < bpe->tokens_.size(); ++id) {
    if (bpe->tokens_[id].empty()) continue;
    const auto [other, inserted] = bpe->ids_.emplace(bpe->tokens_[id], static_cast<int32_t>(id));
    if (!inserted) {
      return vocabulary_problem("tokens " + std::to_string(other->second) + " and " +
                                std::to_string(id) + " stand for the same bytes");
    }
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    const std::optional<int64_t> id = bpe->id_of(std::string_view(&text, 1));
    if (!id)
      return vocabulary_problem("the vocabulary has no token for byte " + std::to_string(byte));
    bpe->byte_ids_[byte] = static_cast<int32_t>(*id);
  }
  return bpe;
}

std::optional<Problem> Bpe::add_merge(std::string_view left, std::string_view right, int32_t rank) {
  const std::string merged = std::string(left).append(right);
  const auto left_id = id_of(left), right_id = id_of(right), merged_id = id_of(merged);
  if (!left_id || !right_id || !merged_id) {
    return vocabulary_problem("merge rule " + std::to_string(rank) +
                              " joins or makes something that is no token");
  }
  // Should a pair be listed twice the last rank counts, as in Hugging Face tokenizers.
  merges_[pair_key(static_cast<int32_t>(*left_id), static_cast<int32_t>(*right_id))] = {
      rank, static_cast<int32_t>(*merged_id)};
  return std::nullopt;
}

std::optional<int64_t> Bpe::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::optional<PairMerge> Bpe::merge_of(int32_t left, int32_t right, std::string_view merged) const {
  if (by_token_id_) {
    const auto found = ids_.find(merged);
    if (found == ids_.end()) return std::nullopt;
    return PairMerge{found->second, found->second};
  }
  const auto found = merges_.find(pair_key(left, right));
  if (found == merges_.end()) return std::nullopt;
  return found->second;
}

void Bpe::encode(std::string_view piece, std::vector<int64_t>& ids) const {
  if (piece.empty() || cache_.append(piece, ids)) return;
  const size_t before = ids.size();
  const std::optional<int64_t> whole = take_whole_pieces_ ? id_of(piece) : std::nullopt;
  if (whole) {
    ids.push_back(*whole);
  } else {
    merge(piece, ids);
  }
  cache_.insert(piece, ids.data() + before, ids.data() + ids.size());
}

// A queue of candidate pairs instead of rescanning: a piece of n bytes costs n log n, so that a
// megabyte without a space (base64, genomes) stays harmless.
void Bpe::merge(std::string_view piece, std::vector<int64_t>& ids) const {
  std::vector<Symbol> symbols(piece.size());
  for (size_t i = 0; i < piece.size(); ++i) {
    const auto position = static_cast<int32_t>(i);
    symbols[i] = {byte_ids_[static_cast<unsigned char>(piece[i])], position - 1,
                  i + 1 < piece.size() ? position + 1 : -1, static_cast<uint32_t>(i), 1};
  }
  std::vector<Candidate> storage;
  storage.reserve(piece.size());
  std::priority_queue<Candidate> candidates(std::less<Candidate>{}, std::move(storage));
  const auto consider = [&](int32_t position) {
    if (position < 0 || symbols[position].next < 0) return;
    const Symbol& left = symbols[position];
    const Symbol& right = symbols[left.next];
    const uint32_t size = left.size + right.size;
    if (const auto found = merge_of(left.id, right.id, piece.substr(left.start, size))) {
      candidates.push({found->rank, position, found->id, size});
    }
  };
  for (size_t i = 0; i + 1 < piece.size(); ++i) consider(static_cast<int32_t>(i));

  while (!candidates.empty()) {
    const Candidate candidate = candidates.top();
    candidates.pop();
    Symbol& left = symbols[candidate.position];
    if (left.size == 0 || left.next < 0) continue;
    Symbol& right = symbols[left.next];
    if (left.size + right.size != candidate.size) continue;  // one of the two has grown since
    left.id = candidate.id;
    left.size = candidate.size;
    left.next = right.next;
    right.size = 0;
    if (left.next >= 0) symbols[left.next].previous = candidate.position;
    consider(left.previous);
    consider(candidate.position);
  }
  for (int32_t i = 0; i >= 0; i = symbols[i].next) ids.push_back(symbols[i].id);
}

}  // namespace keyseat::data
