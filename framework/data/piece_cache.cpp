#include "data/piece_cache.h"

namespace keyseat::data {

bool PieceCache::append(std::string_view piece, std::vector<int64_t>& ids) {
  if (piece.size() > kMaxPieceBytes) return false;
  Shard& shard = shard_of(piece);
  const std::lock_guard lock(shard.mutex);
  const auto found = shard.pieces.find(piece);
  if (found == shard.pieces.end()) return false;
  ids.insert(ids.end(), found->second.begin(), found->second.end());
  return true;
}

void PieceCache::insert(std::string_view piece, const int64_t* begin, const int64_t* end) {
  if (piece.size() > kMaxPieceBytes) return;
  std::vector<int32_t> ids(begin, end);
  Shard& shard = shard_of(piece);
  const std::lock_guard lock(shard.mutex);
  if (shard.pieces.size() >= kPiecesPerShard) shard.pieces.clear();
  shard.pieces.emplace(piece, std::move(ids));
}

}  // namespace keyseat::data
