// The configuration as users meet it: what is resolved, and how mistakes are reported.
#include "keyseat/config.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <set>

#include "config/cpu_precision.h"
#include "config/testing.h"

namespace keyseat::testing {
namespace {

TEST_CASE("config: a complete file becomes typed settings") {
  const ScratchFolder folder;
  const std::string file = folder.write("a.toml", complete_config());
  const ResolvedConfig resolved = resolve({.file = file});
  INFO(problems_text(resolved.problems));
  REQUIRE(resolved.ok());
  const RunConfig& config = resolved.config;
  CHECK(config.run.name == "small");
  CHECK(config.run.steps == 10);
  CHECK(config.run.dir == (std::filesystem::current_path() / "runs/small").string());
  REQUIRE(config.model.blocks.size() == 2);
  CHECK(config.model.blocks[0].instance == "vision");
  CHECK(config.model.blocks[0].name == "tower");
  CHECK(config.model.blocks[0].where.line == 7);
  CHECK(config.model.blocks[0].options.get_int_list("taps") == std::vector<int64_t>{0, 2});
  CHECK(config.model.blocks[1].options.get_float("eps") == 1.0);
  CHECK(config.data.options.get_string("path") == folder.path("images"));
  CHECK(config.strategy.name == "single");
  CHECK(config.strategy.origin == "default");
  CHECK(config.comm.name == "self");
  CHECK(config.optimizer.options.get_float("lr") == 1e-3);
  CHECK(config.schedule.total_steps == 10);
  CHECK(config.eval.data.name == "folder");
}

TEST_CASE("config: ten different mistakes are ten problems, each at its position") {
  const ScratchFolder folder;
  const std::string file = folder.write("a.toml", R"([run]
stesp = 10
seed = "one"
timeout_s = 0.0

[[model.blocks]]
name = "vision"
plugin = "tower"
[model.blocks.options]
hidden = 9
heads = 2

[[model.blocks]]
name = "decoder"
plugin = "decodr"

[model]
freeze = ["vision", "decodre"]

[data]
plugin = "folder"
blank = true

[graphs]
mode = "step"

[stratgy]
plugin = "single"
)");
  const ResolvedConfig resolved = resolve({.file = file});
  INFO(problems_text(resolved.problems));
  CHECK(places(resolved.problems) ==
        "C2 a.toml:2:1, "    // misspelt key
        "C3 a.toml:3:8, "    // wrong type
        "C3 a.toml:4:13, "   // out of range
        "C4 a.toml:11:9, "   // a plugin's own rule
        "P1 a.toml:15:10, "  // no such plugin
        "C3 a.toml:18:21, "  // name of no block, at the element
        "C3 a.toml:20:1, "   // required option missing, at the table
        "C2 a.toml:22:1, "   // key in the wrong one of two tables
        "C3 a.toml:25:8, "   // refused with its reason
        "C2 a.toml:27:2");   // misspelt table
  const std::string text = problems_text(resolved.problems);
  CHECK(text.find("a.toml:2:1: C2 unknown option \"stesp\" in [run]. Did you mean \"steps\"?") !=
        std::string::npos);
  CHECK(text.find("It belongs into [data.options]") != std::string::npos);
  CHECK(text.find("captures no graphs") != std::string::npos);
}

TEST_CASE("config: a misspelt option of a plugin names table, plugin and the nearest option") {
  const ScratchFolder folder;
  const std::string file = folder.write("a.toml", R"([run]
steps = 1
[[model.blocks]]
name = "vision"
plugin = "tower"
[model.blocks.options]
hiden = 8
[data]
plugin = "mock"
)");
  const ResolvedConfig resolved = resolve({.file = file});
  REQUIRE(resolved.problems.size() == 1);
  CHECK(resolved.problems[0].text() ==
        file +
            ":7:1: C2 unknown option \"hiden\" in [model.blocks.options] of plugin block/tower. "
            "Did you mean \"hidden\"?");
}

TEST_CASE("config: syntax errors, unreadable files and empty files") {
  const ScratchFolder folder;
  CHECK(places(resolve({.file = folder.write("s.toml", "[run]\nsteps = = 3\n")}).problems) ==
        "C1 s.toml:2:9");
  CHECK(resolve({.file = folder.path("none.toml")}).problems.at(0).code == Code::kR7File);
  CHECK(resolve({.file = folder.path("")}).problems.at(0).code == Code::kR7File);
  const auto empty = resolve({.file = folder.write("e.toml", "")});
  // run.steps, the blocks and data.plugin.
  CHECK(places(empty.problems) == "C3 e.toml, C3 e.toml, C3 e.toml");
}

TEST_CASE("config: only the model, from blocks that a program gives, with --set on top") {
  const GivenBlock tower{"vision", "tower", {{"hidden", int64_t{8}}}, {"config.json", 0, 0}};
  const auto resolved = resolve({.sets = {"model.blocks.vision.options.taps=[1]"},
                                 .blocks = {tower},
                                 .use = ConfigUse::kModel});
  INFO(problems_text(resolved.problems));
  REQUIRE(resolved.ok());
  const Options& options = resolved.config.model.blocks.at(0).options;
  CHECK(options.entries().at("hidden").origin == "config.json");
  CHECK(options.entries().at("taps").origin == "--set");
  CHECK(resolved.config.data.name.empty());
}

TEST_CASE("config: block names are checked") {
  const GivenBlock bad{"a.b", "tower", {{"hidden", int64_t{8}}}, {"x", 0, 0}};
  GivenBlock twin = bad;
  twin.name = "same";
  const auto resolved = resolve({.blocks = {bad, twin, twin}, .use = ConfigUse::kModel});
  CHECK(places(resolved.problems) == "C3 x, C4 x");
}

TEST_CASE("config: schedules") {
  const ScratchFolder folder;
  const std::string file = folder.write("a.toml", complete_config());
  auto with = [&](std::vector<std::string> sets) { return resolve({.file = file, .sets = sets}); };
  const std::string table = "optimizer.schedule.";
  const auto wsd = with({table + "kind=wsd", table + "decay_ratio=0.3"});
  REQUIRE(wsd.ok());
  CHECK(wsd.config.schedule.decay_steps == 3);
  CHECK(with({table + "warmup_steps=11"}).problems.at(0).code == Code::kC4Combination);
  CHECK(with({table + "kind=wsd", table + "decay_steps=2", table + "decay_ratio=0.2"})
            .problems.at(0)
            .code == Code::kC4Combination);
  CHECK(with({table + "kind=constant", table + "min_ratio=0.5"}).problems.size() == 1);
  CHECK(with({table + "decay_steps=2"}).problems.at(0).code == Code::kC4Combination);
  // A value that is the default anyway conflicts with nothing.
  CHECK(with({table + "decay_ratio=0.1"}).ok());
}

TEST_CASE("config: evaluation data are the training data with other options") {
  const ScratchFolder folder;
  const std::string file =
      folder.write("a.toml", std::string(complete_config()) +
                                 "blank = true\n[eval.options]\npath = \"other\"\n");
  const auto resolved = resolve({.file = file});
  INFO(problems_text(resolved.problems));
  REQUIRE(resolved.ok());
  CHECK(resolved.config.eval.data.options.get_string("path") == folder.path("other"));
  CHECK(resolved.config.eval.data.options.get_bool("blank"));
  CHECK(resolve({.file = file, .sets = {"eval.options.pth=1"}}).problems.size() == 1);
  // Back to a default is an overlay too.
  const auto back = resolve({.file = file, .sets = {"eval.options.blank=false"}});
  CHECK_FALSE(back.config.eval.data.options.get_bool("blank"));
}

TEST_CASE("config: no number that is not finite or out of all reason") {
  const ScratchFolder folder;
  const std::string file = folder.write("a.toml", complete_config());
  for (const char* key :
       {"loss.aux.weight", "loss.z.weight", "optimizer.clip_norm", "optimizer.schedule.min_ratio",
        "optimizer.schedule.decay_ratio", "optimizer.lr_factors.vision",
        "optimizer.decay_factors.vision", "run.timeout_s", "optimizer.options.lr"}) {
    for (const char* value : {"1e308", "-1e308", "inf", "-inf", "nan", "1e400"}) {
      CAPTURE(key);
      CAPTURE(value);
      const auto problems =
          resolve({.file = file, .sets = {fmt::format("{}={}", key, value)}}).problems;
      REQUIRE(problems.size() == 1);
      CHECK(problems[0].code == Code::kC3Value);
    }
  }
}

TEST_CASE("config: empty paths and names, and a limit that is met, are told") {
  const ScratchFolder folder;
  const std::string file = folder.write("a.toml", complete_config());
  const std::pair<const char*, const char*> cases[] = {
      {"run.dir=", "\"dir\" in [run] must be a path (a string that is not empty)"},
      {"checkpoint.dir=", "\"dir\" in [checkpoint] must be a path"},
      {"model.init=", "\"init\" in [model] must be a path"},
      {"data.options.path=", "\"path\" in [data.options]"},
      {"data.options.more=[\"\"]", "must be a list of paths (strings that are not empty)"},
      {"run.name=", "the name of the run is empty"},
      {"run.steps=9223372036854775807", "an integer from 1 to 9007199254740992"},
      {"run.steps=99999999999999999999", "an integer from 1 to 9007199254740992"},
      {"memory.cache=9PB", "a size in bytes, such as 1048576 or \"1MiB\" of at least 0"},
      {"memory.cache=99999TiB", "from 0 to 9007199254740992 (bytes)"},
      {"memory.cache=99999999999999TiB", "from 0 to 9007199254740992 (bytes)"}};
  for (const auto& [set, text] : cases) {
    CAPTURE(set);
    const auto problems = resolve({.file = file, .sets = {set}}).problems;
    REQUIRE(problems.size() == 1);
    CHECK(problems[0].code == Code::kC3Value);
    CHECK_MESSAGE(problems[0].text().find(text) != std::string::npos, problems[0].text());
    CHECK(problems[0].where.file == std::string("--set ") + set);
  }
}

TEST_CASE("config: communicator by device, ranks and hosts") {
  CHECK(default_comm(DeviceKind::kCpu, 1, 1) == "self");
  CHECK(default_comm(DeviceKind::kCuda, 1, 1) == "self");
  CHECK(default_comm(DeviceKind::kCuda, 8, 1) == "nccl");
  CHECK(default_comm(DeviceKind::kCpu, 2, 1) == "shm");
  CHECK(default_comm(DeviceKind::kCpu, 2, 2) == "gloo");
}

TEST_CASE("config: automatic precision asks the CPU") {
  CHECK(has_native_bf16("processor : 0\nflags\t\t: fpu avx2 avx512_bf16\n"));
  CHECK(has_native_bf16("flags : amx_bf16 amx_tile\n"));
  CHECK_FALSE(has_native_bf16("flags : avx2 avx512f\nbugs : avx512_bf16\n"));
  CHECK_FALSE(has_native_bf16(""));
  std::string reason;
  CHECK(automatic_precision(DeviceKind::kCuda, reason) == Precision::kBf16);
}

TEST_CASE("config: the core's tables have documentation and defaults of their type") {
  for (const CoreTable& table : core_tables()) {
    CHECK_FALSE(table.doc.empty());
    for (const OptionSpec& spec : table.options) {
      CHECK_FALSE(spec.doc.empty());
      const bool text = std::set{OptionType::kBool, OptionType::kString,     OptionType::kPath,
                                 OptionType::kEnum, OptionType::kStringList, OptionType::kPathList}
                            .contains(spec.type);
      CHECK_MESSAGE((text || (spec.minimum && spec.maximum)), spec.name, " has no bounds");
    }
  }
}

}  // namespace
}  // namespace keyseat::testing
