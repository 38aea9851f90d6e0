// Small units out of plain functions, and parameter memory without a strategy: for tests only.
// Legend: T row tokens, P patches, H hidden, V vocabulary.
#pragma once

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "keyseat/chain.h"
#include "keyseat/executor.h"

namespace keyseat::testing {

using Forward = std::function<Tensors(const Params&, const Tensors&, StepContext&)>;

class FunctionUnit final : public Unit {
 public:
  FunctionUnit(UnitSpec spec, Forward forward)
      : Unit(std::move(spec)), function_(std::move(forward)) {}

 protected:
  Tensors forward_(const Params& params, const Tensors& inputs,
                   StepContext& context) const override {
    return function_(params, inputs, context);
  }
  Cost cost_(const WorkloadShape& shape) const override { return {shape.tokens, shape.tokens}; }

 private:
  Forward function_;
};

class FunctionBlock final : public Block {
 public:
  struct Part {
    UnitSpec spec;
    Forward forward;
  };
  explicit FunctionBlock(std::vector<Part> parts, InputSpec input = {},
                         std::vector<DerivedSpec> derived = {})
      : parts_(std::move(parts)), input_(std::move(input)), derived_(std::move(derived)) {}
  std::vector<std::unique_ptr<Unit>> units() override {
    std::vector<std::unique_ptr<Unit>> units;
    for (Part& part : parts_) {
      units.push_back(std::make_unique<FunctionUnit>(part.spec, part.forward));
    }
    return units;
  }
  std::vector<DerivedSpec> derived() override { return derived_; }
  InputSpec input_spec() const override { return input_; }

 private:
  std::vector<Part> parts_;
  InputSpec input_;
  std::vector<DerivedSpec> derived_;
};

inline NamedBlock block(const std::string& name, std::vector<FunctionBlock::Part> parts,
                        InputSpec input = {}, std::vector<DerivedSpec> derived = {}) {
  return {name,
          "block/" + name,
          std::make_shared<FunctionBlock>(std::move(parts), std::move(input), std::move(derived)),
          {}};
}

inline TensorSpec spec(const std::string& name, std::vector<Dim> dims,
                       std::optional<at::ScalarType> dtype = {}, std::string normaliser = "") {
  TensorSpec spec;
  spec.name = name;
  spec.dims = std::move(dims);
  spec.dtype = dtype;
  spec.differentiable = !dtype || c10::isFloatingType(*dtype);
  spec.normaliser = std::move(normaliser);
  return spec;
}

inline ParamSpec param(const std::string& name, std::vector<int64_t> shape, std::string tie = "") {
  ParamSpec spec;
  spec.name = name;
  spec.shape = std::move(shape);
  spec.tie = std::move(tie);
  return spec;
}

inline UnitSpec unit_spec(std::string name, std::vector<ParamSpec> params,
                          std::vector<TensorSpec> reads, std::vector<TensorSpec> writes,
                          std::string after = "", DimSymbol rows = DimSymbol::kT) {
  UnitSpec spec;
  spec.name = std::move(name);
  spec.params = std::move(params);
  spec.reads = std::move(reads);
  spec.writes = std::move(writes);
  spec.after = std::move(after);
  spec.rows = rows;
  return spec;
}

// Parameter memory of a chain: fp32 leaves by (seed, owner), sinks or none.
class TestParams final : public UnitEvents {
 public:
  TestParams(const Chain& chain, bool with_sinks, uint64_t seed = 1) : chain_(chain) {
    at::manual_seed(seed);
    std::vector<std::vector<c10::intrusive_ptr<ParamState>>> states(chain.size());
    for (int i = 0; i < chain.size(); ++i) {
      const ChainUnit& unit = chain.units()[i];
      const std::vector<ParamSpec>& specs = unit.unit->spec().params;
      std::vector<ParamHandle> handles;
      for (int j = 0; j < static_cast<int>(specs.size()); ++j) {
        auto state = c10::make_intrusive<ParamState>();
        const ParamRef owner = unit.owners[j];
        if (owner == ParamRef{i, j}) {
          state->value = at::randn(specs[j].shape).mul_(0.3);
          if (unit.trainable) state->value.set_requires_grad(true);
          if (unit.trainable && with_sinks) state->sink = at::zeros(specs[j].shape);
        } else {
          *state = *states[owner.unit][owner.param];
        }
        state->index = j;
        states[i].push_back(state);
        handles.emplace_back(state);
      }
      params_.push_back(std::make_unique<Params>(&specs, std::move(handles)));
    }
  }
  const Params& before_forward(int unit, bool) override {
    ++forwards;
    return *params_[unit];
  }
  void after_forward(int) override {}
  const Params& before_backward(int unit) override {
    ++backwards;
    return *params_[unit];
  }
  void after_backward(int) override {}

  const Params& of(int unit) const { return *params_[unit]; }
  // Gradients of all owned parameters: sinks, or what autograd left at the leaf.
  std::map<std::string, at::Tensor> gradients() const {
    std::map<std::string, at::Tensor> found;
    for (int i = 0; i < chain_.size(); ++i) {
      for (size_t j = 0; j < params_[i]->size(); ++j) {
        const ParamHandle& handle = params_[i]->at(j);
        const at::Tensor gradient = handle.sink().defined() ? handle.sink() : handle.value().grad();
        if (gradient.defined()) found[chain_.units()[i].param_names[j]] = gradient.clone();
      }
    }
    return found;
  }
  int forwards = 0, backwards = 0;

 private:
  const Chain& chain_;
  std::vector<std::unique_ptr<Params>> params_;
};

constexpr int64_t kHidden = 8, kVocabulary = 11, kPatch = 6;

inline at::Tensor linear(const at::Tensor& x, const ParamHandle& weight) {
  return x.matmul(weight.value().t());
}

// A row of T tokens, P patches of which each gives one visual token at the first P rows.
inline Row make_row(int64_t tokens, int64_t patches, uint64_t seed) {
  at::manual_seed(seed);
  Row row;
  row.facts.counts.tokens = tokens;
  row.facts.counts.patches = row.facts.counts.visual_tokens = patches;
  row.facts.sample_ids = {static_cast<int64_t>(seed)};
  row.tensors.set("tokens", at::randint(kVocabulary, {tokens}, at::kLong));
  row.tensors.set("labels", at::randint(kVocabulary, {tokens}, at::kLong));
  row.tensors.set("patches", at::randn({patches, kPatch}));
  row.tensors.set("visual_dst", at::arange(patches, at::kLong));
  return row;
}

// vision (embed, layer with a tap) -> projector (deepstack merger anchored to the tap, final
// merger)
// -> decoder (embed, two layers, tied head). `kept_calls` counts what ctx.keep of layer 0 runs.
inline std::vector<NamedBlock> vision_language_blocks(int* kept_calls = nullptr) {
  const Dim T = DimSymbol::kT, P = DimSymbol::kP, H = kHidden;
  using Part = FunctionBlock::Part;
  const UnitSpec embed = unit_spec("embed", {param("w", {kHidden, kPatch})},
                                   {spec("patches", {P, Dim(kPatch)}, at::kFloat)},
                                   {spec("vision.hidden", {P, H})}, "", DimSymbol::kP);
  const UnitSpec layer =
      unit_spec("layer", {param("w", {kHidden, kHidden})}, {spec("vision.hidden", {P, H})},
                {spec("vision.hidden", {P, H}), spec("vision.tap.0", {P, H})}, "", DimSymbol::kP);
  NamedBlock vision = block(
      "vision", {Part{embed,
                      [](const Params& p, const Tensors& in, StepContext&) {
                        return Tensors{{"vision.hidden", linear(in.at("patches"), p.at("w"))}};
                      }},
                 Part{layer, [](const Params& p, const Tensors& in, StepContext&) {
                        const at::Tensor x_PH = in.at("vision.hidden");
                        const at::Tensor y_PH = x_PH + linear(x_PH, p.at("w")).tanh();
                        return Tensors{{"vision.hidden", y_PH}, {"vision.tap.0", y_PH.mul(2)}};
                      }}});

  const UnitSpec final_merger =
      unit_spec("final", {param("w", {kHidden, kHidden})}, {spec("vision.hidden", {P, H})},
                {spec("vision.merged", {P, H})}, "", DimSymbol::kP);
  const UnitSpec deepstack =
      unit_spec("deepstack.0", {param("w", {kHidden, kHidden})}, {spec("vision.tap.0", {P, H})},
                {spec("deepstack.0", {P, H})}, "vision.tap.0", DimSymbol::kP);
  NamedBlock projector = block(
      "projector",
      {Part{final_merger,
            [](const Params& p, const Tensors& in, StepContext&) {
              return Tensors{{"vision.merged", linear(in.at("vision.hidden"), p.at("w"))}};
            }},
       Part{deepstack, [](const Params& p, const Tensors& in, StepContext&) {
              return Tensors{{"deepstack.0", linear(in.at("vision.tap.0"), p.at("w")).relu()}};
            }}});

  const UnitSpec tokens =
      unit_spec("embed", {param("table", {kVocabulary, kHidden}, "embedding")},
                {spec("tokens", {T}, at::kLong), spec("visual_dst", {DimSymbol::kV}, at::kLong),
                 spec("vision.merged", {P, H})},
                {spec("hidden", {T, H})});
  const UnitSpec layer_0 = unit_spec("layers.0", {param("w", {kHidden, kHidden})},
                                     {spec("hidden", {T, H}), spec("deepstack.0", {P, H}),
                                      spec("visual_dst", {DimSymbol::kV}, at::kLong)},
                                     {spec("hidden", {T, H})});
  const UnitSpec layer_1 =
      unit_spec("layers.1", {param("w", {kHidden, kHidden})}, {spec("hidden", {T, H})},
                {spec("hidden", {T, H}), spec("router.stats.1", {Dim(2), H}, at::kFloat)});
  const UnitSpec head = unit_spec(
      "head", {param("table", {kVocabulary, kHidden}, "embedding")},
      {spec("hidden", {T, H}), spec("labels", {T}, at::kLong),
       spec("router.stats.1", {Dim(2), H}, at::kFloat)},
      {spec("loss.ce", {Dim(1)}, at::kFloat, "supervised"),
       spec("loss.aux", {Dim(1)}, at::kFloat, "tokens"), spec("logits", {T, Dim(kVocabulary)})});
  NamedBlock decoder = block(
      "decoder",
      {Part{tokens,
            [](const Params& p, const Tensors& in, StepContext&) {
              const at::Tensor x_TH = p.at("table").value().index_select(0, in.at("tokens"));
              return Tensors{
                  {"hidden", x_TH.index_add(0, in.at("visual_dst"), in.at("vision.merged"))}};
            }},
       Part{layer_0,
            [kept_calls](const Params& p, const Tensors& in, StepContext& context) {
              const double scale = context.keep<double>("scale", [kept_calls] {
                if (kept_calls != nullptr) ++*kept_calls;
                return 0.5;
              });
              const ParamHandle w = p.at("w");
              const at::Tensor y_TH = context.region(
                  Region::kMlp,
                  [w, scale](const std::vector<at::Tensor>& x) {
                    return std::vector<at::Tensor>{x[0] + linear(x[0], w).tanh() * scale};
                  },
                  {in.at("hidden")})[0];
              return Tensors{
                  {"hidden", y_TH.index_add(0, in.at("visual_dst"), in.at("deepstack.0"))}};
            }},
       Part{layer_1,
            [](const Params& p, const Tensors& in, StepContext&) {
              const at::Tensor x_TH = in.at("hidden");
              const at::Tensor y_TH = linear(x_TH, p.at("w")).sigmoid();
              const at::Tensor stats_2H = at::stack({y_TH.sum(0), y_TH.detach().sum(0)});
              return Tensors{{"hidden", x_TH + y_TH}, {"router.stats.1", stats_2H}};
            }},
       Part{head, [](const Params& p, const Tensors& in, StepContext&) {
              const at::Tensor logits_TV = linear(in.at("hidden"), p.at("table"));
              return Tensors{{"loss.ce", at::cross_entropy_loss(logits_TV, in.at("labels"), {},
                                                                /*reduction=sum*/ 2)
                                             .view({1})},
                             {"loss.aux", in.at("router.stats.1")[0].pow(2).sum().view({1})},
                             {"logits", logits_TV}};
            }}});
  return {vision, projector, decoder};
}

inline std::map<std::string, LossTerm> loss_terms() {
  return {{"ce", {1.0, 16.0}}, {"aux", {0.01, 16.0}}};
}

// The gradients by one ordinary autograd graph over the whole chain, summed over the rows.
inline std::map<std::string, at::Tensor> plain_gradients(const Chain& chain, uint64_t seed,
                                                         std::vector<Row> rows) {
  const TestParams params(chain, /*with_sinks=*/false, seed);
  for (Row& row : rows) {
    Tensors named = row.tensors;
    std::vector<std::vector<StepContext::Kept>> kept(chain.size());
    at::Tensor loss = at::zeros({1});
    for (int i = 0; i < chain.size(); ++i) {
      const UnitSpec& spec = chain.units()[i].unit->spec();
      StepContext::State facts;
      facts.unit = chain.units()[i].name;
      facts.row = &row.facts;
      facts.kept = &kept[i];
      facts.params = &params.of(i);
      StepContext context(facts);
      Tensors inputs;
      for (const TensorSpec& read : spec.reads) inputs.set(read.name, named.at(read.name));
      const Tensors outputs = chain.units()[i].unit->forward(params.of(i), inputs, context);
      for (const auto& [name, tensor] : outputs) {
        named.set(name, tensor);
        if (!name.starts_with("loss.")) continue;
        const LossTerm term = loss_terms().at(name.substr(5));
        loss = loss + tensor * (term.weight / term.normaliser);
      }
    }
    if (loss.requires_grad()) loss.backward();
  }
  return params.gradients();
}

}  // namespace keyseat::testing
