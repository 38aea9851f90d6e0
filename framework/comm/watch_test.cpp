#include "comm/watch.h"

#include <doctest/doctest.h>

namespace keyseat::comm {
namespace {

constexpr double kLimit = 10;

ActivityState state(bool waiting, double idle, int64_t ticket = 3) {
  return {"#" + std::to_string(ticket) + " all_reduce", "decoder.layers.1", waiting, idle};
}

TEST_CASE("watch: silence names the rank, its last collective and unit") {
  Watch watch(3, kLimit);
  watch.set_name(1, "process 7 on host");
  for (int64_t rank = 0; rank < 3; ++rank) watch.hear(rank, state(false, 0, rank), 100);
  CHECK(!watch.judge(109));
  watch.hear(0, state(true, 5), 109);
  watch.hear(2, state(true, 5), 109);
  const auto verdict = watch.judge(110.5);
  REQUIRE(verdict);
  CHECK(verdict->rank == 1);
  CHECK(verdict->text.starts_with("rank 1 (process 7 on host) gave no sign of life for 10.5 s"));
  CHECK(verdict->detail == "rank 1's last collective: #1 all_reduce; unit: decoder.layers.1");
}

TEST_CASE("watch: a rank that never came, or has ended, is not silent") {
  Watch watch(3, kLimit);
  watch.hear(0, state(false, 0), 100);
  watch.hear(1, state(false, 0), 100);
  watch.ended(1);
  watch.hear(0, state(false, 0), 130);
  CHECK(!watch.judge(131));  // rank 2 has not been heard yet
  CHECK(!watch.all_ended());
  watch.ended(0);
  watch.ended(2);
  CHECK(watch.all_ended());
}

TEST_CASE("watch: time in which this process did not run counts for nobody") {
  Watch watch(2, kLimit);
  watch.hear(0, state(false, 0), 100);
  watch.hear(1, state(false, 0), 100);
  watch.excuse(500);
  CHECK(!watch.judge(605));
  CHECK(watch.judge(611)->rank == 0);
}

TEST_CASE("watch: a stand-still is the fault of the rank that does not wait") {
  Watch watch(3, kLimit);
  watch.hear(0, state(true, 11), 100);
  watch.hear(1, state(false, 12), 100);
  watch.hear(2, state(true, 11), 100);
  auto verdict = watch.judge(100);
  REQUIRE(verdict);
  CHECK(verdict->rank == 1);
  CHECK(verdict->text.find("made no progress for 12.0 s") != std::string::npos);
  // Work that takes long, and nobody waits for it yet.
  watch.hear(0, state(true, 1), 101);
  watch.hear(2, state(false, 30), 101);
  CHECK(!watch.judge(101));
}

TEST_CASE("watch: where all wait for one another, every rank is listed") {
  Watch watch(2, kLimit);
  watch.hear(0, state(true, 11, 5), 100);
  watch.hear(1, state(true, 11, 6), 100);
  const auto verdict = watch.judge(100);
  REQUIRE(verdict);
  CHECK(verdict->rank == -1);
  CHECK(verdict->text.starts_with("every rank waits for another"));
  CHECK(verdict->detail.find("rank 0's last collective: #5") != std::string::npos);
  CHECK(verdict->detail.find("rank 1's last collective: #6") != std::string::npos);
  watch.hear(1, state(true, 0, 6), 100);  // it has just begun to wait
  CHECK(!watch.judge(100));
}

}  // namespace
}  // namespace keyseat::comm
