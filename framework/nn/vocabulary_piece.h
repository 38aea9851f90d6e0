// How a vocabulary is cut over tensor ranks (TensorSplit::kUneven). Legend: V vocabulary, H hidden.
#pragma once

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "nn/contract.h"
#include "nn/rank_group.h"

namespace keyseat::nn {

// Ids [begin, begin + rows) of the whole vocabulary. All ranks have equally many but for the last
// ones, which may have fewer or none.
struct VocabularyPiece {
  int64_t begin = 0, rows = 0;
};

inline VocabularyPiece vocabulary_piece(int64_t vocabulary, const RankGroup& group, int64_t rank) {
  const int64_t most = (vocabulary + group.size() - 1) / group.size();
  const int64_t begin = std::min(vocabulary, rank * most);
  return {begin, std::min(vocabulary, begin + most) - begin};
}

// This rank's piece; R4 where the table has not just these rows.
inline VocabularyPiece own_vocabulary(const at::Tensor& table_VH, int64_t vocabulary,
                                      const RankGroup& group) {
  const VocabularyPiece piece = vocabulary_piece(vocabulary, group, group.rank());
  if (table_VH.dim() != 2 || table_VH.size(0) != piece.rows) {
    contract_error(
        fmt::format("tensor rank {} of {} has a table [{}] of a vocabulary of {}", group.rank(),
                    group.size(), fmt::join(table_VH.sizes(), ", "), vocabulary),
        fmt::format("its piece has {} rows, from id {} on", piece.rows, piece.begin),
        "declare the table with split = {dim 0, units = vocabulary, kUneven}");
  }
  return piece;
}

// Rows of the piece; -1 for ids of other ranks.
inline at::Tensor rows_in_piece(const at::Tensor& ids, const VocabularyPiece& piece) {
  const at::Tensor row = ids.sub(piece.begin);
  return row.masked_fill(row.lt(0), -1).masked_fill_(row.ge(piece.rows), -1);
}

inline std::vector<int64_t> vocabulary_counts(int64_t vocabulary, const RankGroup& group) {
  std::vector<int64_t> counts;
  for (int64_t rank = 0; rank < group.size(); ++rank)
    counts.push_back(vocabulary_piece(vocabulary, group, rank).rows);
  return counts;
}

}  // namespace keyseat::nn
