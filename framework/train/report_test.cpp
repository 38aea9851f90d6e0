#include "train/report.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "keyseat/status.h"
#include "train/report/bars.h"
#include "train/report/plot.h"
#include "train/report/run_record.h"

using namespace keyseat::train;
using nlohmann::json;

namespace {

constexpr const char* kConfig = R"([run]
name = "digits <&> \"one\""
steps = 300
[[model.blocks]]
name = "vision"
plugin = "qwen3_vl_vision"
[[model.blocks]]
name = "decoder"
plugin = "qwen3_moe"
[strategy]
plugin = "single"
)";

// A run folder of its own, removed at the end.
class RunFolder {
 public:
  RunFolder() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            fmt::format("keyseat_report_{}_{}", getpid(), count++);
    std::filesystem::create_directories(path_);
    write("config.toml", kConfig);
  }
  ~RunFolder() { std::filesystem::remove_all(path_); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
  }
  void add(const std::string& line) const {
    std::ofstream(path_ / "metrics.jsonl", std::ios::app) << line << "\n";
  }
  std::string path() const { return path_.string(); }

  std::string report() const {
    write_report(path(), path() + "/report.html");
    std::ifstream stream(path_ / "report.html");
    return std::string(std::istreambuf_iterator<char>(stream), {});
  }

 private:
  std::filesystem::path path_;
};

json step_line(int64_t step) {
  const double factor = 1.0 / static_cast<double>(step + 1);
  return {
      {"step", step},
      {"loss", 2 + 4 * factor},
      {"loss_ce", 1 + 4 * factor},
      {"loss_aux", 1.0},
      {"grad_norm", 3.5},
      {"clip", 0.3},
      {"lr", 1e-3},
      {"seconds", 0.25},
      {"samples", 2},
      {"useful_tokens", 960},
      {"image_tokens", 512},
      {"padding_share", 0.0},
      {"useful_tokens_per_second", 3840.0},
      {"image_tokens_per_second", 2048.0},
      {"milliseconds",
       {{"vision", 80.0}, {"decoder", 120.0}, {"data", 1.0}, {"other", 2.0}, {"optimizer", 9.0}}},
      {"expert_load", {{"2", {1, 3, 0, 4}}, {"10", {2, 2, 2, 2}}}},
      {"peak_memory_bytes", 3.0 * (1 << 30)},
      {"routing", "natural"},
      {"freeze", json::array({"vision"})},
      {"precision", "fp32"},
      {"recompute", "none"}};
}

// Everything that a line of today can hold.
json full_line(int64_t step) {
  json line = step_line(step);
  line["host_seconds"] = 0.005;
  line["block_grad_norm"] = {{"vision", 1.0}, {"decoder", 2.0}};
  if (step % 2 == 0) line["block_parameter_norm"] = {{"vision", 30.0}, {"decoder", 40.0}};
  line["histograms"] = {{"sample_tokens", {{24, 1}, {480, 1}}},
                        {"images_per_sample", {{0, 1}, {3, 1}}},
                        {"image_tokens", {{64, 3}}},
                        {"aspect_sixteenths", {{16, 1}, {24, 2}}}};
  line["expert_load_entropy"] = {{"2", 0.8}, {"10", 1.0}};
  line["router_entropy"] = {{"2", 0.9}, {"10", 0.95}};
  line["dropped_rows"] = {{"2", 0}, {"10", 0}};
  line["memory_peak_bytes"] = {{"activations", 2.0 * (1 << 30)}, {"parameters", 1.0 * (1 << 30)}};
  return line;
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("report: one step is a whole page without any other file") {
  RunFolder run;
  run.add(step_line(0).dump());
  const std::string html = run.report();
  CHECK(html.starts_with("<!doctype html>"));
  CHECK(count(html, "<svg") ==
        8);  // loss, rate, norm, tokens, components, memory, samples, experts
  CHECK(count(html, "<svg") == count(html, "</svg>"));
  CHECK(count(html, "://") == 0);
  CHECK(count(html, "<script") == 0);
  CHECK(count(html, "src=") == 0);
  CHECK(count(html, "width=device-width") == 1);
  CHECK(count(html, "too short a run to quote") > 0);
  CHECK(count(html, "NaN") + count(html, ">nan<") == 0);
}

TEST_CASE("report: text of a run is escaped") {
  RunFolder run;
  json line = step_line(0);
  line["data_failures"]["<b>cut & lost</b>"] = {{"count", 7}, {"example", "a\"<script>.tar"}};
  run.add(line.dump());
  const std::string html = run.report();
  CHECK(count(html, "digits &lt;&amp;&gt; &quot;one&quot;") == 2);  // title, heading
  CHECK(count(html, "&lt;b&gt;cut &amp; lost&lt;/b&gt;") == 1);
  CHECK(count(html, "<script") == 0);
  CHECK(escape_html("a<b>&\"'\x01") == "a&lt;b&gt;&amp;&quot;&#39;\xEF\xBF\xBD");
}

TEST_CASE("report: thousands of steps are drawn as a few hundred points") {
  RunFolder run;
  for (int64_t step = 0; step < 4000; ++step) run.add(step_line(step).dump());
  const std::string html = run.report();
  CHECK(html.size() < 400'000);
  CHECK(count(html, "4000 steps in 500 points") > 0);
  CHECK(count(html, "4000 steps in 120 points") == 1);
  CHECK(count(html, "too short a run") == 0);
  CHECK(count(html, "<b>4000</b>") == 1);
}

TEST_CASE("report: the notice of mock data stands on top and at every figure of speed") {
  RunFolder run;
  json line = step_line(0);
  CHECK(count((run.add(line.dump()), run.report()), "not a performance measurement") == 0);
  line["step"] = 1;
  line["notice"] = "mock data: not a performance measurement";
  run.add(line.dump());
  // The page, two plots and the table of times, three key figures.
  CHECK(count(run.report(), "mock data: not a performance measurement") == 7);
}

TEST_CASE("report: evaluations are shown, the last one as a key figure") {
  RunFolder run;
  run.add(step_line(0).dump());
  run.add(R"({"step": 0, "accuracy": 0.125, "correct": 45, "samples": 360, "failed": 0})");
  run.add(step_line(1).dump());
  run.add(R"({"step": 1, "accuracy": 0.975, "correct": 351, "samples": 360, "failed": 0})");
  const std::string html = run.report();
  CHECK(count(html, "Held-out accuracy") > 0);
  CHECK(count(html, "<b>97.5 %</b>") == 1);
  CHECK(count(html, "12.5 %") == 1);
  CHECK(count(html, "351 of 360, after 2 steps") == 1);
}

TEST_CASE("report: held-out loss, norms by block, experts, memory and sizes have their figures") {
  RunFolder run;
  for (int64_t step = 0; step < 60; ++step) {
    json line = full_line(step);
    if (step >= 50) line["dropped_rows"]["10"] = 4;
    run.add(line.dump());
    if (step % 20 == 19)
      run.add(json{{"step", step}, {"held_out_loss", 3.0 / static_cast<double>(step)}}.dump());
  }
  const std::string html = run.report();
  for (const char* title :
       {"Loss", "Held-out loss", "Learning rate", "Gradient norm", "Gradient norm by block",
        "Parameter norm by block", "Tokens per second", "Time of a step by component",
        "Memory peak", "Length of a sample", "Images of a sample", "Size of an image",
        "Longer side of an image by its shorter side", "Mean size of a sample",
        "Load of each expert, by layer", "Evenness of expert load",
        "Evenness of router probabilities", "Dropped rows"})
    CHECK_MESSAGE(count(html, "aria-label=\"" + std::string(title) + "\"") == 1, title);
  CHECK(count(html, "<svg") == 18);
  CHECK(count(html, "held-out loss</span><b>0.05085</b>") == 1);
  CHECK(count(html, "held-out accuracy") == 0);
  CHECK(count(html, "<b>2.0 %</b>") == 1);  // the host's share
  CHECK(count(html, "<li><i style=\"background:var(--c1)\"></i>activations</li>") == 1);
  // A bar per sample length that came up, and the empty ones between.
  CHECK(count(html, "<title>480 to below 512: 60 samples</title>") == 1);
  CHECK(count(html, "<title>3: 60 samples</title>") == 1);
  CHECK(count(html, "<title>1.5 to below 1.625: 120 images</title>") == 1);
  CHECK(count(html, "120 samples; a bar is labelled") == 2);
  CHECK(count(html, "nan") == 0);
}

TEST_CASE("report: histograms of a resumed run count every step once") {
  RunFolder run;
  for (int64_t step = 0; step < 4; ++step) run.add(full_line(step).dump());
  run.add(full_line(2).dump());
  const RunRecord record = read_run(run.path());
  CHECK(record.histograms.at("sample_tokens") == Histogram{{24, 3}, {480, 3}});
  CHECK(record.column("block_parameter_norm.vision").size() == 3);
  CHECK(record.fields_of("router_entropy").at(1).first == "10");
}

TEST_CASE("report: bars of wide ranges are sums of neighbours, none is lost") {
  Bars bars;
  bars.word = "sample";
  int64_t total = 0;
  for (int64_t length = 1; length < 100'000; length += 7) {
    ++bars.counts[bucket_of(length)];
    ++total;
  }
  CHECK(bucket_of(15) == 15);
  CHECK(bucket_of(17) == 16);
  CHECK(bucket_of(100) == 96);
  CHECK(bars.counts.size() > kBars);
  const std::string svg = bar_plot(bars);
  CHECK(count(svg, "<rect") <= static_cast<int>(kBars));
  int64_t found = 0;
  for (size_t at = svg.find("<title>"); at != std::string::npos; at = svg.find("<title>", at + 1)) {
    const size_t colon = svg.find(": ", at);
    found += std::stoll(svg.substr(colon + 2));
  }
  CHECK(found == total);
  CHECK(bar_plot({}).empty());
}

TEST_CASE("report: what is not finite is named and leaves a gap") {
  RunFolder run;
  for (int64_t step = 0; step < 5; ++step) {
    json line = step_line(step);
    if (step >= 3) line["loss"] = "nan";
    if (step == 4) line["grad_norm"] = "inf";
    run.add(line.dump());
  }
  const std::string html = run.report();
  CHECK(count(html, "loss nan at step 3,") == 1);
  CHECK(count(html, "grad_norm inf at step 4") == 1);
  CHECK(count(html, "<b>nan</b>") == 1);
  const RunRecord record = read_run(run.path());
  CHECK(std::isnan(record.column("loss")[3]));
  CHECK(std::isinf(record.column("grad_norm")[4]));
}

TEST_CASE("report: a run that was killed and resumed is read as one") {
  RunFolder run;
  for (int64_t step = 0; step < 6; ++step) run.add(step_line(step).dump());
  run.add(step_line(6).dump().substr(0, 40));  // cut while being written
  json again = step_line(4);
  again["loss"] = 42.0;
  run.add(again.dump());
  const RunRecord record = read_run(run.path());
  CHECK(record.steps == std::vector<int64_t>{0, 1, 2, 3, 4});
  CHECK(record.column("loss").back() == 42.0);
  CHECK(record.unreadable_lines == 1);
  CHECK(record.expert_load_steps == 5);
  CHECK(count(run.report(), "1 line left out: cannot be read") == 1);
}

TEST_CASE("report: components in chain order, layers in the order of numbers") {
  RunFolder run;
  run.add(step_line(0).dump());
  const RunRecord record = read_run(run.path());
  CHECK(record.name == "digits <&> \"one\"");
  CHECK(record.planned_steps == 300);
  CHECK(record.components() ==
        std::vector<std::string>{"vision", "decoder", "optimizer", "data", "other"});
  REQUIRE(record.expert_load.size() == 2);
  CHECK(record.expert_load[0].first == "2");
  CHECK(record.expert_load[1].first == "10");
  CHECK(record.labels[1] == std::pair<std::string, std::string>{"freeze", "vision"});
}

TEST_CASE("report: a folder without a run is R7") {
  RunFolder run;
  try {
    write_report(run.path(), run.path() + "/report.html");
    FAIL("no error");
  } catch (const keyseat::Error& error) {
    CHECK(error.problems().at(0).code == keyseat::Code::kR7File);
    CHECK(error.problems().at(0).text().find("metrics.jsonl") != std::string::npos);
  }
}

TEST_CASE("report: numbers are short") {
  CHECK(count_text(1, "step") == "1 step");
  CHECK(count_text(0, "step") == "0 steps");
  CHECK(number_text(0) == "0");
  CHECK(number_text(0.002) == "0.002");
  CHECK(number_text(12345) == "12.35k");
  CHECK(number_text(std::nan("")) == "nan");
  CHECK(number_text(-INFINITY) == "-inf");
}

TEST_CASE("report: a loss that falls over orders of magnitude is drawn on a log scale") {
  Plot plot;
  plot.title = "Loss";
  plot.may_be_logarithmic = true;
  plot.steps = {0, 1, 2};
  plot.series = {{"total", {5.0, 0.5, 0.01}}};
  CHECK(count(line_plot(plot), "log scale") == 1);
  plot.series = {{"total", {5.0, 0.5, -0.01}}};
  CHECK(count(line_plot(plot), "log scale") == 0);
  plot.series = {{"total", {NAN, NAN, NAN}}};
  CHECK(line_plot(plot).empty());
}
