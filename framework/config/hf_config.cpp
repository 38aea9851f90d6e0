#include "config/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/json_text.h"
#include "base/option_value.h"
#include "config/syntax/tree.h"
#include "keyseat/suggest.h"

namespace keyseat {
namespace {

using Json = nlohmann::json;

// The value at a dotted path; null counts as absent, as transformers writes null for "not used".
const Json* find(const Json& root, const std::string& path) {
  const Json* at = &root;
  for (const std::string& part : split_key(path)) {
    if (!at->is_object()) return nullptr;
    const auto found = at->find(part);
    if (found == at->end()) return nullptr;
    at = &*found;
  }
  return at->is_null() ? nullptr : at;
}

std::optional<OptionValue> scalar(const Json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_unsigned() &&
      json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return std::nullopt;
  }
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number_float()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  return std::nullopt;
}

// Numbers, booleans, strings and lists of one kind of them; nothing for what no option can hold.
std::optional<OptionValue> option_value(const Json& json) {
  if (!json.is_array()) return scalar(json);
  auto all = [&](auto test) { return std::all_of(json.begin(), json.end(), test); };
  if (!all([](const Json& item) { return scalar(item).has_value() && !item.is_boolean(); })) {
    return std::nullopt;
  }
  if (all([](const Json& item) { return item.is_number_integer(); })) {
    return json.get<std::vector<int64_t>>();
  }
  if (all([](const Json& item) { return item.is_number(); })) {
    return json.get<std::vector<double>>();
  }
  if (all([](const Json& item) { return item.is_string(); })) {
    return json.get<std::vector<std::string>>();
  }
  return std::nullopt;
}

struct Served {
  const HfPlugin* plugin;
  const HfModel* model;
};

class Reader {
 public:
  explicit Reader(std::string file) : file_{std::move(file), 0, 0} {}

  HfBlocks read(const std::string& text, const std::vector<HfPlugin>& plugins) {
    const Result<Json> parsed = parse_json(text, file_.file);
    if (!parsed) {
      result_.problems.push_back(parsed.problem());
      return std::move(result_);
    }
    const Json& root = parsed.value();
    const Json* type = find(root, "model_type");
    if (type == nullptr || !type->is_string()) {
      const std::string what =
          type == nullptr ? std::string("there is no \"model_type\"")
                          : fmt::format("\"model_type\" is {}, which is no string", type->dump());
      report(Code::kR6Data, what, "It decides which block plugins build the model",
             "Give the config.json of a Hugging Face model",
             position_of_key(text, file_.file, "model_type"));
      return std::move(result_);
    }
    result_.model_type = type->get<std::string>();
    const std::vector<Served> served = serving(plugins);
    for (const Served& block : served) read_block(root, block);
    return std::move(result_);
  }

 private:
  void report(Code code, std::string what, std::string why, std::string remedy,
              SourcePosition where = {}) {
    if (where.file.empty()) where = file_;
    result_.problems.push_back(
        {code, std::move(where), std::move(what), std::move(why), std::move(remedy)});
  }

  std::vector<Served> serving(const std::vector<HfPlugin>& plugins) {
    std::vector<Served> served;
    std::vector<std::string> types;
    for (const HfPlugin& plugin : plugins) {
      for (const HfModel& model : plugin.models) {
        if (model.model_type == result_.model_type) served.push_back({&plugin, &model});
        types.push_back(model.model_type);
      }
    }
    std::sort(types.begin(), types.end());
    types.erase(std::unique(types.begin(), types.end()), types.end());
    if (served.empty()) {
      report(Code::kC2Unknown,
             fmt::format("no block plugin serves model_type {}", quote(result_.model_type)),
             fmt::format("Served are: {}", fmt::join(types, ", ")),
             did_you_mean(result_.model_type, types));
    }
    std::stable_sort(served.begin(), served.end(), [](const Served& a, const Served& b) {
      return a.model->order < b.model->order;
    });
    for (size_t i = 0; i < served.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (served[i].model->block_name != served[j].model->block_name) continue;
        report(Code::kP7Conflict,
               fmt::format("block/{} and block/{} both serve the block {} of model_type {}",
                           served[j].plugin->plugin, served[i].plugin->plugin,
                           quote(served[i].model->block_name), quote(result_.model_type)),
               "", "Remove one of them from the plugin folders");
      }
    }
    return served;
  }

  void read_block(const Json& root, const Served& served) {
    GivenBlock block;
    block.name = served.model->block_name;
    block.plugin = served.plugin->plugin;
    block.where = file_;
    for (const HfOption& option : served.model->options) {
      if (auto value = value_of(root, option, block)) {
        block.options[option.option] = std::move(*value);
      }
    }
    for (const HfRequirement& requirement : served.model->requirements) {
      check(root, requirement, block);
    }
    result_.blocks.push_back(std::move(block));
  }

  std::optional<OptionValue> value_of(const Json& root, const HfOption& option,
                                      const GivenBlock& block) {
    for (const std::string& path : option.paths) {
      const Json* json = find(root, path);
      if (json == nullptr) continue;
      auto value = option_value(*json);
      if (!value) {
        report(Code::kC3Value,
               fmt::format("{} is {}, which is no value of an option", path, json->dump()),
               fmt::format("It gives the option {} of the block {}", quote(option.option),
                           quote(block.name)),
               "");
      }
      return value;
    }
    if (std::holds_alternative<std::monostate>(option.otherwise)) return std::nullopt;
    return option.otherwise;
  }

  void check(const Json& root, const HfRequirement& requirement, const GivenBlock& block) {
    const Json* json = find(root, requirement.path);
    if (json == nullptr) return;
    for (const std::string& allowed : requirement.allowed) {
      if (Json::parse(allowed, nullptr, false) == *json) return;
    }
    report(Code::kC4Combination,
           fmt::format("{} is {}; the plugin block/{} builds {} only", requirement.path,
                       json->dump(), block.plugin, fmt::join(requirement.allowed, " or ")),
           requirement.why, "Use another plugin for this model");
  }

  SourcePosition file_;
  HfBlocks result_;
};

}  // namespace

HfBlocks blocks_from_hf(const std::string& json, const std::string& file,
                        const std::vector<HfPlugin>& plugins) {
  return Reader(file).read(json, plugins);
}

}  // namespace keyseat
