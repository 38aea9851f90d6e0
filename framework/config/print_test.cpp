// The printed configuration can be loaded again and is then the same.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "config/testing.h"
#include "keyseat/config.h"

namespace keyseat::testing {
namespace {

using Json = nlohmann::json;

// The values without their origins.
Json values(const Json& json) {
  if (json.is_object() && json.contains("origin")) return json["value"];
  Json out = json;
  for (auto& item : out) {
    if (item.is_structured()) item = values(item);
  }
  return out;
}

TEST_CASE("print: TOML loads again with the same values, from another folder") {
  const ScratchFolder folder, other;
  const std::string file = folder.write(
      "a.toml",
      std::string(complete_config()) +
          "more = [\"a\\nb\", \"c#d\"]\nweights = [1, 0.5, 1e-7]\n"
          "[strategy]\nplugin = \"sharded\"\noptions = { shard = 2, min_bytes = \"1KiB\" }\n"
          "[optimizer.options]\nlabel = \"tab\\t quote\\\" \\u0001 \u00e9\"\n"
          "[eval.options]\nblank = true\n"
          "[plugins]\nsearch = [\"p\"]\n[plugins.pin]\n\"block/tower\" = \"00ff\"\n");
  FakeSchemas schemas;
  const auto first = resolve_config({.file = file, .sets = {"run.seed=5"}}, schemas);
  INFO(problems_text(first.problems));
  REQUIRE(first.ok());
  const std::string printed = config_toml(first.config);
  INFO(printed);
  const auto second = resolve_config({.file = other.write("b.toml", printed)}, schemas);
  INFO(problems_text(second.problems));
  REQUIRE(second.ok());
  const Json before = Json::parse(config_json(first.config));
  const Json after = Json::parse(config_json(second.config));
  CHECK(values(before) == values(after));
  CHECK(values(before)["strategy"]["options"]["min_bytes"] == 1024);
  CHECK(before["run"]["seed"]["origin"] == "--set");
  CHECK(before["run"]["steps"]["origin"] == file + ":3");
  CHECK(before["model"]["blocks"][1]["options"]["eps"]["value"] == 1.0);
  CHECK(printed.find("seed = 5  # --set\n") != std::string::npos);
  CHECK(printed.find("timeout_s = 300.0  # default\n") != std::string::npos);
  CHECK(printed.find("# threads is not set\n") != std::string::npos);
  // Defaults stay defaults: they are told by their value, not by who wrote them.
  CHECK(second.config.strategy.options.given("shard"));
  CHECK_FALSE(second.config.schedule.kind == ScheduleKind::kConstant);
  CHECK(after["optimizer"]["schedule"]["decay_ratio"]["origin"].get<std::string>().starts_with(
      "default, and given at "));
}

}  // namespace
}  // namespace keyseat::testing
