// Runs on several ranks: what they compute, report, save, stop with and go on from is what one
// process does.
#include <doctest/doctest.h>

#include <csignal>
#include <cstdlib>
#include <limits>

#include "keyseat/safetensors.h"
#include "tests/runs/run_command.h"

using namespace keyseat_runs;

namespace {

// Eight samples a step, in one micro-batch over all ranks together.
std::vector<std::string> sharded(int ranks, const std::string& dispatcher = "hybrid_ep") {
  return {"--set", "strategy.plugin=fsdp",
          "--set", fmt::format("strategy.options.expert={}", ranks),
          "--set", "dispatcher.plugin=" + dispatcher,
          "--set", fmt::format("data.options.micro_batch_size={}", 8 / ranks),
          "--set", "run.timeout_s=30"};
}

std::vector<std::string> sharded_train(int ranks, const fs::path& run_dir,
                                       const std::vector<std::string>& more) {
  return launched(ranks, train_arguments(run_dir, joined(sharded(ranks), more)));
}

const std::vector<std::string> kOneRow{"--set", "data.options.micro_batch_size=8"};

std::vector<int64_t> all_samples(const json& line) {
  std::vector<int64_t> ids;
  for (const json& row : line.at("sample_ids")) {
    for (const json& id : row) ids.push_back(id.get<int64_t>());
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace

TEST_CASE("many ranks: a step's figures are those of all ranks, and agree with one process") {
  const Scratch scratch;
  const std::vector<std::string> steps{"--set", "run.steps=6"};
  must_succeed(train_arguments(scratch / "one", joined(kOneRow, steps)));
  const auto expected = metrics_of(scratch / "one");
  for (const int ranks : {2, 4}) {
    const fs::path run = scratch / std::to_string(ranks);
    must_succeed(sharded_train(ranks, run, steps));
    const auto lines = metrics_of(run);
    REQUIRE(lines.size() == 6);
    for (size_t i = 0; i < lines.size(); ++i) {
      INFO(lines[i].dump() << "\n" << expected[i].dump());
      for (const char* name : {"loss", "loss_ce", "loss_aux", "grad_norm"}) {
        CHECK(lines[i].at(name).get<double>() ==
              doctest::Approx(expected[i].at(name).get<double>()).scale(0).epsilon(1e-5));
      }
      for (const char* name : {"samples", "images", "useful_tokens", "histograms", "expert_load",
                               "dropped_rows", "cursor", "lr"})
        CHECK_MESSAGE(lines[i].at(name) == expected[i].at(name), name);
      CHECK(lines[i].at("sample_ids").size() == static_cast<size_t>(ranks));
      CHECK(all_samples(lines[i]) == all_samples(expected[i]));
    }
    CHECK(fs::exists(run / "report.html"));
  }
}

TEST_CASE("many ranks: stopped by SIGTERM and resumed, the run is bitwise the one that was not") {
  const Scratch scratch;
  const std::vector<std::string> steps{"--set", "run.steps=40"};
  must_succeed(sharded_train(2, scratch / "whole", steps));
  const fs::path run = scratch / "stopped";
  Command command(sharded_train(2, run, steps));
  REQUIRE(wait_until(command, [&] { return steps_done(run) >= 5; }));
  command.send(SIGTERM);
  const Ending stopped = command.wait();
  REQUIRE_MESSAGE(stopped.status == 5, stopped.err);
  CHECK(has(stopped.out, "stopped by SIGTERM behind "));
  CHECK(steps_done(run) < 40);
  must_succeed(sharded_train(2, run, joined(steps, {"--resume"})));
  CHECK((results_of(run) == results_of(scratch / "whole")));
  CHECK((bytes_of(run / "final.safetensors") == bytes_of(scratch / "whole/final.safetensors")));
}

TEST_CASE("many ranks: a signal to one rank stops all, and the first one says where it came from") {
  const Scratch scratch;
  const fs::path run = scratch / "stopped";
  Command command(sharded_train(2, run, {"--set", "run.steps=40"}));
  REQUIRE(wait_until(command, [&] { return steps_done(run) >= 2; }));
  command.send_to_child(SIGTERM, 1);
  const Ending stopped = command.wait();
  REQUIRE_MESSAGE(stopped.status == 5, stopped.err);
  CHECK(has(stopped.out, "stopped by a signal to another rank behind "));
}

TEST_CASE("many ranks: a checkpoint of two ranks is gone on from by one process and by four") {
  const Scratch scratch;
  const std::vector<std::string> constant{"--set", "optimizer.schedule.kind=constant"};
  const fs::path two = scratch / "two";
  must_succeed(sharded_train(2, two, joined(constant, {"--set", "run.steps=4"})));
  CHECK(fs::exists(two / "checkpoints/step-00000004/state-00001-of-00002.safetensors"));
  for (const char* name : {"one", "four"})
    fs::copy(two, scratch / name, fs::copy_options::recursive);
  const std::vector<std::string> more =
      joined(constant, {"--set", "run.steps=8", "--resume", "--set",
                        R"(checkpoint.may_differ=["data.options.micro_batch_size"])"});
  must_succeed(sharded_train(2, two, more));
  must_succeed(train_arguments(scratch / "one", joined(kOneRow, more)));
  must_succeed(sharded_train(4, scratch / "four", more));
  const auto expected = metrics_of(two);
  REQUIRE(expected.size() == 8);
  for (const char* name : {"one", "four"}) {
    const auto lines = metrics_of(scratch / name);
    REQUIRE(lines.size() == 8);
    for (size_t i = 0; i < 8; ++i) {
      CHECK(lines[i].at("loss").get<double>() ==
            doctest::Approx(expected[i].at("loss").get<double>()).scale(0).epsilon(1e-5));
      CHECK(all_samples(lines[i]) == all_samples(expected[i]));
    }
  }
}

TEST_CASE("many ranks: a used run.dir is refused, once and without waiting for the time-out") {
  const Scratch scratch;
  must_succeed(sharded_train(2, scratch / "run", {"--set", "run.steps=1"}));
  const std::string metrics = bytes_of(scratch / "run/metrics.jsonl");
  const Ending refused = Command(sharded_train(2, scratch / "run", {})).wait(25);
  CHECK(refused.status == 4);
  CHECK_MESSAGE(has(refused.err, "R7 run.dir holds a run already"), refused.err);
  CHECK(bytes_of(scratch / "run/metrics.jsonl") == metrics);
  must_succeed(sharded_train(2, scratch / "run", {"--set", "run.steps=2", "--overwrite"}));
  CHECK(results_of(scratch / "run").size() == 2);
}

TEST_CASE("many ranks: evaluation shares the samples, also where a rank has fewer or none") {
  const Scratch scratch;
  const fs::path run = scratch / "run";
  must_succeed(train_arguments(run, joined(kOneRow, {"--set", "run.steps=8"})));
  for (const char* samples : {"1", "5", "150"}) {
    CAPTURE(samples);
    std::vector<std::string> arguments = train_arguments(
        run, {"--json", "--examples", "--set", fmt::format("eval.samples={}", samples), "--set",
              "eval.max_new_tokens=3"});
    arguments[0] = "eval";
    const Ending one = Command(arguments).wait();
    REQUIRE_MESSAGE(one.status == 0, one.err);
    const json expected = json::parse(one.out);
    for (const int ranks : {2, 4}) {
      const Ending many = Command(launched(ranks, joined(arguments, sharded(ranks)))).wait();
      REQUIRE_MESSAGE(many.status == 0, many.err);
      const json measured = json::parse(many.out);
      for (const char* name : {"samples", "correct", "failed", "examples", "held_out_samples",
                               "held_out_tokens", "held_out_failed"})
        CHECK_MESSAGE(measured.at(name) == expected.at(name), name);
      CHECK(measured.at("held_out_loss").get<double>() ==
            doctest::Approx(expected.at("held_out_loss").get<double>()).scale(0).epsilon(1e-5));
    }
  }
}

TEST_CASE("many ranks: evaluation during training is that of keyseat eval") {
  const Scratch scratch;
  const std::vector<std::string> more{"--set", "run.steps=4",     "--set", "eval.every=2",
                                      "--set", "eval.samples=21", "--set", "eval.max_new_tokens=2"};
  must_succeed(sharded_train(2, scratch / "run", more));
  std::vector<json> evaluations;
  for (const json& line : metrics_of(scratch / "run")) {
    if (line.contains("held_out_loss")) evaluations.push_back(line);
  }
  REQUIRE(evaluations.size() == 2);
  std::vector<std::string> arguments = sharded_train(2, scratch / "run", more);
  arguments[4] = "eval";
  arguments.push_back("--json");
  const Ending eval = Command(arguments).wait();
  REQUIRE_MESSAGE(eval.status == 0, eval.err);
  const json measured = json::parse(eval.out);
  CHECK(measured.at("held_out_loss") == evaluations[1].at("held_out_loss"));
  CHECK(measured.at("held_out_samples") == 21);
  CHECK(measured.at("samples") == 21);
  CHECK(measured.at("accuracy") == evaluations[1].at("accuracy"));
  must_succeed(sharded_train(2, scratch / "without", {"--set", "run.steps=4"}));
  CHECK((bytes_of(scratch / "without/final.safetensors") ==
         bytes_of(scratch / "run/final.safetensors")));
}

TEST_CASE("many ranks: a step that is not finite stops all of them, and is named") {
  const Scratch scratch;
  // Every step multiplies the weights by -1e5.
  const Ending ending = Command(sharded_train(2, scratch / "run",
                                              {"--set", "optimizer.options.lr=100", "--set",
                                               "optimizer.options.weight_decay=1000", "--set",
                                               "optimizer.schedule.warmup_steps=0"}))
                            .wait();
  CHECK(ending.status == 4);
  const size_t steps = metrics_of(scratch / "run").size();
  CHECK(steps > 0);
  const std::string step = fmt::format("R5 step {} gave", steps);
  for (const std::string& part :
       {step, std::string("in micro-batch 0, "), std::string("in forward: "),
        std::string("No parameter was changed by this step"), std::string("failed first")})
    CHECK_MESSAGE(has(ending.err, part), ending.err);
}

TEST_CASE("many ranks: samples that fail are counted on all ranks, across a resume") {
  const Scratch scratch;
  const fs::path file = scratch / "mixed.jsonl";
  {
    std::ofstream stream(file);
    for (int i = 0; i < 8; ++i) {
      if (i % 2 == 0) {
        stream << R"({"text": "no messages"})"
               << "\n";
      } else {
        stream << R"({"messages":[{"role":"user","content":"say )" << i
               << R"("},{"role":"assistant","content":"x"}]})"
               << "\n";
      }
    }
  }
  // Every step is a lap over all eight records, four of which are broken.
  const std::vector<std::string> source{"--set", "data.plugin=conversations",
                                        "--set", "data.options.path=[\"" + file.string() + "\"]",
                                        "--set", "data.options.tokenizer=configs/data/tokenizer",
                                        "--set", "data.options.global_batch_size=8"};
  const fs::path run = scratch / "run";
  const auto steps = [&](int count) {
    return joined(source, {"--set", fmt::format("run.steps={}", count), "--set",
                           "optimizer.schedule.kind=constant"});
  };
  must_succeed(sharded_train(2, run, steps(3)));
  const auto failures = [](const json& object) {
    int64_t count = 0;
    for (const json& failure : object) count += failure.at("count").get<int64_t>();
    return count;
  };
  REQUIRE(metrics_of(run).size() == 3);
  CHECK(metrics_of(run).back().at("failed_samples") == 4);
  CHECK(failures(metrics_of(run).back().at("data_failures")) == 12);
  const std::string info = bytes_of(run / "checkpoints/step-00000003/checkpoint.json");
  CHECK(failures(json::parse(info).at("failures")) == 12);
  must_succeed(sharded_train(2, run, joined(steps(5), {"--resume"})));
  CHECK(failures(metrics_of(run).back().at("data_failures")) == 20);
}

TEST_CASE("many ranks: layouts that do not fit are refused with their rule, all at once") {
  const Scratch scratch;
  struct Case {
    int ranks;
    std::vector<std::string> sets;
    const char* text;
  };
  const Case cases[] = {
      {2, {"strategy.options.shard=3"}, "shard 3 x replicate 1 = 3, but the run has 2 ranks"},
      {2, {"strategy.options.expert=3"}, "expert 3 does not divide the 2 ranks of the run"},
      {3,
       {"strategy.options.expert=3", "data.options.global_batch_size=6"},
       "expert 3 does not divide the 4 experts of "},
  };
  for (const Case& one : cases) {
    std::vector<std::string> more{"--set", "data.options.micro_batch_size=2"};
    for (const std::string& set : one.sets) more.insert(more.end(), {"--set", set});
    const Ending ending = Command(sharded_train(one.ranks, scratch / "run", more)).wait();
    CHECK(ending.status == 2);
    CHECK_MESSAGE(has(ending.err, "C4 "), ending.err);
    CHECK_MESSAGE(has(ending.err, one.text), ending.err);
    CHECK_MESSAGE(has(ending.err, fmt::format("[all {} ranks]", one.ranks)), ending.err);
    fs::remove_all(scratch / "run");
  }
}
