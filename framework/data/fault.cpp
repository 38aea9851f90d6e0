#include "keyseat/data/fault.h"

namespace keyseat::data {

const char* fault_name(FaultKind kind) {
  switch (kind) {
    case FaultKind::kEmptyFile:
      return "empty_file";
    case FaultKind::kUnreadableFile:
      return "unreadable_file";
    case FaultKind::kFileTooLarge:
      return "file_too_large";
    case FaultKind::kUnknownFormat:
      return "unknown_format";
    case FaultKind::kUnsupportedFormat:
      return "unsupported_format";
    case FaultKind::kTruncated:
      return "truncated";
    case FaultKind::kCorrupt:
      return "corrupt";
    case FaultKind::kTooManyPixels:
      return "too_many_pixels";
    case FaultKind::kEdgeTooLong:
      return "edge_too_long";
    case FaultKind::kOutOfMemory:
      return "out_of_memory";
    case FaultKind::kAspectRatio:
      return "aspect_ratio";
    case FaultKind::kFrameSizes:
      return "frame_sizes";
    case FaultKind::kTooManyFrames:
      return "too_many_frames";
    case FaultKind::kBadUtf8:
      return "bad_utf8";
    case FaultKind::kBadJson:
      return "bad_json";
    case FaultKind::kBadRecord:
      return "bad_record";
    case FaultKind::kUnknownRole:
      return "unknown_role";
    case FaultKind::kPlaceholders:
      return "placeholder_mismatch";
    case FaultKind::kBadText:
      return "bad_text";
    case FaultKind::kMissingFile:
      return "missing_file";
    case FaultKind::kTooLong:
      return "too_long";
    case FaultKind::kCutShard:
      return "cut_shard";
    case FaultKind::kChanged:
      return "changed";
  }
  return "unnamed_fault";
}

namespace {

const char* remedy_for(FaultKind kind) {
  switch (kind) {
    case FaultKind::kEmptyFile:
    case FaultKind::kTruncated:
    case FaultKind::kCorrupt:
      return "Copy or create the file again, or drop the record.";
    case FaultKind::kUnreadableFile:
      return "Check the path, which is relative to the data file, and its permissions.";
    case FaultKind::kUnknownFormat:
    case FaultKind::kUnsupportedFormat:
      return "Convert the image to 8-bit JPEG, PNG or WebP.";
    case FaultKind::kFileTooLarge:
    case FaultKind::kTooManyPixels:
    case FaultKind::kEdgeTooLong:
    case FaultKind::kOutOfMemory:
      return "Shrink the image; images above the processor's max_pixels are scaled down anyway.";
    case FaultKind::kAspectRatio:
      return "Crop the image or cut it into several.";
    case FaultKind::kFrameSizes:
      return "Give a video as two or more frames of one size.";
    case FaultKind::kTooManyFrames:
      return "Leave frames out, cut the video, or raise data.options.max_video_frames.";
    case FaultKind::kBadUtf8:
    case FaultKind::kBadText:
      return "Write the text as UTF-8.";
    case FaultKind::kBadJson:
    case FaultKind::kBadRecord:
      return "A record is {\"messages\": [{\"role\": ..., \"content\": ...}, ...]}.";
    case FaultKind::kUnknownRole:
      return "Roles are system, user and assistant.";
    case FaultKind::kPlaceholders:
      return "Give images and videos as parts of a message, not as text.";
    case FaultKind::kMissingFile:
      return "Add the file, or correct its name in the record.";
    case FaultKind::kTooLong:
      return "Shorten or split the conversation, use smaller images, or raise the limit.";
    case FaultKind::kCutShard:
      return "Copy or create the shard again; the samples before the cut are used.";
    case FaultKind::kChanged:
      return "Data must not change while a run reads it; start again, or look at the file.";
  }
  return "";
}

}  // namespace

Problem Fault::problem(const std::string& record) const {
  Problem result;
  result.code = Code::kR6Data;
  result.where.file = record;
  result.what = std::string(fault_name(kind)) + ": " + detail;
  result.remedy = remedy_for(kind);
  return result;
}

}  // namespace keyseat::data
