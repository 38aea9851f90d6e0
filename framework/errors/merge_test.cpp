#include "errors/merge.h"

#include <doctest/doctest.h>

namespace keyseat {
namespace {

TEST_CASE("errors: codes have a name each, and a family decides the exit status") {
  CHECK(std::string(code_name(Code::kP1NotFound)) == "P1");
  CHECK(std::string(code_name(Code::kR7File)) == "R7");
  CHECK(exit_status(Code::kC1Syntax) == 2);
  CHECK(exit_status(Code::kC5RanksDisagree) == 2);
  CHECK(exit_status(Code::kP1NotFound) == 3);
  CHECK(exit_status(Code::kP7Conflict) == 3);
  CHECK(exit_status(Code::kR1Cuda) == 4);
  CHECK(exit_status(Code::kR7File) == 4);
}

TEST_CASE("errors: equal texts of many ranks become one, in order of first appearance") {
  const auto merged = merge_over_ranks(
      {{2, "second\n"}, {0, "first"}, {1, "second"}, {7, "second"}, {0, "second "}, {3, " \n"}});
  REQUIRE(merged.size() == 2);
  CHECK(merged[0].text == "second");
  CHECK(merged[0].ranks == std::vector<int64_t>{0, 1, 2, 7});
  CHECK(merged[1].text == "first");
  CHECK(merged[1].ranks == std::vector<int64_t>{0});
  CHECK(merge_over_ranks({}).empty());
}

TEST_CASE("errors: lists of ranks") {
  CHECK(rank_list({3}, 8) == "rank 3 of 8");
  CHECK(rank_list({0, 1, 2, 5}, 8) == "ranks 0-2, 5 of 8");
  CHECK(rank_list({0, 2, 4}, 8) == "ranks 0, 2, 4 of 8");
  CHECK(rank_list({0, 1}, 2) == "all 2 ranks");
  CHECK(rank_list({0}, 1) == "rank 0 of 1");
}

TEST_CASE("errors: problems of many ranks are said once each, with the ranks") {
  const Problem shared{Code::kC2Unknown, {"a.toml", 3, 1}, "unknown option \"x\"", "", ""};
  const Problem own{Code::kR3Memory, {}, "out of memory\nin decoder.layers.0", "", ""};
  CHECK(merged_problems_text({{0, {shared}}, {1, {shared, own}}, {2, {shared}}}, 3) ==
        "a.toml:3:1: C2 unknown option \"x\" [all 3 ranks]\n"
        "R3 out of memory [rank 1 of 3]\nin decoder.layers.0");
  CHECK(merged_problems_text({{0, {shared}}}, 1) == shared.text());
  CHECK(merged_text({}, 4).empty());
}

TEST_CASE("errors: the status of a job is that of the rank that failed for its own reason") {
  CHECK(merged_exit_status({}) == 0);
  CHECK(merged_exit_status({0, 0}) == 0);
  CHECK(merged_exit_status({0, 4, 0}) == 4);
  CHECK(merged_exit_status({4, 4, 3}) == 3);  // the others lost a peer
  CHECK(merged_exit_status({3, 2, 4}) == 2);
  CHECK(merged_exit_status({0, 139, 1}) == 139);
  CHECK(merged_exit_status({139, 4}) == 4);
}

}  // namespace
}  // namespace keyseat
