// keyseat list, describe and check, as a user calls them.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/loader/plugin_files.h"
#include "tests/skip.h"

using namespace keyseat_loader;

namespace {

#define CHECK_CONTAINS(text, part) CHECK_MESSAGE((text).find(part) != std::string::npos, text)

nlohmann::json find_plugin(const nlohmann::json& plugins, const std::string& name,
                           const std::string& state) {
  for (const auto& plugin : plugins) {
    if (plugin["name"] == name && plugin["state"] == state) return plugin;
  }
  return nullptr;
}

}  // namespace

TEST_CASE("list shows usable and refused plugins, as text, JSON and pins") {
  const TemporaryFolder folder;
  folder.write("keyseat_recompute_empty.so", "");
  folder.copy(zoo_file("good"));
  folder.write("notes.txt", "files that are not named by the rule are not looked at");
  const std::string dir = " --plugin-dir " + folder.path().string();

  const CommandResult json = run_keyseat("list --json" + dir);
  REQUIRE(json.status == 0);
  const auto plugins = nlohmann::json::parse(json.out)["plugins"];
  CHECK(find_plugin(plugins, "none", "ok")["kind"] == "recompute");
  CHECK(find_plugin(plugins, "self", "ok")["version"] == "1.0.0");
  CHECK(find_plugin(plugins, "good", "ok") != nullptr);
  CHECK(find_plugin(plugins, "empty", "refused")["problems"][0]["code"] == "P2");
  CHECK(json.out.find("notes") == std::string::npos);

  const CommandResult text = run_keyseat("list" + dir);
  CHECK(text.status == 0);
  CHECK_CONTAINS(text.out, "refused");
  CHECK_CONTAINS(text.out, "P2 " + folder.path().string());

  const CommandResult pins = run_keyseat("list --pins" + dir);
  CHECK_CONTAINS(pins.out, "[plugins.pin]\n");
  CHECK_CONTAINS(pins.out, "\"recompute/none\" = \"");
  CHECK(pins.out.find("empty") == std::string::npos);

  const CommandResult nowhere = run_keyseat("list --plugin-dir /no/such/folder");
  CHECK(nowhere.status == 3);
  CHECK_CONTAINS(nowhere.err, "P1 the plugin folder /no/such/folder");
}

TEST_CASE("list answers in under 0.2 s, median of 20") {
#if defined(KEYSEAT_ASAN)
  KEYSEAT_SKIP("the time of a program under sanitizers is no measure");
#endif
  // A round in which other processes had the cores is run again.
  constexpr double kLimit = 0.2;
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < 5 && best >= kLimit; ++round) {
    std::vector<double> seconds;
    for (int i = 0; i < 20; ++i) {
      const auto start = std::chrono::steady_clock::now();
      REQUIRE(run_keyseat("list").status == 0);
      seconds.push_back(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    std::sort(seconds.begin(), seconds.end());
    best = std::min(best, seconds[10]);
    MESSAGE("median ", seconds[10], " s");
  }
  CHECK(best < kLimit);
}

TEST_CASE("describe shows a plugin's options; a misspelt one gets the nearest name") {
  const CommandResult json = run_keyseat("describe recompute/none --json");
  REQUIRE(json.status == 0);
  CHECK(nlohmann::json::parse(json.out)["options"].empty());
  const CommandResult text = run_keyseat("describe comm/self");
  CHECK_CONTAINS(text.out, "comm/self 1.0.0: ");
  CHECK_CONTAINS(text.out, "[comm.options]");
  CHECK_CONTAINS(run_keyseat("describe core").out, "[run]");
  const CommandResult wrong = run_keyseat("describe comm/slef");
  CHECK(wrong.status == 3);
  CHECK_CONTAINS(wrong.err, "P1 no plugin comm/slef. Did you mean self?");
}

TEST_CASE("check loads in a child: a good plugin, and those that end the process") {
  const CommandResult good = run_keyseat("check " + good_file().string());
  CHECK(good.status == 0);
  CHECK_CONTAINS(good.out, "recompute/none 1.0.0: trusted, well-formed, built for this version");

  const CommandResult thrown = run_keyseat("check " + zoo_file("throwing_static").string());
  CHECK(thrown.status == 3);
  CHECK_CONTAINS(thrown.err, "P4 recompute/throwing_static ended the process that loaded it");
  CHECK_CONTAINS(thrown.err, "File: /");
  const CommandResult aborted = run_keyseat("check " + zoo_file("aborting_static").string());
  CHECK(aborted.status == 3);
  CHECK_CONTAINS(aborted.err, "P4 recompute/aborting_static ended the process that loaded it by");
  // The line before the load names the file, so that the abort has a culprit.
  CHECK_CONTAINS(aborted.err, "loading recompute/aborting_static from /");

  const CommandResult twice = run_keyseat("check " + zoo_file("duplicate_operators").string());
  CHECK(twice.status == 3);
  CHECK_CONTAINS(twice.err, "P4 recompute/duplicate_operators ended the process that loaded it");
  CHECK_CONTAINS(twice.err, "keyseat_zoo_operators");

  const CommandResult failing = run_keyseat("check " + zoo_file("failing_entry").string());
  CHECK(failing.status == 3);
  CHECK_CONTAINS(failing.err, "P6 the entry of recompute/failing_entry failed");

  const CommandResult name = run_keyseat("check /etc/passwd");
  CHECK(name.status == 3);
  CHECK_CONTAINS(name.err, "its name is not keyseat_KIND_NAME.so");
}

TEST_CASE("every command has a help page, and a wrong command line is status 2") {
  for (const std::string command : {"train", "eval", "parity", "bench", "data", "data inspect",
                                    "data index", "config", "chain", "list", "describe", "check"}) {
    CAPTURE(command);
    const CommandResult help = run_keyseat(command + " --help");
    CHECK(help.status == 0);
    CHECK_CONTAINS(help.out, "--");
    CHECK_CONTAINS(help.out, "OPTIONS");
    const CommandResult wrong = run_keyseat(command + " --no-such-flag");
    CHECK(wrong.status == 2);
    CHECK(wrong.out == "");
    CHECK(wrong.err != "");
  }
  CHECK(run_keyseat("chain configs/models/qwen3_vl_moe_tiny.toml --tokens 0").status == 2);
  CHECK(run_keyseat("chain configs/models/qwen3_vl_moe_tiny.toml --tokens 99999999999").status ==
        2);
}
