#include "train/report/run_record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <deque>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <variant>

#include "config/syntax/read.h"
#include "keyseat/status.h"

namespace keyseat::train {

namespace {

using nlohmann::json;

constexpr size_t kExpertLoadSteps = 50;
constexpr const char* kMilliseconds = "milliseconds.";
// What the loop measures beside the blocks (set_seconds of metrics.cpp).
constexpr const char* kCoreComponents[] = {"dispatcher", "strategy", "norm",
                                           "optimizer",  "data",     "other"};
// Objects of a line whose members are numbers; each becomes columns of its own.
constexpr const char* kNumberTables[] = {
    "milliseconds",        "block_grad_norm", "block_parameter_norm", "memory_peak_bytes",
    "expert_load_entropy", "router_entropy",  "dropped_rows"};
constexpr const char* kLabels[] = {"precision", "freeze", "routing", "recompute"};
constexpr const char* kPluginKinds[] = {"strategy", "dispatcher", "recompute",
                                        "comm",     "data",       "optimizer"};

std::ifstream open_or_throw(const std::string& path) {
  std::ifstream stream(path);
  if (!stream) {
    throw Error(Problem{Code::kR7File,
                        {path, 0, 0},
                        "cannot read the file that the report is made of",
                        std::strerror(errno),
                        "Give the folder of a run that trained at least one step."});
  }
  return stream;
}

std::string label_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  const auto items = value.get<std::vector<std::string>>();
  return items.empty() ? "none" : fmt::format("{}", fmt::join(items, ", "));
}

// "2" before "10": digits compare as numbers.
bool natural_less(const std::string& a, const std::string& b) {
  const auto split = [](const std::string& text) {
    const size_t digits = text.find_last_not_of("0123456789") + 1;
    const std::string number = text.substr(digits);
    return std::pair(text.substr(0, digits),
                     number.empty() || number.size() > 9 ? -1 : std::stoll(number));
  };
  return std::pair(split(a), a) < std::pair(split(b), b);
}

class Reader {
 public:
  void line(const std::string& text) {
    try {
      read(json::parse(text));
    } catch (const json::exception&) {
      ++record_.unreadable_lines;
    }
  }

  RunRecord finish() {
    for (auto& [name, values] : record_.columns) pad(values, record_.steps.size());
    for (const char* name : kLabels) {
      if (!labels_[name].empty()) record_.labels.push_back({name, labels_[name]});
    }
    std::map<std::string, std::vector<int64_t>> sums;
    for (const auto& [step, layers] : loads_) {
      for (const auto& [layer, counts] : layers) {
        std::vector<int64_t>& sum = sums[layer];
        sum.resize(std::max(sum.size(), counts.size()));
        for (size_t e = 0; e < counts.size(); ++e) sum[e] += counts[e];
      }
    }
    record_.expert_load.assign(sums.begin(), sums.end());
    std::sort(record_.expert_load.begin(), record_.expert_load.end(),
              [](const auto& a, const auto& b) { return natural_less(a.first, b.first); });
    record_.expert_load_steps = static_cast<int64_t>(loads_.size());
    for (const auto& [step, histograms] : histograms_) {
      for (const auto& [name, histogram] : histograms) {
        for (const auto& [bucket, count] : histogram) record_.histograms[name][bucket] += count;
      }
    }
    return std::move(record_);
  }

 private:
  using Loads = std::map<std::string, std::vector<int64_t>>;
  using Histograms = std::map<std::string, Histogram>;

  static Histograms read_histograms(const json& line) {
    Histograms histograms;
    const json by_name = line.value("histograms", json::object());
    for (const auto& [name, pairs] : by_name.items()) {
      for (const json& pair : pairs)
        histograms[name][pair.at(0).get<int64_t>()] += pair.at(1).get<int64_t>();
    }
    return histograms;
  }

  static Evaluation read_evaluation(const json& line) {
    Evaluation evaluation;
    evaluation.step = line.at("step").get<int64_t>();
    if (line.contains("held_out_loss") && line["held_out_loss"].is_number())
      evaluation.loss = line["held_out_loss"].get<double>();
    if (line.contains("accuracy")) {
      evaluation.accuracy = line["accuracy"].get<double>();
      evaluation.correct = line.at("correct").get<int64_t>();
      evaluation.samples = line.at("samples").get<int64_t>();
    }
    return evaluation;
  }

  void read(const json& line) {
    const auto step = line.at("step").get<int64_t>();
    if (line.contains("notice")) record_.notice = line["notice"].get<std::string>();
    if (line.contains("accuracy") || line.contains("held_out_loss")) {
      record_.evaluations.push_back(read_evaluation(line));
      return;
    }
    Histograms histograms = read_histograms(line);
    const Loads loads = line.value("expert_load", Loads());
    std::vector<DataFailure> failures;
    const json by_reason = line.value("data_failures", json::object());
    for (const auto& [reason, failure] : by_reason.items())
      failures.push_back(
          {reason, failure.at("example").get<std::string>(), failure.at("count").get<int64_t>()});

    if (!record_.steps.empty() && step <= record_.steps.back()) forget_from(step);
    record_.steps.push_back(step);
    record_.failures = std::move(failures);
    for (const char* name : kLabels)
      labels_[name] = line.contains(name) ? label_text(line[name]) : "";
    for (const auto& [name, value] : line.items()) {
      if (is_table(name) && value.is_object()) {
        for (const auto& [member, number] : value.items()) add(name + "." + member, number);
      } else if (name != "step") {
        add(name, value);
      }
    }
    if (!loads.empty()) loads_.push_back({step, loads});
    if (loads_.size() > kExpertLoadSteps) loads_.pop_front();
    if (!histograms.empty()) histograms_.push_back({step, std::move(histograms)});
  }

  static bool is_table(const std::string& name) {
    return std::find(std::begin(kNumberTables), std::end(kNumberTables), name) !=
           std::end(kNumberTables);
  }

  static void pad(std::vector<double>& values, size_t size) {
    values.resize(size, std::numeric_limits<double>::quiet_NaN());
  }

  void add(const std::string& name, const json& value) {
    double number = 0;
    if (value.is_number()) {
      number = value.get<double>();
    } else if (value == "nan" || value == "-nan" || value == "inf" || value == "-inf") {
      // metrics_json writes what JSON has no number for as text.
      const auto text = value.get<std::string>();
      record_.non_finite.push_back({record_.steps.back(), name, text});
      number = std::stod(text);
    } else {
      return;
    }
    std::vector<double>& values = record_.columns[name];
    pad(values, record_.steps.size());
    values.back() = number;
  }

  void forget_from(int64_t step) {
    auto& steps = record_.steps;
    steps.erase(std::lower_bound(steps.begin(), steps.end(), step), steps.end());
    for (auto& [name, values] : record_.columns)
      values.resize(std::min(values.size(), steps.size()));
    std::erase_if(record_.non_finite, [=](const NonFinite& at) { return at.step >= step; });
    std::erase_if(record_.evaluations, [=](const Evaluation& at) { return at.step >= step; });
    while (!loads_.empty() && loads_.back().first >= step) loads_.pop_back();
    while (!histograms_.empty() && histograms_.back().first >= step) histograms_.pop_back();
  }

  RunRecord record_;
  std::map<std::string, std::string> labels_;
  std::deque<std::pair<int64_t, Loads>> loads_;
  std::vector<std::pair<int64_t, Histograms>> histograms_;
};

// Names and sizes out of the resolved configuration. The report needs none of it to be right, so a
// configuration that cannot be parsed is shown as text and used for nothing else.
void read_config(const std::string& path, RunRecord& record) {
  Problems problems;
  const auto root = read_toml(record.config_text, path, "", "", problems);
  if (!root) return;
  if (const Node* run = root->find("run")) {
    record.name = run->string_at("name");
    const Node* steps = run->find("steps");
    if (steps && std::holds_alternative<int64_t>(steps->value))
      record.planned_steps = std::get<int64_t>(steps->value);
  }
  const Node* model = root->find("model");
  if (const Node* blocks = model ? model->find("blocks") : nullptr) {
    for (const Node& block : blocks->items) {
      record.blocks.push_back(block.string_at("name"));
      record.plugins.push_back({"block " + block.string_at("name"), block.string_at("plugin")});
    }
  }
  for (const char* kind : kPluginKinds) {
    const Node* table = root->find(kind);
    const std::string plugin = table ? table->string_at("plugin") : "";
    if (!plugin.empty()) record.plugins.push_back({kind, plugin});
  }
}

}  // namespace

const std::vector<double>& RunRecord::column(const std::string& field) const {
  static const std::vector<double> kNone;
  const auto found = columns.find(field);
  return found == columns.end() ? kNone : found->second;
}

std::vector<std::pair<std::string, std::string>> RunRecord::fields_of(
    const std::string& prefix) const {
  std::vector<std::pair<std::string, std::string>> fields;
  for (const auto& [field, values] : columns) {
    if (field.starts_with(prefix + ".")) fields.push_back({field.substr(prefix.size() + 1), field});
  }
  std::sort(fields.begin(), fields.end(),
            [](const auto& a, const auto& b) { return natural_less(a.first, b.first); });
  return fields;
}

std::vector<std::string> RunRecord::components() const {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (!column(kMilliseconds + name).empty() &&
        std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(name);
  };
  const auto is_core = [](const std::string& name) {
    return std::find(std::begin(kCoreComponents), std::end(kCoreComponents), name) !=
           std::end(kCoreComponents);
  };
  for (const std::string& block : blocks) {
    if (!is_core(block)) add(block);
  }
  for (const auto& [field, values] : columns) {
    if (!field.starts_with(kMilliseconds)) continue;
    const std::string name = field.substr(std::strlen(kMilliseconds));
    if (!is_core(name)) add(name);
  }
  for (const char* name : kCoreComponents) add(name);
  return names;
}

RunRecord read_run(const std::string& run_dir) {
  const std::string config_path = run_dir + "/config.toml", path = run_dir + "/metrics.jsonl";
  std::ifstream config = open_or_throw(config_path);
  std::ifstream metrics = open_or_throw(path);
  Reader reader;
  for (std::string line; std::getline(metrics, line);) {
    if (!line.empty()) reader.line(line);
  }
  RunRecord record = reader.finish();
  record.config_text.assign(std::istreambuf_iterator<char>(config), {});
  if (config.bad() || metrics.bad()) {
    throw Error(Problem{Code::kR7File,
                        {config.bad() ? config_path : path, 0, 0},
                        "cannot read the file to its end",
                        std::strerror(errno),
                        ""});
  }
  read_config(config_path, record);
  return record;
}

}  // namespace keyseat::train
