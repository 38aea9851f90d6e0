// The digits on two and four ranks follow one process: the limits of a loss curve of a layout.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/runs/run_command.h"

using namespace keyseat_runs;

namespace {

constexpr size_t kSteps = 40, kFirst = 20;
constexpr double kFirstLimit = 1e-5, kLimit = 1e-4;  // relative

std::vector<double> losses(const fs::path& run_dir, const std::string& config,
                           std::vector<std::string> launch, const std::vector<std::string>& sets) {
  launch.insert(launch.end(), {"train", config});
  for (const std::string& set : sets) launch.insert(launch.end(), {"--set", set});
  for (const std::string& set :
       {"run.dir=" + run_dir.string(), fmt::format("run.steps={}", kSteps),
        std::string("optimizer.schedule.total_steps=900"), std::string("run.threads=1")})
    launch.insert(launch.end(), {"--set", set});
  const Ending ending = Command(launch).wait(300);
  REQUIRE_MESSAGE(ending.status == 0, ending.err);
  std::vector<double> found;
  for (const json& line : metrics_of(run_dir)) found.push_back(line.at("loss").get<double>());
  return found;
}

void check_follows(const std::vector<double>& found, const std::vector<double>& expected) {
  REQUIRE(found.size() == kSteps);
  REQUIRE(expected.size() == kSteps);
  double worst_first = 0, worst = 0;
  for (size_t step = 0; step < kSteps; ++step) {
    const double difference = std::abs(found[step] - expected[step]) / expected[step];
    double& greatest = step < kFirst ? worst_first : worst;
    greatest = std::max(greatest, difference);
  }
  MESSAGE("greatest difference: ", worst_first, " in the first 20 steps, then ", worst);
  CHECK(worst_first <= kFirstLimit);
  CHECK(worst <= kLimit);
}

}  // namespace

TEST_CASE("digits on ranks: losses of 40 steps on 2 and 4 ranks are those of one process") {
  const Scratch scratch;
  const auto expected = losses(scratch / "one", "configs/runs/digits.toml", {}, {});
  REQUIRE(expected.size() == kSteps);
  CHECK(expected.back() < 0.8 * expected.front());  // it has learned something meanwhile
  struct Case {
    int ranks;
    const char* dispatcher;
  };
  for (const Case& one :
       {Case{2, "hybrid_ep"}, Case{4, "hybrid_ep"}, Case{4, "allgather"}, Case{4, "alltoall"}}) {
    CAPTURE(one.ranks);
    CAPTURE(one.dispatcher);
    const auto found =
        losses(scratch / fmt::format("{}-{}", one.dispatcher, one.ranks),
               "configs/runs/digits_fsdp.toml", {"launch", "-n", std::to_string(one.ranks), "--"},
               {fmt::format("strategy.options.expert={}", one.ranks),
                fmt::format("data.options.micro_batch_size={}", 64 / one.ranks),
                std::string("dispatcher.plugin=") + one.dispatcher});
    check_follows(found, expected);
  }
}

TEST_CASE("digits on ranks: the losses of 3D layouts are those of one process") {
  const Scratch scratch;
  // A micro-batch of one process is the union of the data ranks' rows.
  const auto expected =
      losses(scratch / "one", "configs/runs/digits.toml", {}, {"data.options.micro_batch_size=16"});
  CHECK(expected.back() < 0.8 * expected.front());
  const std::vector<std::vector<std::string>> layouts{
      {},
      {"strategy.options.pipeline=1", "strategy.options.tensor=2"},
      {"strategy.options.pipeline=1", "strategy.options.context=2", "strategy.options.expert=4",
       "strategy.options.context_method=ring", "strategy.options.fixed_tokens=300"}};
  for (size_t i = 0; i < layouts.size(); ++i) {
    CAPTURE(i);
    check_follows(losses(scratch / fmt::format("layout-{}", i), "configs/runs/digits_3d.toml",
                         {"launch", "-n", "4", "--"}, layouts[i]),
                  expected);
  }
  // Rows of one length hold padding, which every line tells.
  double padding = 0;
  for (const json& line : metrics_of(scratch / "layout-2"))
    padding += line.at("padding_share").get<double>();
  CHECK(padding > 0);
}
