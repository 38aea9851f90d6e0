#include "checkpoint/checkpoint_info.h"

#include "base/json_text.h"

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
  const std::string text((std::istreambuf_iterator<char>(stream)), {});
  const auto unusable = [&](SourcePosition where, const std::string& what) {
    return Problem{Code::kR6Data, std::move(where), "not a usable checkpoint description: " + what,
                   "", "Remove this checkpoint's folder; the one before it is then the newest."};
  };
  const Result<json> parsed = parse_json(text, path);
  if (!parsed) return unusable(parsed.problem().where, parsed.problem().what);
  const json& root = parsed.value();
  try {
    const int format = json_field<int>(root, "format");
    if (format != kFormat) {
      return Problem{
          Code::kR6Data,
          {path, 0, 0},
          fmt::format("the checkpoint has format {}, this version reads {}", format, kFormat),
          "",
          "Resume with the version of Keyseat that wrote it."};
    }
    CheckpointInfo info;
    info.next_step = json_field<int64_t>(root, "next_step");
    info.cursor = json_field<int64_t>(root, "cursor");
    for (const auto& [key, value] :
         {std::pair{"next_step", info.next_step}, {"cursor", info.cursor}})
      if (value < 0) throw JsonFieldError{key, fmt::format("{} is no count", value)};
    info.updates = json_field<std::map<std::string, int64_t>>(root, "updates");
    info.keys = json_field<std::map<std::string, std::string>>(root, "keys");
    for (const auto& [reason, failure] :
         json_field<std::map<std::string, json>>(root, "failures")) {
      info.failures[reason] = {json_field<int64_t>(failure, "count"),
                               json_field<std::string>(failure, "example")};
    }
    for (const json& file : json_field<std::vector<json>>(root, "files")) {
      info.files.push_back({json_field<std::string>(file, "name"),
                            json_field<int64_t>(file, "bytes"),
                            json_field<std::string>(file, "xxh3")});
    }
    return info;
  } catch (const JsonFieldError& error) {
    return unusable(position_of_key(text, path, error.key),
                    fmt::format("at \"{}\": {}", error.key, error.what));
  }
}

}  // namespace keyseat::checkpoint
