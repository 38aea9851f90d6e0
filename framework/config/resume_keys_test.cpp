// Which keys a resumed run must share with its checkpoint.
#include "config/resume_keys.h"

#include <doctest/doctest.h>

#include "config/testing.h"

namespace keyseat::testing {
namespace {

ResolvedConfig resolve(const ScratchFolder& folder, std::vector<std::string> sets = {}) {
  FakeSchemas schemas;
  return resolve_config(
      {.file = folder.write("a.toml", complete_config()), .sets = std::move(sets)}, schemas);
}

std::string differences(const ScratchFolder& folder, const std::vector<std::string>& sets) {
  const auto then = resume_keys(resolve(folder).config);
  const ResolvedConfig now = resolve(folder, sets);
  REQUIRE(problems_text(now.problems) == "");
  std::string keys;
  for (const Problem& problem : resume_differences(then, now.config))
    keys += problem.what.substr(0, problem.what.find(' ')) + " ";
  return keys;
}

TEST_CASE("resume keys: what changes the numbers counts, layout and logging do not") {
  const ScratchFolder folder;
  CHECK(differences(folder, {}) == "");
  CHECK(differences(folder, {"optimizer.options.lr=0.5"}) == "optimizer.options.lr ");
  CHECK(differences(folder, {"run.seed=99", "model.blocks.vision.options.hidden=16"}) ==
        "model.blocks.vision.options.hidden run.seed ");
  CHECK(differences(folder, {"optimizer.lr_factors.vision=0.1", "loss.z.weight=1.0"}) ==
        "loss.z.weight optimizer.lr_factors.vision ");
  CHECK(differences(folder, {"strategy.plugin=sharded", "strategy.options.shard=2", "log.every=3",
                             "run.dir=x", "run.threads=7", "eval.every=5", "checkpoint.every=2"}) ==
        "");
}

TEST_CASE("resume keys: a longer run differs only where the schedule depends on its length") {
  const ScratchFolder folder;
  CHECK(differences(folder, {"run.steps=20"}) == "optimizer.schedule.total_steps ");
  CHECK(differences(folder, {"run.steps=20", "optimizer.schedule.total_steps=10"}) == "");
  CHECK(differences(folder, {"run.steps=20", "optimizer.schedule.kind=constant"}) ==
        "optimizer.schedule.kind optimizer.schedule.total_steps ");
}

TEST_CASE("resume keys: may_differ names keys or whole tables, and nothing else") {
  const ScratchFolder folder;
  CHECK(differences(folder, {"optimizer.options.lr=0.5", "run.seed=3",
                             "checkpoint.may_differ=[\"optimizer\", \"run.seed\"]"}) == "");
  CHECK(differences(folder, {"optimizer.options.lr=0.5",
                             "checkpoint.may_differ=[\"optimizer.schedule\"]"}) ==
        "optimizer.options.lr ");
  const auto problems =
      resolve(folder, {"checkpoint.may_differ=[\"optimiser\", \"run.sed\"]"}).problems;
  REQUIRE(problems.size() == 2);
  CHECK(problems[0].code == Code::kC2Unknown);
  CHECK(problems[0].remedy == "Did you mean \"optimizer\"?");
  CHECK(problems[1].remedy == "Did you mean \"run.seed\"?");
}

TEST_CASE("config: factors go by block, with every mistake shown") {
  const ScratchFolder folder;
  const auto good =
      resolve(folder, {"optimizer.lr_factors.vision=0.1", "optimizer.decay_factors={decoder=0.0}"});
  REQUIRE(problems_text(good.problems) == "");
  CHECK(good.config.factors.at("vision").lr == 0.1);
  CHECK(good.config.factors.at("vision").weight_decay == 1);
  CHECK(good.config.factors.at("decoder").lr == 1);
  CHECK(good.config.factors.at("decoder").weight_decay == 0);
  const auto bad =
      resolve(folder, {"optimizer.lr_factors.visoin=0.1", "optimizer.decay_factors.vision=-1.0"});
  REQUIRE(bad.problems.size() == 2);
  const std::string text = problems_text(bad.problems);
  CHECK(text.find("Did you mean \"vision\"?") != std::string::npos);
  CHECK(text.find("optimizer.decay_factors") != std::string::npos);
}

TEST_CASE("config: evaluation measures and checkpoint keys") {
  const ScratchFolder folder;
  const auto defaults = resolve(folder);
  CHECK(defaults.config.eval.loss);
  CHECK(defaults.config.eval.accuracy);
  CHECK(defaults.config.checkpoint.dir == defaults.config.run.dir + "/checkpoints");
  const auto loss = resolve(folder, {"eval.measure=[\"loss\"]"});
  CHECK(loss.config.eval.loss);
  CHECK_FALSE(loss.config.eval.accuracy);
  CHECK(places(resolve(folder, {"eval.measure=[]"}).problems).starts_with("C3"));
  CHECK(places(resolve(folder, {"eval.measure=[\"los\"]"}).problems).starts_with("C3"));
  CHECK(places(resolve(folder, {"checkpoint.evry=3"}).problems).starts_with("C2"));
}

}  // namespace
}  // namespace keyseat::testing
