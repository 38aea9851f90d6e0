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
    REQUIRE(found.size() == kSteps);
    for (size_t step = 0; step < kSteps; ++step) {
      const double difference = std::abs(found[step] - expected[step]) / expected[step];
      CHECK_MESSAGE(difference <= (step < kFirst ? kFirstLimit : kLimit), "step " << step);
    }
  }
}
