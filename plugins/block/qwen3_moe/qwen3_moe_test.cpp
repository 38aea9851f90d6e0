// Legend: T row tokens, V vocabulary.
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/isfinite.h>
#include <doctest/doctest.h>

#include "train/model_fixture.h"

using namespace keyseat;
using namespace keyseat::testing;

namespace {

Problems problems_with(const Values& changes, const std::string& without = "") {
  Values values = with(small_decoder(), changes);
  values.erase(without);
  return problems_of("block", "qwen3_moe", values);
}

int64_t parameters(const UnitSpec& spec) {
  int64_t sum = 0;
  for (const ParamSpec& param : spec.params) sum += param.numel();
  return sum;
}

bool reads(const UnitSpec& spec, const std::string& name) {
  return std::any_of(spec.reads.begin(), spec.reads.end(),
                     [&](const TensorSpec& read) { return read.name == name; });
}

bool writes(const UnitSpec& spec, const std::string& name) {
  return std::any_of(spec.writes.begin(), spec.writes.end(),
                     [&](const TensorSpec& write) { return write.name == name; });
}

const Values kTextOnly = {{"vision", false},
                          {"deepstack_visual_indexes", std::vector<int64_t>{}},
                          {"mrope_section", std::vector<int64_t>{}}};
const Values kDense = {{"num_experts", int64_t{0}}};

}  // namespace

TEST_CASE("qwen3_moe: embedding, layers and head, with what they read and write") {
  const auto units = make_plugin<Block>("qwen3_moe", small_decoder())->units();
  REQUIRE(units.size() == 5);
  const UnitSpec &embedding = units[0]->spec(), &head = units[4]->spec();
  CHECK(reads(embedding, "vision.merged"));
  CHECK(reads(embedding, "visual_dst"));
  for (int layer = 0; layer < 3; ++layer) {
    const UnitSpec& spec = units[static_cast<size_t>(layer) + 1]->spec();
    const std::string number = std::to_string(layer);
    CHECK(spec.name == "layers." + number);
    CHECK(reads(spec, "deepstack." + number) == (layer < 2));
    const bool moe = layer != 1;  // mlp_only_layers
    CHECK(writes(spec, "router.stats." + number) == moe);
    CHECK(spec.top_k == (moe ? 2 : 0));
    CHECK(reads(head, "router.stats." + number) == moe);
  }
  CHECK(head.writes.at(0).normaliser == "supervised");
  CHECK(writes(head, "loss.aux"));
  CHECK(writes(head, "loss.z"));
}

TEST_CASE("qwen3_moe: a text-only dense decoder reads nothing of images and routes nothing") {
  const auto units =
      make_plugin<Block>("qwen3_moe", with(with(small_decoder(), kTextOnly), kDense))->units();
  CHECK_FALSE(reads(units[0]->spec(), "vision.merged"));
  for (const auto& unit : units) CHECK(unit->spec().top_k == 0);
  CHECK_FALSE(writes(units[4]->spec(), "loss.aux"));
}

TEST_CASE("qwen3_moe: parameters by formula") {
  const auto units = make_plugin<Block>("qwen3_moe", small_decoder())->units();
  const int64_t h = 20, q = 4 * 8, kv = 2 * 8, d = 8, v = 50;
  const int64_t attention = 2 * q * h + 2 * kv * h + 2 * d + 2 * h;
  CHECK(parameters(units[0]->spec()) == v * h);
  CHECK(parameters(units[1]->spec()) == attention + 4 * h + 4 * 3 * 12 * h);
  CHECK(parameters(units[2]->spec()) == attention + 3 * 28 * h);
  CHECK(parameters(units[4]->spec()) == h + v * h);
  // Tied: the same table, counted once.
  const int64_t untied = chain_of(small_blocks()).parameter_count();
  CHECK(chain_of(small_blocks({{"tie_word_embeddings", true}})).parameter_count() ==
        untied - v * h);
}

TEST_CASE("qwen3_moe: names in a checkpoint, packed and by expert") {
  const auto units = make_plugin<Block>("qwen3_moe", small_decoder())->units();
  for (const ParamSpec& param : units[1]->spec().params) {
    if (param.name == "mlp.gate.weight") {
      CHECK((param.role == ParamRole::kRouter));
      CHECK(param.keep_fp32);
    }
    if (param.name != "mlp.experts.gate_up_proj") continue;
    CHECK((param.domain == ParamDomain::kExpert));
    CHECK(param.shape == std::vector<int64_t>{4, 24, 20});
    CHECK(param.checkpoint_name == "model.language_model.layers.0.mlp.experts.gate_up_proj");
    CHECK(param.expert_parts ==
          std::vector<std::string>{"model.language_model.layers.0.mlp.experts.{e}.gate_proj.weight",
                                   "model.language_model.layers.0.mlp.experts.{e}.up_proj.weight"});
    CHECK((param.checkpoint_layout == CheckpointLayout::kPackedTransposed));
  }
}

TEST_CASE("qwen3_moe: what is cut over tensor ranks, and how") {
  using Otherwise = TensorSplit::Otherwise;
  struct Cut {
    int dim;
    int64_t units;
    Otherwise otherwise = Otherwise::kRefuse;
    bool operator==(const Cut&) const = default;
  };
  const std::map<std::string, Cut> expected{
      {"weight", {0, 50, Otherwise::kUneven}},
      {"lm_head.weight", {0, 50, Otherwise::kUneven}},
      {"self_attn.q_proj.weight", {0, 4}},
      {"self_attn.k_proj.weight", {0, 2, Otherwise::kReplicate}},
      {"self_attn.v_proj.weight", {0, 2, Otherwise::kReplicate}},
      {"self_attn.o_proj.weight", {1, 4}},
      {"mlp.gate_proj.weight", {0, 28}},
      {"mlp.up_proj.weight", {0, 28}},
      {"mlp.down_proj.weight", {1, 28}},
      {"mlp.experts.gate_up_proj", {1, 12}},
      {"mlp.experts.down_proj", {2, 12}}};
  std::set<std::string> seen, with_own_heads;
  for (const auto& unit : make_plugin<Block>("qwen3_moe", small_decoder())->units()) {
    CHECK((unit->spec().layout == Layout::kRows));
    for (const ParamSpec& param : unit->spec().params) {
      INFO(param.name);
      seen.insert(param.name);
      if (param.tensor_shares) with_own_heads.insert(param.name);
      const auto found = expected.find(param.name);
      if (found == expected.end()) {
        CHECK(param.split.dim == -1);
        continue;
      }
      CHECK((Cut{param.split.dim, param.split.units, param.split.otherwise} == found->second));
      int64_t size = 0;
      for (int64_t part : param.parts) size += part;
      if (!param.parts.empty()) CHECK(size == param.shape[static_cast<size_t>(param.split.dim)]);
    }
  }
  for (const auto& [name, cut] : expected) CHECK(seen.contains(name));
  CHECK(with_own_heads ==
        std::set<std::string>{"self_attn.q_norm.weight", "self_attn.k_norm.weight"});
}

TEST_CASE("qwen3_moe: values that do not fit each other") {
  CHECK(problems_with({}).empty());
  check_problem(problems_with({{"num_key_value_heads", int64_t{3}}}), Code::kC4Combination,
                "4 query heads cannot share 3 key/value heads evenly");
  check_problem(problems_with({{"mrope_section", std::vector<int64_t>{2, 2, 1}}}),
                Code::kC4Combination, "sum head_dim / 2 = 4, not 5");
  check_problem(problems_with({{"mlp_only_layers", std::vector<int64_t>{1, 7}}}),
                Code::kC4Combination, "there is no layer 7");
  check_problem(problems_with({}, "moe_intermediate_size"), Code::kC4Combination,
                "moe_intermediate_size is missing: 2 layers have experts");
  check_problem(problems_with({}, "intermediate_size"), Code::kC4Combination,
                "intermediate_size is missing: 1 layers are dense");
  check_problem(problems_with({{"num_experts_per_tok", int64_t{5}}}), Code::kC4Combination,
                "top-k 5 is above the number of experts 4");
  check_problem(problems_with({{"deepstack_visual_indexes", std::vector<int64_t>{0, 1, 2, 3}}}),
                Code::kC4Combination, "4 deepstack features need as many decoder layers");
  check_problem(problems_with({}, "image_token_id"), Code::kC4Combination,
                "image_token_id is missing");
  check_problem(problems_with({{"image_token_id", int64_t{50}}}), Code::kC4Combination,
                "image_token_id 50 is outside of the vocabulary of 50");
  check_problem(problems_with({{"vision", false}}), Code::kC4Combination,
                "deepstack features need vision = true");
  check_problem(problems_with({{"checkpoint_experts", std::string("odd")}}), Code::kC3Value, "odd");
}

TEST_CASE("qwen3_moe: serves the published model types") {
  std::set<std::string> types;
  for (const HfModel& model : load_plugin("block", "qwen3_moe")->hf_models()) {
    types.insert(model.model_type);
    CHECK(model.block_name == "decoder");
    CHECK(model.order == 2);
  }
  CHECK(types == std::set<std::string>{"qwen3", "qwen3_moe", "qwen3_vl", "qwen3_vl_moe"});
}

TEST_CASE("qwen3_moe: a step with an image row, a text row and an empty row trains every part") {
  SmallModel model(small_blocks());
  const InputSpec& input = model.chain().input();
  std::vector<Row> rows;
  rows.push_back(model.pack({small_sample(1, 5, true, input), small_sample(2, 4, false, input)}));
  rows.push_back(model.pack({small_sample(3, 6, false, input)}));
  rows.push_back(model.pack({}));
  const auto losses = model.run(std::move(rows), /*training=*/true);
  CHECK(losses.at("ce") > 0);
  CHECK(losses.at("aux") > 0);
  for (int unit = 0; unit < model.chain().size(); ++unit) {
    const ChainUnit& part = model.chain().units()[static_cast<size_t>(unit)];
    for (size_t p = 0; p < part.param_names.size(); ++p) {
      INFO(part.param_names[p]);
      const at::Tensor gradient = model.strategy().read_gradient(unit, static_cast<int>(p));
      CHECK(gradient.isfinite().all().item<bool>());
      CHECK(gradient.abs().sum().item<float>() > 0);
    }
  }
}

TEST_CASE("qwen3_moe: a step without any image leaves the tower's gradients at zero") {
  SmallModel model(small_blocks());
  std::vector<Row> rows;
  rows.push_back(model.pack({small_sample(3, 6, false, model.chain().input())}));
  rows.push_back(model.pack({}));
  model.run(std::move(rows), /*training=*/true);
  for (int unit = 0; unit < model.chain().size(); ++unit) {
    const ChainUnit& part = model.chain().units()[static_cast<size_t>(unit)];
    if (part.block == "decoder") continue;
    for (size_t p = 0; p < part.param_names.size(); ++p)
      CHECK(model.strategy().read_gradient(unit, static_cast<int>(p)).abs().sum().item<float>() ==
            0);
  }
}

TEST_CASE("qwen3_moe: samples of a row do not see each other") {
  for (const bool dense : {true, false}) {
    INFO(dense);
    SmallModel model(small_blocks(dense ? kDense : Values()));
    const InputSpec& input = model.chain().input();
    const auto logits_TV = [&](int64_t other) {
      std::vector<Row> rows;
      rows.push_back(
          model.pack({small_sample(1, 5, true, input), small_sample(other, 6, true, input),
                      small_sample(3, 7, false, input)}));
      std::vector<at::Tensor> logits;
      model.run(std::move(rows), /*training=*/false, &logits);
      return logits.at(0);
    };
    const at::Tensor a_TV = logits_TV(20), b_TV = logits_TV(21);
    REQUIRE(a_TV.size(0) == 11 + 12 + 7);
    const auto same = [&](int64_t begin, int64_t end) {
      const at::Tensor a = a_TV.slice(0, begin, end), b = b_TV.slice(0, begin, end);
      return dense ? at::equal(a, b) : at::allclose(a, b, 1e-6, 1e-6);
    };
    CHECK(same(0, 11));
    CHECK_FALSE(same(11, 23));
    CHECK(same(23, 30));
  }
}

TEST_CASE("qwen3_moe: a frozen tower has no gradient, the decoder the same one") {
  std::vector<at::Tensor> gradients;
  for (const bool frozen : {false, true}) {
    SmallModel model(small_blocks(),
                     frozen ? std::vector<std::string>{"vision"} : std::vector<std::string>());
    std::vector<Row> rows;
    rows.push_back(model.pack({small_sample(1, 5, true, model.chain().input())}));
    model.run(std::move(rows), /*training=*/true);
    const int last = model.chain().size() - 1;
    gradients.push_back(model.strategy().read_gradient(last, 1).clone());
    CHECK(model.strategy().read_gradient(0, 0).defined() == !frozen);
  }
  CHECK(at::equal(gradients[0], gradients[1]));
}
