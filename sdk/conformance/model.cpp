#include "sdk/conformance/model.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "keyseat/data/packing.h"
#include "keyseat/random.h"
#include "train/step_counts.h"

namespace keyseat::conformance {
namespace {

constexpr int64_t kModelSeed = 17;
constexpr double kShake = 0.05;
constexpr int64_t kMostParameters = 50'000'000;

at::Tensor normal(at::IntArrayRef shape, const std::string& purpose, double deviation) {
  const at::Tensor tensor = at::empty(shape, at::kFloat);
  fill_normal(tensor, derive_seed(kModelSeed, purpose), deviation);
  return tensor;
}

at::Tensor start_value(const ParamSpec& spec, const std::string& name) {
  switch (spec.init.kind) {
    case Init::Kind::kZeros:
      return normal(spec.shape, name, kShake);
    case Init::Kind::kOnes:
      return normal(spec.shape, name, kShake).add_(1);
    case Init::Kind::kNormal:
      break;
  }
  return normal(spec.shape, name, std::max(spec.init.std, kShake));
}

}  // namespace

ModelParams::ModelParams(const Chain& chain, bool with_sinks) {
  std::vector<std::vector<c10::intrusive_ptr<ParamState>>> states;
  for (int i = 0; i < chain.size(); ++i) {
    const ChainUnit& unit = chain.units()[static_cast<size_t>(i)];
    const std::vector<ParamSpec>& specs = unit.unit->spec().params;
    std::vector<ParamHandle> handles;
    states.emplace_back();
    for (size_t j = 0; j < specs.size(); ++j) {
      auto state = c10::make_intrusive<ParamState>();
      const ParamRef owner = unit.owners[j];
      if (owner == ParamRef{i, static_cast<int>(j)}) {
        state->value = start_value(specs[j], unit.param_names[j]).requires_grad_(true);
        if (with_sinks) state->sink = at::zeros(specs[j].shape);
      } else {
        *state = *states[static_cast<size_t>(owner.unit)][static_cast<size_t>(owner.param)];
      }
      state->index = static_cast<int64_t>(j);
      states.back().push_back(state);
      handles.emplace_back(state);
    }
    params_.push_back(std::make_unique<Params>(&specs, std::move(handles)));
  }
}

const at::Tensor& ModelParams::value(int unit, int param) const {
  return params_[static_cast<size_t>(unit)]->at(static_cast<size_t>(param)).value();
}

at::Tensor ModelParams::gradient(int unit, int param) const {
  const ParamHandle& handle = params_[static_cast<size_t>(unit)]->at(static_cast<size_t>(param));
  const at::Tensor found = handle.sink().defined() ? handle.sink() : handle.value().grad();
  return found.defined() ? found.clone() : found;
}

Model::Model(const Subject& subject) : comm_(stock<Comm>("self")) {
  if (subject.config == nullptr) {
    skip("give --config with a small model that has this block, for example the digits run");
  }
  comm_->connect({});
  std::vector<NamedBlock> blocks;
  for (const PluginChoice& choice : subject.config->model.blocks) {
    PluginHost host;
    host.instance = choice.instance;
    if (choice.name == subject.plugin->name) block_ = choice.instance;
    blocks.push_back({choice.instance, "block/" + choice.name,
                      subject.registry->create<Block>(choice.name, choice.options, host),
                      choice.where});
  }
  Problems problems;
  chain_ = Chain::build(std::move(blocks), {}, problems);
  if (!problems.empty()) throw Error(std::move(problems));
  if (chain_.parameter_count() > kMostParameters) {
    skip(fmt::format("the model of --config has {} parameters; give one of at most {}",
                     chain_.parameter_count(), kMostParameters));
  }
}

// Sample 0, 3, 6, ... are text only; the others have an image of 2 x 2 or 2 x 4 visual tokens.
Sample Model::sample(int64_t id) const {
  const InputSpec& input = chain_.input();
  std::mt19937_64 random(static_cast<uint64_t>(id + 1));
  Sample sample;
  sample.id = id;
  const auto add = [&](int64_t token, int8_t type) {
    sample.tokens.push_back(token);
    sample.token_type.push_back(type);
  };
  if (input.patch_size > 0 && input.image_token_id >= 0 && id % 3 != 0) {
    const int64_t height = 2 * input.merge_size, width = height * (id % 3);
    add(input.vision_start_token_id, 0);
    for (int64_t i = 0; i < height * width / (input.merge_size * input.merge_size); ++i) {
      add(input.image_token_id, 1);
    }
    add(input.vision_end_token_id, 0);
    sample.grid_thw = {1, height, width};
    sample.patches = normal({height * width, input.channels * input.temporal_patch_size *
                                                 input.patch_size * input.patch_size},
                            "patches." + std::to_string(id), 0.5);
  }
  const std::set<int64_t> reserved = {input.image_token_id, input.video_token_id,
                                      input.vision_start_token_id, input.vision_end_token_id};
  const size_t begin = sample.tokens.size();
  for (int64_t left = 9 + id % 5; left > 0;) {
    const auto token = static_cast<int64_t>(
        random() % static_cast<uint64_t>(std::max<int64_t>(1, input.vocab_size)));
    if (reserved.contains(token)) continue;
    add(token, 0);
    --left;
  }
  sample.labels.assign(sample.tokens.size(), -100);
  for (size_t i = begin; i + 1 < sample.tokens.size(); ++i) sample.labels[i] = sample.tokens[i + 1];
  return sample;
}

Row Model::row(const std::vector<int64_t>& ids) const {
  std::vector<Sample> samples;
  for (const int64_t id : ids) samples.push_back(sample(id));
  std::vector<const Sample*> pointers;
  for (const Sample& one : samples) pointers.push_back(&one);
  data::PackOptions options;
  options.input = chain_.input();
  Row row = data::pack(pointers, options);
  row.facts.shared_tokens = row.facts.counts.tokens;
  return row;
}

std::vector<Row> Model::rows() const {
  std::vector<Row> rows;
  rows.push_back(row({1}));
  rows.push_back(row({0}));
  rows.push_back(row({2, 3, 4}));
  return rows;
}

ModelRun Model::run(ModelParams& params, std::vector<Row> rows, const RunOptions& options) {
  RowCounts total;
  for (const Row& row : rows) total += row.facts.counts;
  LossSettings settings;
  settings.aux_weight = 0.1;
  settings.z_weight = 0.01;
  const std::map<std::string, LossTerm> terms = train::loss_terms(chain_, settings, total);
  ExecutorServices services;
  services.comm = comm_.get();
  services.mesh = &mesh_;
  services.dispatcher = &dispatcher_;
  services.recompute = options.recompute;
  services.events = &params;
  services.kernels = options.kernels;
  services.seed = kModelSeed;
  Executor executor(chain_, services);
  executor.begin_step(0, terms);
  std::vector<std::unique_ptr<Store>> stores;
  int64_t number = 0;
  for (Row& row : rows) {
    stores.push_back(executor.begin(std::move(row), number++, /*training=*/true));
    executor.forward(*stores.back(), 0, chain_.size());
    if (options.backward && !options.all_in_flight) {
      executor.backward(*stores.back(), 0, chain_.size());
    }
  }
  if (options.backward && options.all_in_flight) {
    for (auto& store : stores) executor.backward(*store, 0, chain_.size());
  }
  ModelRun result;
  result.losses = executor.losses();
  for (const auto& [name, sum] : result.losses) {
    result.total += sum * terms.at(name).weight / terms.at(name).normaliser;
  }
  for (const auto& [layer, stats_2E] : executor.router_stats()) {
    const at::Tensor counts_E = stats_2E[1].to(at::kLong).contiguous();
    const int64_t* counts = counts_E.const_data_ptr<int64_t>();
    result.routed.insert(result.routed.end(), counts, counts + counts_E.numel());
  }
  return result;
}

}  // namespace keyseat::conformance
