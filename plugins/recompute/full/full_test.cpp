#include <doctest/doctest.h>

#include "keyseat/interfaces/recompute.h"
#include "plugin/plugin_fixture.h"

using namespace keyseat;
using namespace keyseat::testing;

// Losses and gradients against recompute/none: tests/executor.

TEST_CASE("recompute/full: every unit but the head is run again; except names units and blocks") {
  const auto full = make_plugin<Recompute>("full");
  CHECK(full->replays_unit("decoder", "layers.0"));
  CHECK(full->replays_unit("vision", "patch_embed"));
  CHECK_FALSE(full->replays_unit("decoder", "head"));

  const auto all = make_plugin<Recompute>("full", {{"except", std::vector<std::string>{}}});
  CHECK(all->replays_unit("decoder", "head"));

  const auto some = make_plugin<Recompute>(
      "full", {{"except", std::vector<std::string>{"vision", "decoder.layers.1"}}});
  CHECK_FALSE(some->replays_unit("vision", "layers.1"));
  CHECK_FALSE(some->replays_unit("decoder", "layers.1"));
  CHECK(some->replays_unit("decoder", "layers.10"));
  CHECK(some->replays_unit("decoder", "head"));
}

TEST_CASE("recompute/full: a name in except that the chain does not have is C4") {
  const std::vector<UnitName> units = {{"vision", "blocks.0"}, {"decoder", "layers.0"}};
  CHECK(make_plugin<Recompute>("full")->check_names(units).empty());  // "head" is the default
  const auto some = make_plugin<Recompute>(
      "full", {{"except", std::vector<std::string>{"layers.0", "vison", "decoder",
                                                   "vision.blocks.0", "decoder.head"}}});
  const Problems problems = some->check_names(units);
  REQUIRE(problems.size() == 2);
  CHECK(problems[0].code == Code::kC4Combination);
  CHECK(problems[0].text().find("\"vison\" is no block") != std::string::npos);
  CHECK(problems[0].text().find("Did you mean \"vision\"?") != std::string::npos);
  CHECK(problems[1].text().find("\"decoder.head\"") != std::string::npos);
}

TEST_CASE("recompute/full: regions are plain calls, since their unit is run again") {
  int calls = 0;
  const RegionFunction count = [&](const std::vector<at::Tensor>& inputs) {
    ++calls;
    return inputs;
  };
  StepContext context({});
  make_plugin<Recompute>("full")->run(Region::kMlp, count, {}, context);
  CHECK(calls == 1);
}
