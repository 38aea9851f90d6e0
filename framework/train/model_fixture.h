// A small Qwen3-VL-MoE out of its plugins, ready to run in one process: for the tests of blocks and
// of the executor.
#pragma once

#include <ATen/ops/from_blob.h>

#include "keyseat/chain.h"
#include "keyseat/data/packing.h"
#include "keyseat/executor.h"
#include "keyseat/interfaces/comm.h"
#include "keyseat/interfaces/dispatcher.h"
#include "keyseat/interfaces/recompute.h"
#include "keyseat/interfaces/strategy.h"
#include "plugin/plugin_fixture.h"

namespace keyseat::testing {

inline const Values& small_vision() {
  static const Values values = {{"hidden_size", int64_t{16}},
                                {"depth", int64_t{3}},
                                {"num_heads", int64_t{2}},
                                {"intermediate_size", int64_t{24}},
                                {"patch_size", int64_t{4}},
                                {"num_position_embeddings", int64_t{16}},
                                {"deepstack_visual_indexes", std::vector<int64_t>{0, 2}},
                                {"min_pixels", int64_t{64}}};
  return values;
}

inline const Values& small_projector() {
  static const Values values = {{"hidden_size", int64_t{16}},
                                {"out_hidden_size", int64_t{20}},
                                {"deepstack_visual_indexes", std::vector<int64_t>{0, 2}}};
  return values;
}

inline const Values& small_decoder() {
  static const Values values = {{"vocab_size", int64_t{50}},
                                {"hidden_size", int64_t{20}},
                                {"num_hidden_layers", int64_t{3}},
                                {"num_attention_heads", int64_t{4}},
                                {"num_key_value_heads", int64_t{2}},
                                {"head_dim", int64_t{8}},
                                {"intermediate_size", int64_t{28}},
                                {"moe_intermediate_size", int64_t{12}},
                                {"num_experts", int64_t{4}},
                                {"num_experts_per_tok", int64_t{2}},
                                {"mlp_only_layers", std::vector<int64_t>{1}},
                                {"mrope_section", std::vector<int64_t>{2, 1, 1}},
                                {"deepstack_visual_indexes", std::vector<int64_t>{0, 2}},
                                {"image_token_id", int64_t{47}},
                                {"vision_start_token_id", int64_t{48}},
                                {"vision_end_token_id", int64_t{49}}};
  return values;
}

inline NamedBlock block_of(const std::string& name, const std::string& plugin,
                           const Values& values) {
  return {name, "block/" + plugin, make_plugin<Block>(plugin, values), {}};
}

// Tower, projector and decoder, each with changes to the small values.
inline std::vector<NamedBlock> small_blocks(const Values& decoder = {}, const Values& vision = {},
                                            const Values& projector = {}) {
  return {block_of("vision", "qwen3_vl_vision", with(small_vision(), vision)),
          block_of("projector", "qwen3_vl_projector", with(small_projector(), projector)),
          block_of("decoder", "qwen3_moe", with(small_decoder(), decoder))};
}

inline Chain chain_of(std::vector<NamedBlock> blocks, const std::vector<std::string>& freeze = {},
                      const Mesh& mesh = {}) {
  Problems problems;
  Chain chain = Chain::build(std::move(blocks), freeze, problems, mesh);
  REQUIRE(problems_text(problems) == "");
  return chain;
}

// A sample of `text` random tokens, behind an image of 2 x 2 visual tokens where `image`.
inline Sample small_sample(int64_t id, int64_t text, bool image, const InputSpec& input) {
  std::mt19937_64 random(static_cast<uint64_t>(id));
  Sample sample;
  sample.id = id;
  const auto add = [&](int64_t token, int8_t type) {
    sample.tokens.push_back(token);
    sample.token_type.push_back(type);
  };
  if (image) {
    add(48, 0);
    for (int i = 0; i < 4; ++i) add(47, 1);
    add(49, 0);
    sample.grid_thw = {1, 4, 4};
    const int64_t elements = 3 * input.temporal_patch_size * input.patch_size * input.patch_size;
    std::vector<float> values(static_cast<size_t>(16 * elements));
    for (float& value : values)
      value = static_cast<float>(static_cast<int64_t>(random() % 2001) - 1000) / 1000;
    sample.patches = at::from_blob(values.data(), {16, elements}, at::kFloat).clone();
  }
  for (int64_t i = 0; i < text; ++i) add(static_cast<int64_t>(random() % 47), 0);
  sample.labels.assign(sample.tokens.size(), -100);
  for (size_t i = sample.tokens.size() - static_cast<size_t>(text); i + 1 < sample.tokens.size();
       ++i)
    sample.labels[i] = sample.tokens[i + 1];
  return sample;
}

// What the model runs on; anything may be replaced.
struct SmallParts {
  std::shared_ptr<Strategy> strategy = make_plugin<Strategy>("single");
  std::shared_ptr<Dispatcher> dispatcher = make_plugin<Dispatcher>("local");
  std::shared_ptr<Recompute> recompute = make_plugin<Recompute>("none");
  at::ScalarType compute_dtype = at::kFloat;
};

// Every loss that the chain writes, with one weight and normaliser.
inline std::map<std::string, LossTerm> small_loss_terms(const Chain& chain) {
  std::map<std::string, LossTerm> terms;
  for (const ChainUnit& unit : chain.units()) {
    for (const TensorSpec& write : unit.unit->spec().writes) {
      if (write.name.starts_with("loss.")) terms[write.name.substr(5)] = {0.5, 10};
    }
  }
  return terms;
}

// The chain in one process.
class SmallModel {
 public:
  explicit SmallModel(std::vector<NamedBlock> blocks, const std::vector<std::string>& freeze = {},
                      SmallParts parts = {})
      : chain_(chain_of(std::move(blocks), freeze)), parts_(std::move(parts)) {
    comm_->connect({});
    StrategyFacts facts;
    facts.seed = 3;
    facts.compute_dtype = parts_.compute_dtype;
    strategy().place(facts, chain_, mesh_, *comm_);
    ExecutorServices services;
    services.comm = comm_.get();
    services.mesh = &mesh_;
    services.dispatcher = parts_.dispatcher.get();
    services.recompute = parts_.recompute.get();
    services.events = parts_.strategy.get();
    services.compute_dtype = parts_.compute_dtype;
    executor_ = std::make_unique<Executor>(chain_, services);
  }

  const Chain& chain() const { return chain_; }
  Strategy& strategy() { return *parts_.strategy; }
  Executor& executor() { return *executor_; }

  Row pack(const std::vector<Sample>& samples) const {
    data::PackOptions options;
    options.input = chain_.input();
    options.all_logits = true;
    std::vector<const Sample*> pointers;
    for (const Sample& sample : samples) pointers.push_back(&sample);
    return data::pack(pointers, options);
  }

  // Forward of every row, and backward where training; loss terms by name, of all rows together.
  std::map<std::string, double> run(std::vector<Row> rows, bool training,
                                    std::vector<at::Tensor>* logits = nullptr) {
    executor_->begin_step(0, small_loss_terms(chain_));
    StepPlan plan;
    plan.rows = std::move(rows);
    plan.training = training;
    plan.on_forward = [&](int64_t, const Executor& executor, const Store& store) {
      if (logits != nullptr) logits->push_back(executor.tensor(store, "logits").clone());
    };
    strategy().schedule(std::move(plan), *executor_);
    strategy().finish();
    return executor_->losses();
  }

 private:
  Chain chain_;
  Mesh mesh_;
  SmallParts parts_;
  std::shared_ptr<Comm> comm_ = make_plugin<Comm>("self");
  std::unique_ptr<Executor> executor_;
};

}  // namespace keyseat::testing
