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
    case FaultKind::kBadRecord:
      return "bad_record";
    case FaultKind::kBadText:
      return "bad_text";
    case FaultKind::kMissingFile:
      return "missing_file";
    case FaultKind::kTooLong:
      return "too_long";
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
      return "Give a video as one or more frames of one size.";
    case FaultKind::kBadRecord:
      return "A record is {\"messages\": [{\"role\": ..., \"content\": ...}, ...]}.";
    case FaultKind::kBadText:
      return "Write the text as UTF-8; placeholders come from image parts only.";
    case FaultKind::kMissingFile:
      return "Add the file, or correct its name in the record.";
    case FaultKind::kTooLong:
      return "Shorten or split the conversation, use smaller images, or raise the limit.";
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
