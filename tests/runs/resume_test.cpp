// What --resume goes on from, and what it refuses.
#include <doctest/doctest.h>

#include "keyseat/safetensors.h"
#include "tests/runs/run_command.h"

using namespace keyseat_runs;

namespace {

const std::vector<std::string> kConstant{"--set", "optimizer.schedule.kind=constant"};

std::vector<std::string> constant(std::vector<std::string> more) {
  more.insert(more.end(), kConstant.begin(), kConstant.end());
  return more;
}

// A run of 8 steps with checkpoints behind steps 4 and 8.
void make_run(const fs::path& run_dir) {
  const Ending ending = train(run_dir, constant({"--set", "run.steps=8"}));
  REQUIRE_MESSAGE(ending.status == 0, ending.err);
}

Ending resume(const fs::path& run_dir, std::vector<std::string> more = {}) {
  more.insert(more.end(), {"--resume", "--set", "run.steps=12"});
  return train(run_dir, constant(std::move(more)));
}

// Refused, with nothing of the run changed.
void check_refused(const fs::path& run_dir, const std::vector<std::string>& more, int status,
                   const std::vector<std::string>& parts) {
  const std::string metrics = bytes_of(run_dir / "metrics.jsonl");
  const std::string config = bytes_of(run_dir / "config.toml");
  const Ending ending = resume(run_dir, more);
  INFO(ending.err);
  CHECK(ending.status == status);
  for (const std::string& part : parts) CHECK_MESSAGE(has(ending.err, part), part);
  CHECK(bytes_of(run_dir / "metrics.jsonl") == metrics);
  CHECK(bytes_of(run_dir / "config.toml") == config);
}

}  // namespace

TEST_CASE("resume: a finished run goes on when run.steps is raised, as if it had been longer") {
  const Scratch scratch;
  make_run(scratch / "run");
  CHECK(bytes_of(scratch / "run/checkpoints/latest") == "step-00000008\n");
  const Ending more = resume(scratch / "run");
  REQUIRE_MESSAGE(more.status == 0, more.err);
  CHECK(has(more.err, "8 of 12 steps are done"));
  REQUIRE(train(scratch / "whole", constant({"--set", "run.steps=12"})).status == 0);
  CHECK((results_of(scratch / "run") == results_of(scratch / "whole")));
  CHECK((bytes_of(scratch / "run/final.safetensors") ==
         bytes_of(scratch / "whole/final.safetensors")));
  // Two stay.
  CHECK_FALSE(fs::exists(scratch / "run/checkpoints/step-00000004"));
  CHECK(fs::exists(scratch / "run/checkpoints/step-00000008/checkpoint.json"));
  CHECK(fs::exists(scratch / "run/checkpoints/step-00000012/checkpoint.json"));
}

TEST_CASE("resume: what decides the numbers must agree, and all of it is shown") {
  const Scratch scratch;
  make_run(scratch / "run");
  check_refused(scratch / "run", {"--set", "optimizer.options.lr=0.5", "--set", "run.seed=12"}, 2,
                {"C4 optimizer.options.lr is 0.5, but the checkpoint was made with 0.001",
                 "C4 run.seed is 12, but the checkpoint was made with 11"});
  check_refused(scratch / "run", {"--set", "model.blocks.decoder.options.num_hidden_layers=3"}, 2,
                {"model.blocks.decoder.options.num_hidden_layers is 3"});
  const Ending shorter = train(scratch / "run", constant({"--resume", "--set", "run.steps=4"}));
  CHECK(shorter.status == 2);
  CHECK_MESSAGE(has(shorter.err, "run.steps is 4, but 8 steps are done"), shorter.err);
  const Ending allowed = resume(scratch / "run", {"--set", "optimizer.options.lr=0.5", "--set",
                                                  R"(checkpoint.may_differ=["optimizer.options"])",
                                                  "--set", "data.options.threads=2"});
  CHECK_MESSAGE(allowed.status == 0, allowed.err);
}

TEST_CASE("resume: a key in may_differ that does not exist is C2 with the nearest one") {
  const Scratch scratch;
  const Ending ending =
      train(scratch / "run", {"--set", R"(checkpoint.may_differ=["optimizer.option.lr"])"});
  CHECK(ending.status == 2);
  CHECK_MESSAGE(has(ending.err, "C2"), ending.err);
  CHECK_MESSAGE(has(ending.err, "Did you mean \"optimizer.options.lr\"?"), ending.err);
}

TEST_CASE("resume: damaged checkpoints are refused by file") {
  const Scratch scratch;
  make_run(scratch / "run");
  const fs::path step = scratch / "run/checkpoints/step-00000008";
  const fs::path state = step / "state-00000-of-00001.safetensors";
  const std::string good = bytes_of(state);
  const auto put = [&](const fs::path& file, const std::string& text) {
    std::ofstream(file, std::ios::binary) << text;
  };
  put(state, good.substr(0, good.size() - 5));
  check_refused(
      scratch / "run", {}, 4,
      {"R6", "state-00000-of-00001.safetensors", "were written", "the checkpoint is damaged"});
  std::string flipped = good;
  flipped[flipped.size() / 2] ^= 1;
  put(state, flipped);
  check_refused(scratch / "run", {}, 4, {"R6", "the file has the digest"});
  fs::remove(state);
  check_refused(scratch / "run", {}, 4, {"R7", "state-00000-of-00001.safetensors"});
  put(state, good);
  const std::string info = bytes_of(step / "checkpoint.json");
  put(step / "checkpoint.json", info.substr(0, info.size() / 2));
  check_refused(scratch / "run", {}, 4, {"R6", "checkpoint.json"});
  // Without its description it is no checkpoint: the one before is the newest.
  fs::remove(step / "checkpoint.json");
  const Ending older = resume(scratch / "run");
  REQUIRE_MESSAGE(older.status == 0, older.err);
  CHECK(has(older.err, "4 of 12 steps are done"));
  REQUIRE(train(scratch / "whole", constant({"--set", "run.steps=12"})).status == 0);
  CHECK((results_of(scratch / "run") == results_of(scratch / "whole")));
}

TEST_CASE("run.dir: a used one is refused; --overwrite replaces it with its checkpoints") {
  const Scratch scratch;
  make_run(scratch / "run");
  const Ending refused = train(scratch / "run", constant({"--set", "run.steps=3"}));
  CHECK(refused.status == 4);
  CHECK_MESSAGE(has(refused.err, "R7 run.dir holds a run already"), refused.err);
  CHECK(has(refused.err, "--resume"));
  const Ending both = train(scratch / "run", {"--resume", "--overwrite"});
  CHECK(both.status == 2);
  // Another run.dir, the same folder of checkpoints.
  const Ending shared =
      train(scratch / "other",
            constant({"--set", "checkpoint.dir=" + (scratch / "run/checkpoints").string()}));
  CHECK_MESSAGE(has(shared.err, "checkpoint.dir holds checkpoints already"), shared.err);
  const Ending replaced = train(scratch / "run", constant({"--overwrite", "--set", "run.steps=3"}));
  REQUIRE_MESSAGE(replaced.status == 0, replaced.err);
  CHECK(results_of(scratch / "run").size() == 3);
  CHECK(bytes_of(scratch / "run/checkpoints/latest") == "step-00000003\n");
  CHECK_FALSE(fs::exists(scratch / "run/checkpoints/step-00000008"));
}

TEST_CASE("model.init: the weights of a folder, and every tensor that does not fit") {
  const Scratch scratch;
  make_run(scratch / "run");
  fs::create_directories(scratch / "weights");
  const auto reader = keyseat::SafetensorsReader::open((scratch / "run/final.safetensors").string())
                          .value_or_throw();
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const std::string& name : reader.names()) tensors.emplace_back(name, reader.tensor(name));
  const std::string file = (scratch / "weights/model.safetensors").string();
  keyseat::write_safetensors(file, tensors);
  const std::string init = "model.init=" + (scratch / "weights").string();
  const std::vector<std::string> frozen{"--set", "run.steps=1",
                                        "--set", init,
                                        "--set", R"(model.freeze=["vision", "projector"])",
                                        "--set", "optimizer.options.lr=0.0"};
  // Nothing moves, so that what was loaded is what is written.
  const Ending loaded = train(scratch / "loaded", frozen);
  REQUIRE_MESSAGE(loaded.status == 0, loaded.err);
  CHECK((bytes_of(scratch / "loaded/final.safetensors") ==
         bytes_of(scratch / "run/final.safetensors")));

  const std::string renamed = tensors[0].first, cut = tensors[1].first;
  tensors[0].first = "of.another.model";
  tensors[1].second = tensors[1].second.flatten();
  keyseat::write_safetensors(file, tensors);
  const Ending refused = train(scratch / "refused", frozen);
  CHECK(refused.status == 4);
  CHECK_MESSAGE(has(refused.err, "1 missing:\n  " + renamed), refused.err);
  CHECK_MESSAGE(has(refused.err, "1 unexpected:\n  of.another.model"), refused.err);
  CHECK_MESSAGE(has(refused.err, "1 mis-shaped:\n  " + cut + ": file ["), refused.err);
  std::vector<std::string> allowed = frozen;
  allowed.insert(allowed.end(),
                 {"--set", R"(model.init_allow=["missing", "unexpected", "shape"])"});
  const Ending warned = train(scratch / "allowed", allowed);
  CHECK_MESSAGE(warned.status == 0, warned.err);
  CHECK_MESSAGE(has(warned.err, "allowed by model.init_allow"), warned.err);
  CHECK_MESSAGE(has(warned.err, "of.another.model"), warned.err);
  allowed.back() = R"(model.init_allow=["missing", "unexpected"])";
  CHECK(train(scratch / "half", allowed).status == 4);
}
