// A run that is stopped at any moment and resumed is the run that was never stopped.
#include <doctest/doctest.h>

#include <csignal>
#include <random>

#include "tests/runs/run_command.h"
#include "train/stop_signal.h"

using namespace keyseat_runs;

namespace {

constexpr int kMoments = 20;

void check_same(const fs::path& found, const fs::path& expected) {
  const auto lines = results_of(found), wanted = results_of(expected);
  REQUIRE(lines.size() == wanted.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    INFO("line " << i << "\n" << lines[i].dump() << "\n" << wanted[i].dump());
    REQUIRE(lines[i] == wanted[i]);
  }
  CHECK((bytes_of(found / "final.safetensors") == bytes_of(expected / "final.safetensors")));
}

// A folder that a killed run was writing a checkpoint into.
bool left_partial(const fs::path& run_dir) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run_dir / "checkpoints", error)) {
    if (entry.path().extension() == ".partial") return true;
  }
  return false;
}

}  // namespace

TEST_CASE("stopped runs: 20 random moments, SIGTERM or SIGKILL; the result is bitwise the same") {
  const Scratch scratch;
  const Ending whole = train(scratch / "whole");
  REQUIRE_MESSAGE(whole.status == 0, whole.err);
  REQUIRE(results_of(scratch / "whole").size() == 400);

  const fs::path run = scratch / "stopped";
  std::mt19937_64 random(20261130);
  int saved = 0, killed = 0, early = 0;
  for (int moment = 0; moment < kMoments; ++moment) {
    Command command(train_arguments(run, {"--resume"}));
    // Some moments lie in the start of the run, the others behind a few of its steps; the delay
    // reaches over the length of a step and the writing of a checkpoint.
    const bool in_start = random() % 5 == 0;
    const size_t steps = 1 + random() % 11;
    const auto delay = std::chrono::microseconds(random() % (in_start ? 700'000 : 25'000));
    if (!in_start) {
      const fs::path log = run / "metrics.jsonl";
      // The resumed run first cuts the file back, then grows it.
      size_t seen = 0;
      bool first = true;
      wait_until(command, [&] {
        if (!fs::exists(run / "report.html") && !fs::exists(log)) return false;
        const size_t now = steps_done(run);
        if (first || now < seen) seen = now, first = false;
        return now >= seen + steps;
      });
    }
    std::this_thread::sleep_for(delay);
    const int signal = random() % 2 == 0 ? SIGTERM : SIGKILL;
    command.send(signal);
    const Ending ending = command.wait();
    INFO("moment " << moment << ", signal " << signal << ", status " << ending.status << "\n"
                   << ending.err);
    if (ending.status == 0) {  // this process was held up for hundreds of steps
      MESSAGE("the run ended by itself at moment " << moment);
      break;
    }
    if (ending.status == keyseat::train::kStoppedStatus) {
      ++saved;
      CHECK(signal == SIGTERM);
      CHECK(has(ending.out, "stopped by SIGTERM behind "));
    } else {
      REQUIRE(ending.signal == signal);
      ++(signal == SIGKILL ? killed : early);
    }
  }
  MESSAGE(saved << " saved by SIGTERM, " << killed << " killed, " << early
                << " terminated before the first step");
  CHECK(saved >= 3);
  CHECK(killed >= 3);
  const Ending rest = train(run, {"--resume"});
  REQUIRE_MESSAGE(rest.status == 0, rest.err);
  check_same(run, scratch / "whole");
}

TEST_CASE("stopped runs: killed while a checkpoint is being written") {
  const Scratch scratch;
  // Wide enough that writing takes a while.
  const std::vector<std::string> wide{"--set", "run.steps=14",
                                      "--set", "model.blocks.decoder.options.vocab_size=60000",
                                      "--set", "checkpoint.every=2"};
  REQUIRE(train(scratch / "whole", wide).status == 0);
  const fs::path run = scratch / "stopped";
  std::vector<std::string> resumed = wide;
  resumed.push_back("--resume");
  int partial = 0;
  for (int attempt = 0; attempt < 5; ++attempt) {
    Command command(train_arguments(run, resumed));
    // What an earlier attempt left is cleared away with the next complete checkpoint.
    const bool before = left_partial(run);
    if (before) wait_until(command, [&] { return !left_partial(run); });
    wait_until(command, [&] {
      if (!left_partial(run)) return false;
      // It may be complete by now: looked at again while nothing moves.
      command.send(SIGSTOP);
      if (left_partial(run)) return true;
      command.send(SIGCONT);
      return false;
    });
    command.send(SIGKILL);
    const Ending ending = command.wait();
    if (ending.signal == SIGKILL && left_partial(run)) ++partial;
  }
  CHECK(partial > 0);
  const Ending rest = train(run, resumed);
  REQUIRE_MESSAGE(rest.status == 0, rest.err);
  check_same(run, scratch / "whole");
  CHECK_FALSE(left_partial(run));
}

TEST_CASE("stopped runs: no step is saved twice") {
  const Scratch scratch;
  const fs::path run = scratch / "run";
  const std::vector<std::string> every_step{"--set", "run.steps=100000", "--set",
                                            "checkpoint.every=1"};
  size_t written = 0;
  for (const char* how : {"--overwrite", "--resume"}) {
    std::vector<std::string> arguments = every_step;
    arguments.push_back(how);
    Command command(train_arguments(run, arguments));
    const size_t before = steps_done(run);
    REQUIRE(wait_until(command, [&] { return steps_done(run) >= before + 3; }));
    command.send(SIGTERM);
    const Ending ending = command.wait();
    REQUIRE_MESSAGE(ending.status == keyseat::train::kStoppedStatus, ending.err);
    std::set<std::string> names;
    for (size_t at = ending.err.find("checkpoint /"); at != std::string::npos;
         at = ending.err.find("checkpoint /", at + 1)) {
      const std::string line = ending.err.substr(at, ending.err.find('\n', at) - at);
      CHECK_MESSAGE(names.insert(line).second, line);
    }
    CHECK(names.size() == steps_done(run) - written);
    written = steps_done(run);
  }
}

TEST_CASE("stopped runs: the second signal ends the run at once") {
  // The first signal is sent into the middle of a step. Where this process is held up for so long
  // that the step ends before the second one, the run saves and stops, and the attempt says
  // nothing.
  constexpr int kAttempts = 10;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const Scratch scratch;
    const fs::path run = scratch / "run";
    Command command(train_arguments(
        run, {"--set", "run.steps=100000", "--set", "data.options.micro_batch_size=64", "--set",
              "data.options.global_batch_size=2048"}));
    REQUIRE(wait_until(command, [&] { return steps_done(run) > 0; }));
    const double step_seconds = metrics_of(run).at(0).at("seconds").get<double>();
    std::this_thread::sleep_for(std::chrono::duration<double>(step_seconds / 2));
    command.send(SIGINT);
    const auto noticed = [&] { return has(command.err(), "a second signal stops at once"); };
    REQUIRE(wait_until(command, noticed));
    command.send(SIGTERM);
    const Ending ending = command.wait();
    if (ending.status == keyseat::train::kStoppedStatus) continue;
    CHECK_MESSAGE(ending.signal == SIGTERM, ending.err);
    CHECK_FALSE(fs::exists(run / "checkpoints" / "latest"));
    return;
  }
  FAIL("in " << kAttempts << " attempts no second signal came within the step of the first one");
}

TEST_CASE(
    "stopped runs: the same configuration and seed give the same bits, another seed does not") {
  const Scratch scratch;
  const std::vector<std::string> short_run{"--set", "run.steps=12"};
  REQUIRE(train(scratch / "a", short_run).status == 0);
  REQUIRE(train(scratch / "b", short_run).status == 0);
  check_same(scratch / "b", scratch / "a");
  // Loader threads change nothing, and neither do evaluations in between.
  REQUIRE(
      train(scratch / "c", {"--set", "run.steps=12", "--set", "data.options.threads=3"}).status ==
      0);
  check_same(scratch / "c", scratch / "a");
  REQUIRE(train(scratch / "d", {"--set", "run.steps=12", "--set", "run.seed=12"}).status == 0);
  CHECK(bytes_of(scratch / "d" / "final.safetensors") !=
        bytes_of(scratch / "a" / "final.safetensors"));
}
