// Remembers the token ids of short pieces: words repeat, so most merging is done once.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace keyseat::data {

// Threads: all functions may be called at once; locks are per shard and held for one table access.
class PieceCache {
 public:
  // Appends the ids of `piece` if they are known.
  bool append(std::string_view piece, std::vector<int64_t>& ids);
  void insert(std::string_view piece, const int64_t* begin, const int64_t* end);

 private:
  static constexpr size_t kShards = 16;
  static constexpr size_t kPiecesPerShard =
      8192;  // a full shard starts afresh: bounded memory, no bookkeeping
  static constexpr size_t kMaxPieceBytes = 64;  // longer pieces hardly ever come back

  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view piece) const { return std::hash<std::string_view>{}(piece); }
  };
  struct Shard {
    std::mutex mutex;
    std::unordered_map<std::string, std::vector<int32_t>, Hash, std::equal_to<>> pieces;
  };
  Shard& shard_of(std::string_view piece) { return shards_[Hash{}(piece) % kShards]; }

  std::array<Shard, kShards> shards_;
};

}  // namespace keyseat::data
