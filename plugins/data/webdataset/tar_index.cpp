#include "tar_index.h"

#include <archive.h>
#include <archive_entry.h>

namespace keyseat_data_webdataset {

using keyseat::Code;
using keyseat::Problem;
using keyseat::data::Fault;
using keyseat::data::FaultKind;

keyseat::Result<TarShard> TarShard::open(const std::string& path) {
  const auto close = [](archive* a) { archive_read_free(a); };
  const std::unique_ptr<archive, decltype(close)> reader(archive_read_new(), close);
  archive_read_support_format_tar(reader.get());
  archive_read_support_filter_none(reader.get());
  const auto refuse = [&](const std::string& what) {
    const char* why = archive_error_string(reader.get());
    return Problem{Code::kR6Data,
                   {path, 0, 0},
                   what,
                   why != nullptr ? why : "",
                   "A shard is an uncompressed tar file; unpack a compressed one."};
  };
  constexpr size_t kBlock = 1 << 20;
  if (!std::filesystem::is_regular_file(path)) {
    return Problem{
        Code::kR7File, {path, 0, 0}, "there is no such tar file", "", "Check data.options.path."};
  }
  if (archive_read_open_filename(reader.get(), path.c_str(), kBlock) != ARCHIVE_OK)
    return refuse("cannot read the shard");

  TarShard shard;
  shard.path_ = path;
  const auto file_size = static_cast<int64_t>(std::filesystem::file_size(path));
  archive_entry* entry = nullptr;
  int status = ARCHIVE_OK;
  while ((status = archive_read_next_header(reader.get(), &entry)) == ARCHIVE_OK ||
         status == ARCHIVE_WARN) {
    if (archive_entry_filetype(entry) != AE_IFREG) continue;
    const char* name = archive_entry_pathname(entry);
    // Behind the header the format reader stands at the content.
    const TarMember member{archive_filter_bytes(reader.get(), 0), archive_entry_size(entry)};
    if (name == nullptr) return refuse("a member has no readable name");
    if (member.offset + member.size > file_size)
      return refuse(fmt::format("member {} is cut off", name));
    shard.members_[name] = member;
  }
  if (status != ARCHIVE_EOF) return refuse("not a tar file, or damaged");
  if (shard.members_.empty()) return refuse("the shard holds no files");
  return shard;
}

keyseat::data::Outcome<std::vector<uint8_t>> TarShard::read(const std::string& member) const {
  const auto found = members_.find(member);
  if (found == members_.end())
    return Fault{FaultKind::kMissingFile, "there is no member " + member};
  std::vector<uint8_t> bytes(static_cast<size_t>(found->second.size));
  std::ifstream file(path_, std::ios::binary);
  file.seekg(found->second.offset);
  file.read(reinterpret_cast<char*>(bytes.data()), found->second.size);
  if (!file) return Fault{FaultKind::kUnreadableFile, member + " cannot be read"};
  return bytes;
}

}  // namespace keyseat_data_webdataset
