// keyseat launch itself.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <thread>

#include "tests/comm/launched.h"

namespace keyseat::comm_test {
namespace {

TEST_CASE("launch: output of every rank has its prefix, and the status is 0") {
  const LaunchResult result = Launched({"launch", "-n", "3", "--", "version"}).wait(kLaunchLimit);
  CHECK_MESSAGE(result.status == 0, result.output);
  for (const char* prefix : {"[0] keyseat", "[1] keyseat", "[2] keyseat"}) {
    CHECK_MESSAGE(result.has(prefix), result.output);
  }
}

TEST_CASE("launch: the same error of all ranks is printed once, and the status is passed on") {
  const LaunchResult result =
      Launched({"launch", "-n", "2", "--", "train", "/nowhere/at/all.toml"}).wait(kLaunchLimit);
  CHECK_MESSAGE(result.has("[all 2 ranks]"), result.output);
  CHECK_MESSAGE(result.has("/nowhere/at/all.toml"), result.output);
  CHECK_MESSAGE(result.has("failed first, with exit status 4; 2 of 2 ranks failed"), result.output);
  CHECK(result.status == 4);
}

TEST_CASE("launch: mistakes on its own command line") {
  CHECK(Launched({"launch", "-n", "2", "train"}).wait(kLaunchLimit).status == 2);
  const LaunchResult no_command = Launched({"launch", "-n", "2"}).wait(kLaunchLimit);
  CHECK(no_command.status == 2);
  CHECK_MESSAGE(no_command.has("-- COMMAND"), no_command.output);
  CHECK(Launched({"launch", "-n", "0", "--", "version"}).wait(kLaunchLimit).status == 2);
}

TEST_CASE("launch: killed itself, it leaves no rank") {
  Launched launched(2, {"spin", "shm"});
  REQUIRE(launched.wait_for_output("spinning", kLaunchLimit));
  kill(launched.pid(), SIGKILL);
  launched.wait(kLaunchLimit);
  for (int i = 0; i < 500 && launched.processes_left() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CHECK(launched.processes_left() == 0);
}

TEST_CASE("launch: Ctrl-C goes to all ranks; none is left") {
  Launched launched(2, {"spin", "gloo"});
  REQUIRE(launched.wait_for_output("spinning", kLaunchLimit));
  kill(launched.pid(), SIGINT);
  const LaunchResult result = launched.wait(kLaunchLimit);
  CHECK_MESSAGE(result.has("asking the ranks to stop"), result.output);
  CHECK(result.status == 128 + SIGINT);
  CHECK(launched.processes_left() == 0);
}

}  // namespace
}  // namespace keyseat::comm_test
