#include "webdataset.h"

#include "tar_listing.h"

namespace keyseat_data_webdataset {

using keyseat::Code;
using keyseat::Problem;
using keyseat::data::Extent;
using keyseat::data::ShardListing;

namespace {

// "a/b/000123.left.jpg" -> "a/b/000123"
std::string key_of(const std::string& name) {
  const size_t slash = name.find_last_of('/');
  return name.substr(0, name.find('.', slash == std::string::npos ? 0 : slash + 1));
}

}  // namespace

keyseat::OptionSchema Webdataset::options() { return keyseat::data::conversation_options(); }

keyseat::Problems Webdataset::validate(const keyseat::Options& options) {
  return keyseat::data::validate_conversations(options);
}

Webdataset::Webdataset(const keyseat::Options& options, const keyseat::PluginHost&)
    : ConversationData(options) {}

Webdataset::~Webdataset() { stop_loading(); }

keyseat::Result<ShardListing> Webdataset::list_(const std::string& path) const {
  auto members = list_tar(path);
  if (!members) return members.problem();
  ShardListing listing;
  listing.cut = std::move(members.value().cut);
  listing.files = std::move(members.value().files);
  for (const Extent& file : listing.files) {
    if (file.name.ends_with(".json"))
      listing.records.push_back({key_of(file.name), file.offset, file.size});
  }
  // The order of the shard is the source order.
  std::sort(listing.records.begin(), listing.records.end(),
            [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  if (listing.records.empty() && listing.cut.empty()) {
    return Problem{
        Code::kR6Data, {path, 0, 0}, "the shard holds no KEY.json", "", "Every sample needs one."};
  }
  return listing;
}

}  // namespace keyseat_data_webdataset
