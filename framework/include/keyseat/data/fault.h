// Faults: why one record of a data set cannot be used.
//
// Broken records are ordinary in large data sets. They are values, never exceptions: a loader
// counts them by kind, leaves the sample's slot empty and goes on, until a limit set in the config
// makes the count itself an error.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "keyseat/export.h"
#include "keyseat/status.h"

namespace keyseat::data {

enum class FaultKind {
  kEmptyFile,          // zero bytes
  kUnreadableFile,     // missing, not a regular file, or an I/O error
  kFileTooLarge,       // more encoded bytes than ImageLimits allows
  kUnknownFormat,      // the first bytes belong to no image format we know of
  kUnsupportedFormat,  // a known format, or a variant of one, that is not decoded here
  kTruncated,          // the file ends before the image does
  kCorrupt,            // the file contradicts its format
  kTooManyPixels,      // height * width above ImageLimits
  kEdgeTooLong,        // height or width above ImageLimits
  kOutOfMemory,        // within the limits, but the allocation failed
  kAspectRatio,        // longer edge / shorter edge above 200
  kFrameSizes,         // the frames of one video differ in size, or are too few
  kTooManyFrames,      // more frames in a video than max_video_frames
  kBadUtf8,            // the record is not UTF-8
  kBadJson,            // the record is not JSON
  kBadRecord,          // the record is not a conversation
  kUnknownRole,        // a message of nobody known
  kPlaceholders,       // placeholders and visuals disagree: a text spells a placeholder out
  kBadText,            // text that cannot be encoded
  kMissingFile,        // a file that the record names is not there
  kTooLong,            // more tokens than a row or the model takes
  kCutShard,           // the shard ends inside a record
  kChanged,            // another size than when the sample was measured
};

// Stable snake_case name, as counted in metrics and shown by `data inspect`: "empty_file",
// "truncated", "aspect_ratio".
KEYSEAT_API const char* fault_name(FaultKind kind);

struct KEYSEAT_API Fault {
  FaultKind kind;
  std::string
      detail;  // one clause with the values at hand: "18000 x 18000 pixels, the limit is 67108864"

  // The fault as an R6 problem of `record` (a file name, or shard and key).
  Problem problem(const std::string& record) const;
};

// A value, or the fault that prevented it.
template <typename T>
class Outcome {
 public:
  Outcome(T value) : state_(std::move(value)) {}
  Outcome(Fault fault) : state_(std::move(fault)) {}
  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  const T& value() const& { return std::get<0>(state_); }
  T& value() & { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  const Fault& fault() const { return std::get<1>(state_); }

 private:
  std::variant<T, Fault> state_;
};

}  // namespace keyseat::data
