// Every op runs on meta tensors, forward and backward, with the shapes and dtypes of the CPU: dry
// runs of any model depend on it. Legend: T rows, H hidden, I in, O out, P patches, E experts,
// n/m query and key/value heads, d head dim, M dispatched rows, K choices.
#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include <regex>

#include "keyseat/nn/activation.h"
#include "keyseat/nn/attention.h"
#include "keyseat/nn/cross_entropy.h"
#include "keyseat/nn/linear.h"
#include "keyseat/nn/moe.h"
#include "keyseat/nn/norm.h"
#include "keyseat/nn/position_embedding.h"
#include "keyseat/nn/rope.h"
#include "keyseat/nn/router.h"
#include "keyseat/nn/row_moves.h"
#include "keyseat/nn/tensor_parallel.h"
#include "nn/testing.h"

using namespace keyseat;
using namespace keyseat::nn;

namespace {

constexpr Kernels kFast = Kernels::kFast;
constexpr int64_t kT = 6, kH = 8, kWidth = 10, kExperts = 4, kTopK = 2;
using TensorList = std::vector<at::Tensor>;

// The arguments of one call, made on a device; remembers what gradients are asked for.
class Arguments {
 public:
  Arguments(at::Device device, at::ScalarType dtype, bool sinks)
      : device_(device), dtype_(dtype), sinks_(sinks) {}

  at::Tensor input(std::vector<int64_t> sizes) { return leaf(std::move(sizes), dtype_); }
  at::Tensor fp32(std::vector<int64_t> sizes) { return leaf(std::move(sizes), at::kFloat); }
  ParamHandle parameter(std::vector<int64_t> sizes, bool keep_fp32 = false) {
    at::Tensor value = leaf(std::move(sizes), keep_fp32 ? at::kFloat : dtype_);
    // A sink may be filled by the op or by the executor, from what autograd yields.
    if (sinks_) leaves_.pop_back();
    return ParamHandle::of(value,
                           sinks_ ? at::zeros(value.sizes(), options(at::kFloat)) : at::Tensor());
  }
  at::Tensor table(std::vector<int64_t> sizes) const {
    return at::full(sizes, 0.5, options(at::kFloat));
  }
  at::Tensor indices(const std::vector<int64_t>& values, std::vector<int64_t> sizes) const {
    return at::tensor(values, at::kLong).reshape(sizes).to(device_);
  }
  const TensorList& leaves() const { return leaves_; }

 private:
  at::TensorOptions options(at::ScalarType dtype) const {
    return at::TensorOptions().device(device_).dtype(dtype);
  }
  at::Tensor leaf(std::vector<int64_t> sizes, at::ScalarType dtype) {
    leaves_.push_back(at::full(sizes, 0.25, options(dtype)).requires_grad_(true));
    return leaves_.back();
  }
  at::Device device_;
  at::ScalarType dtype_;
  bool sinks_;
  TensorList leaves_;
};

using Call = std::function<TensorList(Arguments&)>;

TensorList moe(Arguments& a) {
  const at::Tensor x_TH = a.input({kT, kH});
  const ParamHandle router_EH = a.parameter({kExperts, kH}, /*keep_fp32=*/true);
  const ParamHandle gate_up = a.parameter({kExperts, 2 * kWidth, kH});
  const ParamHandle down = a.parameter({kExperts, kH, kWidth});
  check::CallContext context(kT, 0, kFast, {router_EH, gate_up, down});
  const MoeOutput out = moe_layer(x_TH, router_EH, gate_up, down, {kTopK, true}, *context);
  return {out.y_TH,
          out.routing.logits_TE,
          out.routing.index_TK,
          out.routing.weight_TK,
          out.routing.stats_2E,
          out.routing.z_1};
}

TensorList routing(Arguments& a) {
  const at::Tensor x_TH = a.input({kT, kH});
  const ParamHandle gate_EH = a.parameter({kExperts, kH}, /*keep_fp32=*/true);
  check::CallContext context(kT - 1, 1, kFast, {gate_EH});
  const Routing r = route(x_TH, gate_EH, {kTopK, true}, *context);
  return {r.logits_TE, r.index_TK, r.weight_TK, r.stats_2E, r.z_1};
}

// Three tokens with two choices each, one of them not routed.
at::Tensor source_M(const Arguments& a) { return a.indices({0, 1, 2, 0, 2}, {5}); }
at::Tensor slot_TK(const Arguments& a) { return a.indices({0, 3, 1, -1, 4, 2}, {3, 2}); }

TensorList rope(Arguments& a) {
  return {apply_rope(a.input({kT, 4, 8}), {a.table({kT, 4}), a.table({kT, 4})}, kFast)};
}

TensorList rope_tables(Arguments& a) {
  const RopeTables tables =
      mrope_tables(a.indices(std::vector<int64_t>(3 * kT, 1), {3, kT}), 8, 1e4, {2, 1, 1});
  return {tables.cos, tables.sin};
}

TensorList positions(Arguments& a) {
  PositionTaps taps;
  taps.index_4P = a.indices(std::vector<int64_t>(4 * kT, 3), {4, kT});
  taps.weight_4P = a.table({4, kT});
  return {interpolate_positions(a.parameter({9, kH}), taps, kFast)};
}

TensorList cross_entropy(Arguments& a) {
  const at::Tensor x_TH = a.input({kT, kH});
  at::Tensor per_token_T;
  const at::Tensor loss =
      linear_cross_entropy(x_TH, a.parameter({kWidth, kH}),
                           a.indices({1, -100, 3, 4, -100, 9}, {kT}), kFast, &per_token_T);
  return {loss, per_token_T};
}

// A call on one rank of a mesh without a communicator, or, with none, on the only rank.
class RowContext {
 public:
  explicit RowContext(std::vector<int64_t> cu_seqlens, const Mesh* mesh = nullptr)
      : context_([&] {
          row_.cu_seqlens = std::move(cu_seqlens);
          row_.share.row_tokens = mesh == nullptr ? 0 : row_.cu_seqlens.back();
          StepContext::State state;
          state.unit = "test.unit";
          state.plugin = "block/test";
          state.row = &row_;
          state.mesh = mesh;
          return state;
        }()) {}
  RowContext(const RowContext&) = delete;
  StepContext& operator*() { return context_; }

 private:
  RowFacts row_;
  StepContext context_;
};

// Ops of keyseat/nn/tensor_parallel.h, for a rank with `context_rows` rows of the context rank, of
// which `own_rows` are its own, and a table of `table_rows` of 11 rows.
struct RankSizes {
  std::vector<int64_t> cu_seqlens;
  int64_t context_rows, own_rows, table_rows;
};

at::Tensor small_ids(const Arguments& a, int64_t rows) {
  return a.indices(std::vector<int64_t>(static_cast<size_t>(rows), 2), {rows});
}

std::map<std::string, Call> rank_ops(const RankSizes& sizes, const Mesh* mesh = nullptr) {
  const auto on_rank = [=](const std::function<TensorList(Arguments&, StepContext&)>& op) -> Call {
    return [=](Arguments& a) {
      RowContext context(sizes.cu_seqlens, mesh);
      return op(a, *context);
    };
  };
  constexpr int64_t kVocabulary = 11;
  return {
      {"enter_split", on_rank([=](Arguments& a, StepContext& context) -> TensorList {
         return {enter_split(a.input({sizes.own_rows, kH}), Layout::kRows, context)};
       })},
      {"leave_split", on_rank([=](Arguments& a, StepContext& context) -> TensorList {
         return {leave_split(a.input({sizes.context_rows, kH}), Layout::kRows, context)};
       })},
      {"own_key_heads", on_rank([=](Arguments& a, StepContext& context) -> TensorList {
         return {own_key_heads(a.input({sizes.context_rows, 2, 8}), 4, context)};
       })},
      {"row_attention", on_rank([=](Arguments& a, StepContext& context) -> TensorList {
         const at::Tensor q_Cnd = a.input({sizes.context_rows, 4, 8});
         const at::Tensor k_Cmd = a.input({sizes.context_rows, 2, 8});
         return {row_attention(q_Cnd, k_Cmd, a.input({sizes.context_rows, 2, 8}), 0.5, context)};
       })},
      {"split_embedding", on_rank([=](Arguments& a, StepContext& context) -> TensorList {
         return {split_embedding(small_ids(a, sizes.context_rows),
                                 a.parameter({sizes.table_rows, kH}), kVocabulary, context)};
       })},
      {"split_cross_entropy", on_rank([=](Arguments& a, StepContext& context) -> TensorList {
         const at::Tensor x_TH = a.input({sizes.own_rows, kH});
         at::Tensor per_token_T;
         const at::Tensor loss_1 =
             split_cross_entropy(x_TH, a.parameter({sizes.table_rows, kH}), kVocabulary,
                                 small_ids(a, sizes.context_rows), context, &per_token_T);
         return {loss_1, per_token_T};
       })},
      {"split_logits", on_rank([=](Arguments& a, StepContext& context) -> TensorList {
         const at::Tensor x_TH = a.input({sizes.own_rows, kH});
         return {split_logits(x_TH, a.parameter({sizes.table_rows, kH}), kVocabulary,
                              small_ids(a, 3), context)};
       })}};
}

const std::map<std::string, Call>& ops() {
  static const std::map<std::string, Call> calls = {
      {"swiglu",
       [](Arguments& a) {
         return TensorList{swiglu(a.input({kT, 2 * kWidth}), kFast)};
       }},
      {"weighted_swiglu",
       [](Arguments& a) {
         const at::Tensor x_M2I = a.input({kT, 2 * kWidth});
         return TensorList{weighted_swiglu(x_M2I, a.fp32({kT}), kFast)};
       }},
      {"gelu_tanh",
       [](Arguments& a) {
         return TensorList{gelu_tanh(a.input({kT, kH}), kFast)};
       }},
      {"gelu_erf",
       [](Arguments& a) {
         return TensorList{gelu_erf(a.input({kT, kH}), kFast)};
       }},
      {"varlen_attention",
       [](Arguments& a) {
         const at::Tensor q_Tnd = a.input({kT, 4, 8}), k_Tmd = a.input({kT, 2, 8});
         return TensorList{
             varlen_attention(q_Tnd, k_Tmd, a.input({kT, 2, 8}), {0, 2, 2, 6}, true, 0.5, kFast)};
       }},
      {"linear_cross_entropy", cross_entropy},
      {"linear",
       [](Arguments& a) {
         const at::Tensor x_TI = a.input({kT, kH});
         const ParamHandle weight_OI = a.parameter({kWidth, kH});
         return TensorList{linear(x_TI, weight_OI, a.parameter({kWidth}))};
       }},
      {"embedding",
       [](Arguments& a) {
         return TensorList{embedding(a.indices({0, 4, 4, 2}, {4}), a.parameter({5, kH}))};
       }},
      {"replace_rows",
       [](Arguments& a) {
         const at::Tensor x_TH = a.input({kT, kH});
         return TensorList{replace_rows(x_TH, a.indices({1, 4}, {2}), a.input({2, kH}))};
       }},
      {"add_rows",
       [](Arguments& a) {
         const at::Tensor x_TH = a.input({kT, kH});
         return TensorList{add_rows(x_TH, a.indices({1, 4}, {2}), a.input({2, kH}))};
       }},
      {"moe_layer", moe},
      {"grouped_linear",
       [](Arguments& a) {
         const at::Tensor rows_MI = a.input({kT, kH});
         const ParamHandle weight_EOI = a.parameter({2, kWidth, kH});
         return TensorList{
             grouped_linear(rows_MI, weight_EOI, a.indices({4, 1}, {2}), {4, 1}, kFast)};
       }},
      {"permute_rows",
       [](Arguments& a) {
         return TensorList{permute_rows(a.input({3, kH}), source_M(a), slot_TK(a))};
       }},
      {"unpermute_rows",
       [](Arguments& a) {
         return TensorList{unpermute_rows(a.input({5, kH}), source_M(a), slot_TK(a))};
       }},
      {"permute_weights",
       [](Arguments& a) {
         return TensorList{permute_weights(a.fp32({3, 2}), slot_TK(a), 5)};
       }},
      {"rms_norm",
       [](Arguments& a) {
         const at::Tensor x_TH = a.input({kT, kH});
         return TensorList{rms_norm(x_TH, a.parameter({kH}), 1e-6, kFast)};
       }},
      {"layer_norm",
       [](Arguments& a) {
         const at::Tensor x_TH = a.input({kT, kH});
         const ParamHandle weight_H = a.parameter({kH});
         return TensorList{layer_norm(x_TH, weight_H, a.parameter({kH}), 1e-6, kFast)};
       }},
      {"interpolate_positions", positions},
      {"mrope_tables", rope_tables},
      {"apply_rope", rope},
      {"route", routing},
      {"top_k_by_index",
       [](Arguments& a) {
         return TensorList{top_k_by_index(a.table({kT, kExperts}), kTopK, kFast)};
       }},
      {"gather_rows",
       [](Arguments& a) {
         return TensorList{gather_rows(a.input({3, kH}).detach(), source_M(a))};
       }},
      {"sum_rows",
       [](Arguments& a) {
         return TensorList{sum_rows(a.input({5, kH}).detach(), slot_TK(a))};
       }},
      {"scatter_weights",
       [](Arguments& a) {
         return TensorList{scatter_weights(a.table({3, 2}), slot_TK(a), 5)};
       }},
      {"collect_weights",
       [](Arguments& a) { return TensorList{collect_weights(a.table({5}), slot_TK(a))}; }},
      {"load_balancing_loss",
       [](Arguments& a) {
         const at::Tensor first_2E = a.fp32({2, kExperts});
         return TensorList{load_balancing_loss({first_2E, a.fp32({2, kExperts})},
                                               a.table({2, kExperts}), kT, true)};
       }},
  };
  static const std::map<std::string, Call> all = [] {
    std::map<std::string, Call> found = calls;
    found.merge(rank_ops({{0, 2, kT}, kT, kT, 11}));
    return found;
  }();
  return all;
}

// Functions of lists on the host, whose result is no tensor or lies on the CPU by contract.
const std::set<std::string> kHostFunctions = {"is_split", "mrope_positions", "position_taps",
                                              "vision_rope_tables"};

// Options of routers, checks and counts on the host, and collectives, which have no shape of their
// own: what travels is one of the tensors that dispatchers give them.
const std::set<std::string> kNoOps = {"add_sent",
                                      "all_to_all",
                                      "begin_all_gather",
                                      "begin_all_to_all",
                                      "begin_reduce_scatter",
                                      "check_choices",
                                      "expert_capacity",
                                      "meta_plan",
                                      "read_router_options",
                                      "router_option_schema",
                                      "routing_label",
                                      "sum_of",
                                      "validate_router_options"};

std::string text(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  return fmt::format("{} [{}]{}", c10::toString(tensor.scalar_type()),
                     fmt::join(tensor.sizes().begin(), tensor.sizes().end(), ", "),
                     tensor.requires_grad() ? " needs grad" : "");
}

// Results, and gradients of the arguments that have no sink, by the sum of all results.
std::vector<std::string> forms(const Call& call, at::Device device, at::ScalarType dtype,
                               bool sinks) {
  Arguments arguments(device, dtype, sinks);
  const TensorList results = call(arguments);
  std::vector<std::string> found;
  TensorList roots, seeds;
  for (const at::Tensor& result : results) {
    CHECK(result.device().type() == device.type());
    found.push_back("result " + text(result));
    if (!result.requires_grad()) continue;
    roots.push_back(result);
    seeds.push_back(at::ones_like(result));
  }
  if (roots.empty() || arguments.leaves().empty()) return found;
  for (const at::Tensor& gradient : torch::autograd::grad(roots, arguments.leaves(), seeds, false,
                                                          false, /*allow_unused=*/true)) {
    found.push_back("gradient " + text(gradient));
  }
  return found;
}

std::set<std::string> declared_functions() {
  std::set<std::string> names;
  const std::regex declaration(R"(KEYSEAT_API\s+[\w:<>]+\s+(\w+)\()");
  for (const auto& entry : std::filesystem::directory_iterator("framework/include/keyseat/nn")) {
    std::ifstream stream(entry.path());
    const std::string source(std::istreambuf_iterator<char>(stream), {});
    for (std::sregex_iterator match(source.begin(), source.end(), declaration), end; match != end;
         ++match) {
      names.insert((*match)[1]);
    }
  }
  return names;
}

}  // namespace

TEST_CASE("meta: the list of ops is complete") {
  std::set<std::string> listed = kHostFunctions;
  listed.insert(kNoOps.begin(), kNoOps.end());
  for (const auto& [name, call] : ops()) listed.insert(name);
  CHECK(declared_functions() == listed);
}

TEST_CASE("meta: every op has the shapes and dtypes of the CPU, forward and backward") {
  for (const auto& [name, call] : ops()) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      for (const bool sinks : {false, true}) {
        CAPTURE(name);
        CAPTURE(std::string(c10::toString(dtype)));
        CAPTURE(sinks);
        CHECK(forms(call, at::kMeta, dtype, sinks) == forms(call, at::kCPU, dtype, sinks));
      }
    }
  }
}

TEST_CASE("meta: on several ranks ops have the shapes of a rank, without a communicator") {
  for (const bool ring : {false, true}) {
    MeshDegrees degrees;
    degrees.tensor = degrees.context = 2;
    degrees.sequence_parallel = true;
    degrees.context_ring = ring;
    Problems problems;
    const Mesh mesh = Mesh::build(degrees, 4, 3, 4, problems);
    REQUIRE(problems.empty());
    // The second tensor rank has ids 6 to 10.
    const auto calls = rank_ops({{0, 5, 16}, 8, 4, 5}, &mesh);
    const std::map<std::string, std::vector<int64_t>> shapes = {
        {"enter_split", {8, kH}},     {"leave_split", {4, kH}},     {"own_key_heads", {8, 1, 8}},
        {"row_attention", {8, 4, 8}}, {"split_embedding", {4, kH}}, {"split_cross_entropy", {1}},
        {"split_logits", {3, 11}}};
    for (const auto& [name, call] : calls) {
      CAPTURE(name);
      for (const bool sinks : {false, true}) {
        Arguments arguments(at::kMeta, at::kFloat, sinks);
        const TensorList results = call(arguments);
        CHECK((results[0].sizes() == at::IntArrayRef(shapes.at(name))));
        if (name == "split_cross_entropy") CHECK(results[1].size(0) == 4);
        if (!results[0].requires_grad()) continue;
        results[0].backward(at::ones_like(results[0]));
        for (const at::Tensor& leaf : arguments.leaves())
          CHECK((leaf.grad().sizes() == leaf.sizes()));
      }
    }
  }
}
