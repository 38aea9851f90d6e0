// What a run reports, and that its figures fit each other.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/runs/run_command.h"

using namespace keyseat_runs;

namespace {

double sum_of(const json& object) {
  double sum = 0;
  for (const json& value : object) sum += value.get<double>();
  return sum;
}

int64_t counted(const json& pairs) {
  int64_t sum = 0;
  for (const json& pair : pairs) sum += pair.at(1).get<int64_t>();
  return sum;
}

}  // namespace

TEST_CASE("metrics: the components sum to the step, and the host's share is inside of it") {
  const Scratch scratch;
  REQUIRE(train(scratch / "run", {"--set", "run.steps=6"}).status == 0);
  const auto lines = metrics_of(scratch / "run");
  REQUIRE(lines.size() == 6);
  for (const json& line : lines) {
    const double seconds = line.at("seconds").get<double>();
    const json& parts = line.at("milliseconds");
    for (const char* name : {"vision", "projector", "decoder", "dispatcher", "strategy", "norm",
                             "optimizer", "data", "other"})
      CHECK_MESSAGE(parts.contains(name), name);
    for (const auto& [name, part] : parts.items()) CHECK_MESSAGE(part.get<double>() >= 0, name);
    CHECK(sum_of(parts) == doctest::Approx(1e3 * seconds).epsilon(1e-9));
    const double host = line.at("host_seconds").get<double>();
    CHECK(1e3 * host >= parts.at("other").get<double>());
    CHECK(host < seconds);
  }
}

TEST_CASE("metrics: norms by block, experts and samples of every step") {
  const Scratch scratch;
  REQUIRE(train(scratch / "run", {"--set", "run.steps=6", "--set", "log.every=3"}).status == 0);
  const auto lines = metrics_of(scratch / "run");
  REQUIRE(lines.size() == 6);
  for (const json& line : lines) {
    double squares = 0;
    for (const json& norm : line.at("block_grad_norm")) squares += std::pow(norm.get<double>(), 2);
    CHECK(line.at("block_grad_norm").size() == 3);
    CHECK(std::sqrt(squares) == doctest::Approx(line.at("grad_norm").get<double>()));
    // Reading all parameters is not free: only on the steps that are logged.
    const auto step = line.at("step").get<int64_t>();
    CHECK(line.contains("block_parameter_norm") == (step == 0 || (step + 1) % 3 == 0));

    const auto tokens = line.at("useful_tokens").get<int64_t>();
    REQUIRE(line.at("expert_load").size() == 2);
    for (const auto& [layer, load] : line.at("expert_load").items()) {
      CHECK(sum_of(load) == 2.0 * static_cast<double>(tokens));
      CHECK(line.at("dropped_rows").at(layer) == 0);
      for (const char* name : {"expert_load_entropy", "router_entropy"}) {
        const double entropy = line.at(name).at(layer).get<double>();
        CHECK(entropy > 0);
        CHECK(entropy <= 1 + 1e-9);
      }
    }
    const json& histograms = line.at("histograms");
    CHECK(counted(histograms.at("sample_tokens")) == line.at("samples").get<int64_t>());
    CHECK(counted(histograms.at("images_per_sample")) == line.at("samples").get<int64_t>());
    CHECK(counted(histograms.at("image_tokens")) == line.at("images").get<int64_t>());
    int64_t images = 0;
    for (const json& pair : histograms.at("images_per_sample"))
      images += pair.at(0).get<int64_t>() * pair.at(1).get<int64_t>();
    CHECK(images == line.at("images").get<int64_t>());
    CHECK(line.at("sample_ids").size() == 2);
    CHECK(line.at("cursor") == 8 * step);
  }
  // Without the key no names.
  REQUIRE(train(scratch / "plain", {"--set", "run.steps=1", "--set", "log.samples=false"}).status ==
          0);
  CHECK_FALSE(metrics_of(scratch / "plain").at(0).contains("sample_ids"));
}

TEST_CASE("evaluation: loss and accuracy every N steps, as keyseat eval measures them") {
  const Scratch scratch;
  const std::vector<std::string> more{"--set", "run.steps=4",     "--set", "eval.every=2",
                                      "--set", "eval.samples=20", "--set", "eval.max_new_tokens=2"};
  const Ending ending = train(scratch / "run", more);
  REQUIRE_MESSAGE(ending.status == 0, ending.err);
  std::vector<json> evaluations;
  for (const json& line : metrics_of(scratch / "run")) {
    if (line.contains("held_out_loss")) evaluations.push_back(line);
  }
  REQUIRE(evaluations.size() == 2);
  CHECK(evaluations[0].at("step") == 1);
  CHECK(evaluations[1].at("step") == 3);
  CHECK(evaluations[1].at("held_out_samples") == 20);
  CHECK(evaluations[1].at("samples") == 20);
  CHECK(has(ending.err, "held-out loss "));
  std::vector<std::string> arguments = train_arguments(scratch / "run", more);
  arguments[0] = "eval";
  arguments.push_back("--json");
  const Ending eval = Command(arguments).wait();
  REQUIRE_MESSAGE(eval.status == 0, eval.err);
  const json measured = json::parse(eval.out);
  CHECK(measured.at("held_out_loss") == evaluations[1].at("held_out_loss"));
  CHECK(measured.at("accuracy") == evaluations[1].at("accuracy"));

  // Evaluating changes nothing in the training, and what is not asked for is not measured.
  REQUIRE(train(scratch / "without", {"--set", "run.steps=4"}).status == 0);
  CHECK((bytes_of(scratch / "without/final.safetensors") ==
         bytes_of(scratch / "run/final.safetensors")));
  std::vector<std::string> only_loss = more;
  only_loss.insert(only_loss.end(), {"--set", R"(eval.measure=["loss"])"});
  REQUIRE(train(scratch / "loss", only_loss).status == 0);
  const json last = metrics_of(scratch / "loss").back();
  CHECK(last.at("held_out_loss") == evaluations[1].at("held_out_loss"));
  CHECK_FALSE(last.contains("accuracy"));
}
