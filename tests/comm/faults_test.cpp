// Ranks that die, stop, stand still, fail or disagree: the job ends in time and names them.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <random>
#include <thread>

#include "tests/comm/launched.h"

namespace keyseat::comm_test {
namespace {

constexpr double kTimeout = 5;
// What starting processes and reading their ends may take on a busy machine.
constexpr double kSlack = 5;

// One rank gets a signal at a random moment, from the start of the ranks on.
void strike(const std::string& plugin, int signal, int rounds, unsigned seed) {
  std::mt19937 random(seed);
  const auto names_before = shared_memory_names();
  for (int round = 0; round < rounds; ++round) {
    const int ranks = round % 2 == 0 ? 2 : 4;
    Launched launched(ranks, {"spin", plugin, "--timeout", std::to_string(kTimeout)});
    // Half of the rounds strike while the ranks run, half while they start.
    if (round % 4 < 2) REQUIRE(launched.wait_for_output("spinning", kLaunchLimit));
    const auto victim = static_cast<size_t>(random() % static_cast<unsigned>(ranks));
    const auto delay = std::chrono::milliseconds(random() % 1500);
    pid_t pid = -1;
    while (pid <= 0) pid = launched.rank_processes()[victim];
    std::this_thread::sleep_for(delay);
    REQUIRE(kill(pid, signal) == 0);
    // The time-out counts from when the others wait, which they may take a while to begin with.
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank != static_cast<int>(victim))
        launched.wait_for_output(fmt::format("[{}] meeting", rank), kSlack);
    }
    const double struck = now();
    const LaunchResult result = launched.wait(kLaunchLimit);
    const double seconds = now() - struck;
    CAPTURE(round);
    CAPTURE(victim);
    CAPTURE(delay.count());
    CHECK_MESSAGE(seconds < kTimeout + kSlack, result.output);
    CHECK_MESSAGE(result.status != 0, result.output);
    CHECK_MESSAGE(result.has(fmt::format("rank {} (process {}", victim, pid)), result.output);
    CHECK_MESSAGE(result.has(fmt::format("rank {} (process {}) failed first", victim, pid)),
                  result.output);
    CHECK(launched.processes_left() == 0);
    CHECK(shared_memory_names() == names_before);
  }
}

TEST_CASE("comm/gloo: a killed rank ends the job") { strike("gloo", SIGKILL, 2, 1); }
TEST_CASE("comm/gloo: a stopped rank ends the job") { strike("gloo", SIGSTOP, 2, 2); }
TEST_CASE("comm/shm: a killed rank ends the job") { strike("shm", SIGKILL, 2, 3); }
TEST_CASE("comm/shm: a stopped rank ends the job") { strike("shm", SIGSTOP, 2, 4); }
TEST_CASE("slow: comm/gloo: killed 20 times at random") { strike("gloo", SIGKILL, 20, 11); }
TEST_CASE("slow: comm/gloo: stopped 20 times at random") { strike("gloo", SIGSTOP, 20, 12); }
TEST_CASE("slow: comm/shm: killed 20 times at random") { strike("shm", SIGKILL, 20, 13); }
TEST_CASE("slow: comm/shm: stopped 20 times at random") { strike("shm", SIGSTOP, 20, 14); }

TEST_CASE("comm: a dead rank is named with its last collective and unit") {
  for (const char* plugin : {"gloo", "shm"}) {
    Launched launched(2, {"spin", plugin, "--timeout", "5"});
    REQUIRE(launched.wait_for_output("spinning", kLaunchLimit));
    std::this_thread::sleep_for(std::chrono::seconds(1));  // a sign of life is sent
    const pid_t pid = launched.rank_processes()[1];
    kill(pid, SIGKILL);
    const LaunchResult result = launched.wait(kLaunchLimit);
    CHECK_MESSAGE(result.has(fmt::format("rank 1 (process {} on", pid)), result.output);
    CHECK_MESSAGE(result.has("died: its connection ended"), result.output);
    CHECK_MESSAGE(result.has("rank 1's last collective: #"), result.output);
    CHECK_MESSAGE(result.has("unit: decoder.layers."), result.output);
    CHECK_MESSAGE(result.has("failed first, with signal 9 (Killed)"), result.output);
    CHECK(result.status == 128 + SIGKILL);
  }
}

TEST_CASE("comm: a rank that lives but stands still is named") {
  Launched launched(2, {"stand_still", "shm", "--timeout", "3"});
  const LaunchResult result = launched.wait(kLaunchLimit);
  CHECK_MESSAGE(result.has("is alive but made no progress for"), result.output);
  CHECK_MESSAGE(result.has("rank 1 (process"), result.output);
  CHECK(result.status == 4);
  CHECK(launched.processes_left() == 0);
}

TEST_CASE("comm: a rank that fails ends the others, and its own message is there") {
  for (const char* plugin : {"gloo", "shm"}) {
    Launched launched(4, {"fail", plugin});
    const LaunchResult result = launched.wait(kLaunchLimit);
    CHECK_MESSAGE(result.has("R6 rank 1 cannot read its data [rank 1 of 4]"), result.output);
    // The three others say the same thing once.
    CHECK_MESSAGE(result.has("[ranks 0, 2-3 of 4]"), result.output);
    CHECK_MESSAGE(result.has("failed first, with exit status 4; 4 of 4 ranks failed"),
                  result.output);
    CHECK(result.status == 4);
  }
}

TEST_CASE("comm: ranks that disagree in kind, size, dtype or order stop with both sides") {
  // With shm the odd call may succeed, and the ranks end at once: the verdict must not come too
  // late.
  for (const std::string plugin : {"gloo", "shm", "shm", "shm"}) {
    for (const std::string how : {"kind", "sizes", "dtype", "order"}) {
      CAPTURE(plugin);
      CAPTURE(how);
      Launched launched(2, {"disagree", plugin, how, "--timeout", "20"});
      const LaunchResult result = launched.wait(kLaunchLimit);
      CHECK_MESSAGE(result.has("ranks 0 and 1 disagree in a collective"), result.output);
      if (how != "order") {
        CHECK_MESSAGE(result.has("(" + how + ")"), result.output);
        CHECK_MESSAGE(result.has("all_gather of ranks [0, 1], rows of 8 bytes (Float): 4, 4"),
                      result.output);
      }
      if (how == "kind") CHECK_MESSAGE(result.has("all_reduce (sum)"), result.output);
      if (how == "sizes") CHECK_MESSAGE(result.has("rows of 12 bytes"), result.output);
      if (how == "dtype") CHECK_MESSAGE(result.has("(BFloat16)"), result.output);
      if (how == "order") CHECK_MESSAGE(result.has("(parameters)"), result.output);
      CHECK(result.status == 4);
    }
  }
}

TEST_CASE("comm: ranks with different configurations stop with both sides (C5)") {
  Launched launched(2, {"configuration", "shm"});
  const LaunchResult result = launched.wait(kLaunchLimit);
  CHECK_MESSAGE(result.has("C5 ranks 0 and 1 do not run the same configuration"), result.output);
  CHECK_MESSAGE(result.has("[all 2 ranks]"), result.output);
  CHECK_MESSAGE(result.has("rank 0: expert = 1"), result.output);
  CHECK_MESSAGE(result.has("rank 1: expert = 2"), result.output);
  CHECK(!result.has("shard = 2"));
  CHECK(result.status == 2);
}

}  // namespace
}  // namespace keyseat::comm_test
