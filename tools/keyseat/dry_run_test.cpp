// keyseat train --dry-run --world N: layouts of the published models on meta tensors.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/wait.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace keyseat_dry_run {

namespace {

using nlohmann::json;

struct Dry {
  int status = 0;
  std::string output;
  double seconds = 0;
};

Dry dry_run(const std::string& config, int64_t world, const std::string& more = "") {
  const auto start = std::chrono::steady_clock::now();
  const auto command = std::filesystem::canonical("/proc/self/exe").parent_path() / "keyseat";
  const std::string line =
      fmt::format("'{}' train --dry-run --world {} configs/runs/{}.toml {} 2>&1", command.string(),
                  world, config, more);
  FILE* const pipe = popen(line.c_str(), "r");
  REQUIRE(pipe != nullptr);
  Dry result;
  std::array<char, 4096> buffer{};
  while (const size_t count = fread(buffer.data(), 1, buffer.size(), pipe))
    result.output.append(buffer.data(), count);
  const int status = pclose(pipe);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

json layout_of(const std::string& config, int64_t world, const std::string& more = "") {
  const Dry result = dry_run(config, world, "--json " + more);
  INFO(result.output);
  REQUIRE(result.status == 0);
  return json::parse(result.output.substr(result.output.find('{')));
}

int64_t sum(const json& layout, const char* key) {
  int64_t total = 0;
  for (const json& stage : layout.at("stages")) total += stage.at(key).get<int64_t>();
  return total;
}

}  // namespace

TEST_CASE("dry run: published models on 64 to 512 ranks, in seconds") {
  for (const char* model : {"qwen3_vl_30b", "qwen3_vl_235b"}) {
    const std::string pipeline = std::string(model) + "_3d";
    double before = 1e30;
    for (const int64_t world : {64, 128, 512}) {
      CAPTURE(pipeline);
      CAPTURE(world);
      const json layout = layout_of(pipeline, world, "--tokens 512 --visual-tokens 128");
      const json& mesh = layout.at("mesh");
      const auto stages = mesh.at("pipeline").get<int64_t>();
      CHECK(stages > 1);
      CHECK(mesh.at("shard").get<int64_t>() * stages == world);
      CHECK(layout.at("stages").size() == static_cast<size_t>(stages));
      // 27 + 1 units of the tower, 4 of the projector, the decoder's layers and its two ends.
      CHECK(sum(layout, "units") == 32 + 2 + (std::string(model) == "qwen3_vl_30b" ? 48 : 94));
      // More ranks, smaller shards of optimizer state; every stage fits what it computes with.
      const auto bytes = layout.at("stages").at(0).at("static_bytes").get<double>();
      CHECK(bytes < before);
      CHECK(bytes > 2 * layout.at("stages").at(0).at("parameters").get<double>());
      before = bytes;
    }
    const json sharded = layout_of(std::string(model) + "_fsdp", 64);
    CHECK(sharded.at("stages").size() == 1);
    CHECK(sharded.at("mesh").at("shard") == 64);
  }
  const Dry timed = dry_run("qwen3_vl_235b_3d", 512);
  CHECK(timed.status == 0);
  CHECK(timed.output.find("slowest") != std::string::npos);
  CHECK(timed.output.find("forward and backward on meta tensors passed") != std::string::npos);
  MESSAGE("235B on 512 ranks: ", timed.seconds, " s");
}

TEST_CASE("dry run: all axes, from 8 ranks, share out parameters, states and work") {
  const auto option = [](const char* name, int64_t value) {
    return fmt::format(" --set strategy.options.{}={}", name, value);
  };
  const json eight = layout_of("qwen3_vl_30b_3d", 8, option("expert", 4));
  CHECK(eight.at("mesh").at("shard") == 4);
  const auto large = [&](int64_t world, const std::string& more) {
    return layout_of("qwen3_vl_235b_3d", world, "--tokens 4096 --visual-tokens 1024" + more);
  };
  const auto last = [](const json& layout, const char* key) {
    return layout.at("stages").back().at(key).get<double>();
  };
  CHECK(large(8, option("expert", 2)).at("mesh").at("shard") == 2);
  const json plain = large(64, option("expert", 8));
  const json tensor = large(64, option("expert", 8) + option("tensor", 4));
  CHECK(tensor.at("mesh").at("shard") == 4);
  // Work on a row and its activations go by rank; dense parameters of a rank are fewer.
  CHECK(last(tensor, "flops") == doctest::Approx(last(plain, "flops") / 4).epsilon(0.01));
  CHECK(last(tensor, "parameters") < last(plain, "parameters"));
  const json slices = large(64, option("expert", 8) + option("expert_tensor", 2));
  CHECK(last(slices, "parameters") < 0.7 * last(plain, "parameters"));
  const json all = large(512, option("tensor", 2) + option("context", 2) + option("expert", 16) +
                                  option("expert_tensor", 2));
  const json& mesh = all.at("mesh");
  int64_t ranks = 1;
  for (const char* axis : {"tensor", "context", "shard", "pipeline"})
    ranks *= mesh.at(axis).get<int64_t>();
  CHECK(ranks == 512);
}

TEST_CASE("dry run: the slowest stage is no slower than an even share and one unit") {
  const json layout = layout_of("qwen3_vl_235b_3d", 64, "--tokens 4096 --visual-tokens 1024");
  double all = 0, slowest = 0;
  for (const json& stage : layout.at("stages")) {
    all += stage.at("flops").get<double>();
    slowest = std::max(slowest, stage.at("flops").get<double>());
  }
  const auto stages = static_cast<double>(layout.at("stages").size());
  CHECK(slowest < 1.05 * all / stages);
  CHECK(layout.at("stages").at(layout.at("slowest_stage").get<size_t>()).at("flops") == slowest);
}

TEST_CASE("dry run: wrong layouts are refused with every rule they break") {
  const Dry three = dry_run("qwen3_vl_235b_3d", 6);
  CHECK(three.status == 2);
  CHECK(three.output.find("pipeline 4 does not divide the 6 ranks of the run") !=
        std::string::npos);
  const Dry both = dry_run("qwen3_vl_235b_3d", 48,
                           "--set strategy.options.expert=24 --set strategy.options.pipeline=4");
  CHECK(both.status == 2);
  CHECK(both.output.find("expert 24 does not divide the 12 ranks of a stage") != std::string::npos);
  CHECK(both.output.find("expert 24 does not divide the 128 experts") != std::string::npos);
  const Dry together = dry_run("qwen3_vl_30b_3d", 16,
                               "--set dispatcher.plugin=local --set strategy.options.tensor=3");
  CHECK(together.output.find("tensor 3") != std::string::npos);
  CHECK(together.output.find("dispatcher/local cannot serve an expert degree of 8") !=
        std::string::npos);
  const Dry local = dry_run("qwen3_vl_30b_3d", 16, "--set dispatcher.plugin=local");
  CHECK(local.status == 2);
  CHECK(local.output.find("local") != std::string::npos);
  const Dry small = dry_run("qwen3_vl_30b_3d", 16, "--set strategy.options.stage_bytes=1GiB");
  CHECK(small.status == 2);
  CHECK(small.output.find("fits stage_bytes") != std::string::npos);
  const Dry alone = dry_run("digits", 2);
  CHECK(alone.status == 2);
  CHECK(alone.output.find("strategy \"single\" runs on one rank") != std::string::npos);
}

TEST_CASE("dry run: --world and the row belong to it") {
  const auto command = std::filesystem::canonical("/proc/self/exe").parent_path() / "keyseat";
  for (const char* option : {"--world 2", "--tokens 64"}) {
    const std::string line = fmt::format("'{}' train configs/runs/digits.toml {} >/dev/null 2>&1",
                                         command.string(), option);
    const int status = std::system(line.c_str());
    CHECK(WEXITSTATUS(status) == 2);
  }
}

}  // namespace keyseat_dry_run
