#include "checkpoint/checkpoint_info.h"

namespace keyseat::checkpoint {

using nlohmann::json;

std::string info_json(const CheckpointInfo& info) {
  json root{{"format", kFormat},       {"next_step", info.next_step}, {"cursor", info.cursor},
            {"updates", info.updates}, {"keys", info.keys},           {"failures", json::object()},
            {"files", json::array()}};
  for (const auto& [reason, failure] : info.failures)
    root["failures"][reason] = {{"count", failure.first}, {"example", failure.second}};
  for (const CheckpointFile& file : info.files)
    root["files"].push_back({{"name", file.name}, {"bytes", file.bytes}, {"xxh3", file.xxh3}});
  return root.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

Result<CheckpointInfo> read_info(const std::string& folder) {
  const std::string path = folder + "/" + kInfoFile;
  std::ifstream stream(path);
  if (!stream) {
    return Problem{Code::kR7File,
                   {path, 0, 0},
                   "cannot read the file",
                   std::strerror(errno),
                   "A folder without it is no complete checkpoint."};
  }
  try {
    const json root = json::parse(stream);
    const int format = root.at("format").get<int>();
    if (format != kFormat) {
      return Problem{
          Code::kR6Data,
          {path, 0, 0},
          fmt::format("the checkpoint has format {}, this version reads {}", format, kFormat),
          "",
          "Resume with the version of Keyseat that wrote it."};
    }
    CheckpointInfo info;
    info.next_step = root.at("next_step").get<int64_t>();
    info.cursor = root.at("cursor").get<int64_t>();
    info.updates = root.at("updates").get<std::map<std::string, int64_t>>();
    info.keys = root.at("keys").get<std::map<std::string, std::string>>();
    for (const auto& [reason, failure] : root.at("failures").items()) {
      info.failures[reason] = {failure.at("count").get<int64_t>(),
                               failure.at("example").get<std::string>()};
    }
    for (const json& file : root.at("files")) {
      info.files.push_back({file.at("name").get<std::string>(), file.at("bytes").get<int64_t>(),
                            file.at("xxh3").get<std::string>()});
    }
    return info;
  } catch (const json::exception& error) {
    return Problem{Code::kR6Data,
                   {path, 0, 0},
                   "not a usable checkpoint description",
                   error.what(),
                   "Remove this checkpoint's folder; the one before it is then the newest."};
  }
}

}  // namespace keyseat::checkpoint
