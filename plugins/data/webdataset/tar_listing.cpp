#include "tar_listing.h"

#include <archive.h>
#include <archive_entry.h>

namespace keyseat_data_webdataset {

using keyseat::Code;
using keyseat::Problem;
using keyseat::data::Extent;

namespace {

constexpr int64_t kBlock = 512;

// A whole tar file has a block of zeros behind its last member.
bool has_end_mark(const std::string& path, int64_t end) {
  std::ifstream in(path, std::ios::binary);
  in.seekg(end);
  std::array<char, kBlock> block;
  in.read(block.data(), kBlock);
  return in && std::all_of(block.begin(), block.end(), [](char c) { return c == 0; });
}

}  // namespace

keyseat::Result<TarMembers> list_tar(const std::string& path) {
  const auto close = [](archive* a) { archive_read_free(a); };
  const std::unique_ptr<archive, decltype(close)> reader(archive_read_new(), close);
  archive_read_support_format_tar(reader.get());
  archive_read_support_filter_none(reader.get());
  const auto reason = [&] {
    const char* why = archive_error_string(reader.get());
    return std::string(why != nullptr ? why : "");
  };
  const auto refuse = [&](const std::string& what) {
    return Problem{Code::kR6Data,
                   {path, 0, 0},
                   what,
                   reason(),
                   "A shard is an uncompressed tar file; unpack a compressed one."};
  };
  if (!std::filesystem::is_regular_file(path)) {
    return Problem{
        Code::kR7File, {path, 0, 0}, "there is no such tar file", "", "Check data.options.path."};
  }
  const auto file_size = static_cast<int64_t>(std::filesystem::file_size(path));
  const std::string remedy = "Copy or create the shard again, or leave it out.";
  if (file_size == 0)
    return Problem{Code::kR6Data, {path, 0, 0}, "the tar file is empty: it has 0 bytes", "", remedy};
  constexpr size_t kReadBytes = 1 << 20;
  if (archive_read_open_filename(reader.get(), path.c_str(), kReadBytes) != ARCHIVE_OK)
    return refuse("cannot read the shard");

  TarMembers members;
  std::map<std::string, Extent> by_name;  // of two members of one name the last counts
  archive_entry* entry = nullptr;
  int status = ARCHIVE_OK;
  int64_t end = 0;
  std::string last;
  while ((status = archive_read_next_header(reader.get(), &entry)) == ARCHIVE_OK ||
         status == ARCHIVE_WARN) {
    const char* name = archive_entry_pathname(entry);
    if (name == nullptr) name = archive_entry_pathname_utf8(entry);
    // Behind the header the format reader stands at the content.
    const int64_t offset = archive_filter_bytes(reader.get(), 0);
    const int64_t size = archive_entry_size(entry);
    if (name == nullptr) {
      members.cut = "a member behind " + last + " has no readable name: " + reason();
      break;
    }
    last = name;
    end = offset + (size + kBlock - 1) / kBlock * kBlock;
    if (offset + size > file_size) {
      members.cut = "the tar file ends inside of member " + last;
      break;
    }
    if (archive_entry_filetype(entry) == AE_IFREG) by_name[last] = {last, offset, size};
  }
  if (members.cut.empty() && status != ARCHIVE_EOF) {
    if (last.empty()) return refuse("not a tar file, or damaged");
    members.cut = "the tar file is cut or damaged behind member " + last + ": " + reason();
  }
  if (members.cut.empty() && last.empty())
    return Problem{Code::kR6Data, {path, 0, 0}, "the tar file holds no member", "", remedy};
  if (members.cut.empty() && !has_end_mark(path, end))
    members.cut = "the tar file is cut behind member " + last + ": it has no end mark";
  for (auto& [name, extent] : by_name) members.files.push_back(std::move(extent));
  return members;
}

}  // namespace keyseat_data_webdataset
