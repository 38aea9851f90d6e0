// Bases, overlays and --set: who wins, where values come from, what goes wrong.
#include <doctest/doctest.h>

#include <filesystem>

#include "config/testing.h"
#include "keyseat/config.h"

namespace keyseat::testing {
namespace {

TEST_CASE("layers: base of a table, overlay, --set, each with its origin") {
  const ScratchFolder folder;
  folder.write("models/m.toml", R"([[model.blocks]]
name = "vision"
plugin = "tower"
options = { hidden = 8, heads = 4 }
[[model.blocks]]
name = "decoder"
plugin = "decoder"
options = { hidden = 8 }
)");
  const std::string file = folder.write("runs/a.toml", R"([run]
steps = 10
seed = 1
[model]
base = "../models/m.toml"
freeze = ["vision"]
[data]
plugin = "folder"
options = { path = "x", more = ["y", "/z"] }
)");
  const std::string overlay = folder.write("overlays/b.toml", R"([[model.blocks]]
name = "decoder"
options = { hidden = 32 }
[data.options]
path = "w"
)");
  const auto resolved = resolve({.file = file,
                                 .overlays = {overlay},
                                 .sets = {"run.seed=7", "model.blocks.0.options.heads=8",
                                          "model.blocks.decoder.options.eps=0.5"}});
  INFO(problems_text(resolved.problems));
  REQUIRE(resolved.ok());
  const RunConfig& config = resolved.config;
  CHECK(config.run.seed == 7);
  const Options& vision = config.model.blocks.at(0).options;
  CHECK(vision.get_int("heads") == 8);
  CHECK(vision.entries().at("hidden").origin == folder.path("models/m.toml") + ":4");
  CHECK(vision.entries().at("taps").origin == "default");
  const Options& decoder = config.model.blocks.at(1).options;
  CHECK(decoder.get_int("hidden") == 32);
  CHECK(decoder.entries().at("hidden").origin == "overlay " + overlay + ":3");
  CHECK(decoder.entries().at("eps").origin == "--set");
  // Paths start where they were written.
  CHECK(config.data.options.get_string("path") == folder.path("overlays/w"));
  CHECK(config.data.options.get_string_list("more") ==
        std::vector<std::string>{folder.path("runs/y"), "/z"});
  const auto set = resolve({.file = file, .sets = {"data.options.path=here"}});
  CHECK(set.config.data.options.get_string("path") ==
        (std::filesystem::current_path() / "here").string());
}

TEST_CASE("layers: options go with the plugin they were given for") {
  const ScratchFolder folder;
  const std::string file =
      folder.write("a.toml", std::string(complete_config()) +
                                 "[strategy]\nplugin = \"sharded\"\noptions = { shard = 2 }\n");
  CHECK(resolve({.file = file}).config.strategy.options.get_int("shard") == 2);
  const auto single = resolve({.file = file, .sets = {"strategy.plugin=single"}});
  INFO(problems_text(single.problems));
  CHECK(single.ok());
  REQUIRE(single.notes.size() == 1);
  CHECK(single.notes[0].find("\"single\" instead of \"sharded\"") != std::string::npos);
  // Options given beside the new plugin stay, in either order.
  const auto mock = resolve({.file = file, .sets = {"data.options.tokens=3", "data.plugin=mock"}});
  CHECK(mock.ok());
  CHECK(mock.config.data.options.get_int("tokens") == 3);
  // The same plugin again changes nothing.
  CHECK(resolve({.file = file, .sets = {"strategy.plugin=sharded"}}).ok());
}

TEST_CASE("layers: [eval.options] go with the data plugin that they lie over") {
  const ScratchFolder folder;
  const std::string file = folder.write(
      "a.toml", std::string(complete_config()) + "[eval.options]\npath = \"held-out\"\n");
  const auto same = resolve({.file = file});
  CHECK(same.config.eval.data.options.get_string("path") == folder.path("held-out"));
  const std::string overlay =
      folder.write("mock.toml", "[data]\nplugin = \"mock\"\noptions.tokens = 3\n");
  const std::string own = folder.write("own.toml",
                                       "[data]\nplugin = \"mock\"\noptions.tokens = 3\n"
                                       "[eval.options]\ntokens = 4\n");
  const std::string based =
      folder.write("b.toml", "base = \"a.toml\"\n[data]\nplugin = \"mock\"\noptions.tokens = 3\n");
  const ConfigRequest replaced[] = {
      {.file = file, .overlays = {overlay}},
      {.file = file, .sets = {"data.options.tokens=3", "data.plugin=mock"}},
      {.file = file, .sets = {"data={plugin=\"mock\", options.tokens=3}"}},
      {.file = based},
  };
  for (const ConfigRequest& request : replaced) {
    const auto resolved = resolve(request);
    INFO(problems_text(resolved.problems));
    REQUIRE(resolved.ok());
    CHECK(resolved.config.eval.data.name == "mock");
    CHECK(resolved.config.eval.data.options.get_int("tokens") == 3);
    bool noted = false;
    for (const std::string& note : resolved.notes) {
      noted = noted || note.find("in [eval.options] at ") != std::string::npos;
    }
    CHECK(noted);
  }
  // What is given beside the new plugin stays, in either order.
  CHECK(resolve({.file = file, .overlays = {own}}).config.eval.data.options.get_int("tokens") == 4);
  const auto sets =
      resolve({.file = file,
               .sets = {"eval.options.tokens=5", "data.options.tokens=3", "data.plugin=mock"}});
  INFO(problems_text(sets.problems));
  REQUIRE(sets.ok());
  CHECK(sets.config.eval.data.options.get_int("tokens") == 5);
}

TEST_CASE("layers: bases of a whole file, several of them, and their order") {
  const ScratchFolder folder;
  folder.write("one.toml", complete_config());
  folder.write("two.toml", "[run]\nsteps = 20\nseed = 20\n");
  const std::string file =
      folder.write("a.toml", "base = [\"one.toml\", \"two.toml\"]\n[run]\nseed = 30\n");
  const auto resolved = resolve({.file = file});
  INFO(problems_text(resolved.problems));
  REQUIRE(resolved.ok());
  CHECK(resolved.config.run.steps == 20);
  CHECK(resolved.config.run.seed == 30);
}

TEST_CASE("layers: what can be wrong with bases") {
  const ScratchFolder folder;
  auto problems = [&](const std::string& text) {
    return places(resolve({.file = folder.write("a.toml", text)}).problems);
  };
  folder.write("b.toml", "base = \"a.toml\"\n");
  const std::string loop = std::string("base = \"b.toml\"\n") + complete_config();
  CHECK(problems(loop) == "C4 b.toml:1:8");
  folder.write("many.toml", "base = [\"m1.toml\", \"m1.toml\"]\n");
  for (int i = 1; i < 20; ++i) {
    const std::string next = "\"m" + std::to_string(i + 1) + ".toml\"";
    folder.write("m" + std::to_string(i) + ".toml", "base = [" + next + ", " + next + "]\n");
  }
  folder.write("m20.toml", "");
  const auto many = problems(std::string("base = \"many.toml\"\n") + complete_config());
  CHECK(many.starts_with("C4 m"));
  CHECK(many.find(',') == std::string::npos);
  CHECK(problems("[model]\nbase = \"none.toml\"\n") == "R7 a.toml:2:8");
  folder.write("model.toml",
               "[run]\nsteps = 3\n[[model.blocks]]\nname = \"v\"\n"
               "plugin = \"tower\"\noptions.hidden = 8\n");
  CHECK(problems("run.steps = 1\ndata.plugin = \"mock\"\n[model]\nbase = \"model.toml\"\n") ==
        "C2 model.toml:1:2");
  folder.write("empty.toml", "");
  CHECK(problems(std::string(complete_config()) + "[loss]\nbase = [\"empty.toml\", 3]\n") ==
        "C3 a.toml:22:9, C3 a.toml:22:23");
}

TEST_CASE("layers: a base that cannot be had is all that is said") {
  const ScratchFolder folder;
  folder.write("self.toml", "base = \"self.toml\"\n");
  folder.write("broken.toml", "[run\n");
  folder.write("tables.toml", "[loss.aux]\nweight = 0.5\n");
  const std::pair<const char*, const char*> cases[] = {
      {"base = \"self.toml\"\n", "C4 self.toml:1:8"},
      {"base = \"broken.toml\"\n", "C1 broken.toml:1:5"},
      {"base = \"\"\n", "C3 a.toml:1:8"},
      {"[model]\nbase = 3\n", "C3 a.toml:2:8"},
      {"[model]\nbase = \"tables.toml\"\n", "C2 tables.toml:1:2, C3 a.toml:2:8"}};
  for (const auto& [text, expected] : cases) {
    CAPTURE(text);
    CHECK(places(resolve({.file = folder.write("a.toml", text)}).problems) == expected);
  }
}

TEST_CASE("layers: a table that became a value is one problem") {
  const ScratchFolder folder;
  const std::string file = folder.write("a.toml", complete_config());
  for (const char* name : {"run", "model", "data", "optimizer", "loss", "eval", "log", "plugins",
                           "checkpoint", "loss.aux", "optimizer.schedule", "plugins.pin"}) {
    CAPTURE(name);
    const auto problems = resolve({.file = file, .sets = {std::string(name) + "=3"}}).problems;
    REQUIRE(problems.size() == 1);
    CHECK(problems[0].code == Code::kC3Value);
    CHECK(problems[0].text().find("must be a table, is an integer") != std::string::npos);
  }
}

TEST_CASE("layers: --set takes TOML values, else strings") {
  const ScratchFolder folder;
  const std::string file = folder.write("a.toml", complete_config());
  auto set = [&](std::string text) { return resolve({.file = file, .sets = {std::move(text)}}); };
  CHECK(set("run.name=a b").config.run.name == "a b");
  CHECK(set("run.name=\"a b\"").config.run.name == "a b");
  CHECK(set("run.name=007").config.run.name == "007");
  CHECK(set("run.name=2024-01-01").config.run.name == "2024-01-01");
  CHECK(set("run.name=true").config.run.name == "true");
  CHECK(set("model.blocks.vision.options.taps=[1, 2]")
            .config.model.blocks.at(0)
            .options.get_int_list("taps") == std::vector<int64_t>{1, 2});
  CHECK(set("optimizer.options={lr=0.5}").config.optimizer.options.get_float("lr") == 0.5);
  CHECK(set("plugins.pin.\"block/x.y\"=ab").config.plugins.pins.at("block/x.y") == "ab");
  auto refused = [&](const std::string& text) {
    const auto problems = set(text).problems;
    REQUIRE(problems.size() == 1);
    CHECK(problems[0].where.file == "--set " + text);
    return std::string(code_name(problems[0].code));
  };
  CHECK(refused("run.steps") == "C1");
  CHECK(refused("=3") == "C1");
  CHECK(refused("run..steps=3") == "C1");
  CHECK(refused("run.steps=many") == "C3");
  CHECK(refused("run.stesp=3") == "C2");
  CHECK(refused("run.seed.x=3") == "C3");
  CHECK(refused("run.steps.x=3") == "C3");
  CHECK(refused("model.blocks.visoin.options.hidden=3") == "C2");
  CHECK(refused("model.blocks.5.options.hidden=3") == "C2");
  CHECK(refused("model.blocks.vision.options.taps.0=3") == "C3");
  CHECK(refused(std::string(5000, 'a') + "=1") == "C2");
  std::string deep = "a";
  for (int i = 0; i < 100000; ++i) deep += ".a";
  CHECK(refused(deep + "=1") == "C1");
}

TEST_CASE("layers: a renamed option is accepted with a note, not twice") {
  const ScratchFolder folder;
  const std::string file = folder.write("a.toml", complete_config());
  const std::string tied = "model.blocks.decoder.options.tied=true";
  const auto renamed = resolve({.file = file, .sets = {tied}});
  CHECK(renamed.config.model.blocks.at(1).options.get_bool("tie"));
  CHECK(renamed.notes.size() == 1);
  const auto twice =
      resolve({.file = file, .sets = {tied, "model.blocks.decoder.options.tie=true"}});
  REQUIRE(twice.problems.size() == 1);
  CHECK(twice.problems[0].code == Code::kC4Combination);
}

}  // namespace
}  // namespace keyseat::testing
