#include "keyseat/executor.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

#include "sdk/conformance/replay_units.h"
#include "train/test_units.h"

using namespace keyseat;
using namespace keyseat::testing;

namespace {

constexpr uint64_t kSeed = 7;
using Gradients = std::map<std::string, at::Tensor>;
using Part = FunctionBlock::Part;

Chain chain_of(std::vector<NamedBlock> blocks, std::vector<std::string> freeze = {}) {
  Problems problems;
  Chain chain = Chain::build(std::move(blocks), freeze, problems);
  INFO(problems_text(problems));
  REQUIRE(problems.empty());
  return chain;
}

ExecutorServices services(UnitEvents& events, Recompute* recompute = nullptr) {
  ExecutorServices services;
  services.events = &events;
  services.recompute = recompute;
  return services;
}

// Gradients of the rows, one after another, through the executor.
Gradients run(const Chain& chain, std::vector<Row> rows, bool with_sinks = true,
              Recompute* recompute = nullptr) {
  TestParams params(chain, with_sinks, kSeed);
  Executor executor(chain, services(params, recompute));
  executor.begin_step(0, loss_terms());
  for (size_t i = 0; i < rows.size(); ++i) {
    auto store = executor.begin(std::move(rows[i]), static_cast<int64_t>(i), true);
    executor.forward(*store, 0, chain.size());
    executor.backward(*store, 0, chain.size());
  }
  return params.gradients();
}

void check_equal(const Gradients& found, const Gradients& expected, bool bitwise) {
  CHECK(found.size() == expected.size());
  for (const auto& [name, gradient] : expected) {
    INFO(name);
    REQUIRE(found.contains(name));
    CHECK((bitwise ? at::equal(found.at(name), gradient)
                   : at::allclose(found.at(name), gradient, 1e-5, 1e-6)));
  }
}

std::vector<Row> rows() { return {make_row(9, 3, 1), make_row(5, 0, 2), make_row(7, 7, 3)}; }

}  // namespace

TEST_CASE("executor: gradients equal those of one ordinary graph, with and without sinks") {
  const Chain chain = chain_of(vision_language_blocks());
  const Gradients expected = plain_gradients(chain, kSeed, {make_row(9, 3, 1)});
  CHECK(expected.size() == 8);  // the tied table under both of its names
  check_equal(run(chain, {make_row(9, 3, 1)}), expected, false);
  check_equal(run(chain, {make_row(9, 3, 1)}, false), expected, false);
}

TEST_CASE("executor: sinks add up over micro-batches, also text-only and empty ones") {
  const Chain chain = chain_of(vision_language_blocks());
  check_equal(run(chain, rows()), plain_gradients(chain, kSeed, rows()), false);
  const Gradients empty = run(chain, {make_row(0, 0, 1)});
  CHECK(empty.at("decoder.embed.table").abs().sum().item<float>() == 0);
  CHECK(empty.at("vision.embed.w").abs().sum().item<float>() == 0);
}

TEST_CASE("executor: what is frozen gets no backward work and no gradient") {
  for (const std::vector<std::string>& freeze : {std::vector<std::string>{"vision"},
                                                 {"decoder"},
                                                 {"vision", "decoder"},
                                                 {"vision", "projector", "decoder"}}) {
    const Chain chain = chain_of(vision_language_blocks(), freeze);
    const Gradients all =
        plain_gradients(chain_of(vision_language_blocks()), kSeed, {make_row(9, 3, 1)});
    TestParams params(chain, true, kSeed);
    Executor executor(chain, services(params));
    executor.begin_step(0, loss_terms());
    auto store = executor.begin(make_row(9, 3, 1), 0, true);
    executor.forward(*store, 0, chain.size());
    executor.backward(*store, 0, chain.size());
    int expected_backwards = 0;
    for (const ChainUnit& unit : chain.units()) expected_backwards += unit.runs_backward;
    CHECK(params.backwards == expected_backwards);
    for (const auto& [name, gradient] : params.gradients()) {
      CHECK(at::allclose(gradient, all.at(name), 1e-5, 1e-6));
      for (const std::string& block : freeze) CHECK_FALSE(name.starts_with(block));
    }
  }
}

TEST_CASE("executor: rows in flight in 1F1B order give the same gradients") {
  const Chain chain = chain_of(vision_language_blocks());
  TestParams params(chain, true, kSeed);
  Executor executor(chain, services(params));
  executor.begin_step(0, loss_terms());
  std::vector<std::unique_ptr<Store>> stores;
  for (Row& row : rows()) {
    stores.push_back(executor.begin(std::move(row), int64_t(stores.size()), true));
  }
  executor.forward(*stores[0], 0, chain.size());
  executor.forward(*stores[1], 0, chain.size());
  executor.backward(*stores[0], 0, chain.size());
  executor.forward(*stores[2], 0, chain.size());
  executor.backward(*stores[1], 0, chain.size());
  executor.backward(*stores[2], 0, chain.size());
  check_equal(params.gradients(), run(chain, rows()), true);
}

TEST_CASE("executor: units run again for backward, but keep decides once") {
  int calls = 0;
  const Chain chain = chain_of(vision_language_blocks(&calls));
  conformance::ReplayUnits replay;
  const Gradients replayed = run(chain, rows(), true, &replay);
  CHECK(calls == 3);
  check_equal(replayed, run(chain, rows()), true);
}

TEST_CASE("executor: the chain cut anywhere passes only live tensors") {
  const Chain chain = chain_of(vision_language_blocks());
  const Gradients whole = run(chain, {make_row(9, 3, 1)});
  for (int cut = 1; cut < chain.size(); ++cut) {
    TestParams params(chain, true, kSeed);
    Executor executor(chain, services(params));
    executor.begin_step(0, loss_terms());
    auto first = executor.begin(make_row(9, 3, 1), 0, true);
    auto second = executor.begin(make_row(9, 3, 1), 0, true);
    executor.forward(*first, 0, cut);
    for (int version : chain.live_at(cut)) {
      executor.put(*second, version, executor.take(*first, version).clone());
    }
    executor.forward(*second, cut, chain.size());
    executor.backward(*second, cut, chain.size());
    for (int version : chain.live_at(cut)) {
      if (!chain.versions()[version].needs_grad) continue;
      executor.add_gradient(*first, version, executor.take_gradient(*second, version).clone());
    }
    executor.backward(*first, 0, cut);
    check_equal(params.gradients(), whole, true);
  }
}

TEST_CASE("executor: a version with three readers sums in fp32") {
  std::vector<Part> parts;
  parts.push_back({unit_spec("source", {param("w", {1, kPatch})},
                             {spec("patches", {DimSymbol::kP, Dim(kPatch)}, at::kFloat)},
                             {spec("x", {DimSymbol::kP, Dim(1)}, at::kBFloat16)}),
                   [](const Params& p, const Tensors& in, StepContext&) {
                     return Tensors{{"x", linear(in.at("patches"), p.at("w")).to(at::kBFloat16)}};
                   }});
  // 1 + 2^-8 + 2^-8 is exact in fp32; bf16 sums would lose both small terms.
  const double factors[] = {1.0, 1.0 / 256, 1.0 / 256};
  for (int i = 0; i < 3; ++i) {
    const std::string loss = "loss." + std::to_string(i);
    parts.push_back(
        {unit_spec("reader" + std::to_string(i), {},
                   {spec("x", {DimSymbol::kP, Dim(1)}, at::kBFloat16)},
                   {spec(loss, {Dim(1)}, at::kFloat, "one")}),
         [loss, factor = factors[i]](const Params&, const Tensors& in, StepContext&) {
           return Tensors{{loss, in.at("x").to(at::kFloat).mul(factor).sum().view({1})}};
         }});
  }
  const Chain chain = chain_of({block("b", std::move(parts))});
  TestParams params(chain, true, kSeed);
  Executor executor(chain, services(params));
  executor.begin_step(0, {{"0", {}}, {"1", {}}, {"2", {}}});
  Row row = make_row(1, 1, 1);
  row.tensors.set("patches", at::ones({1, kPatch}));
  auto store = executor.begin(std::move(row), 0, true);
  executor.forward(*store, 0, chain.size());
  executor.backward(*store, 0, chain.size());
  CHECK(params.gradients().at("b.source.w")[0][0].item<double>() == 1.0 + 2.0 / 256);
}

TEST_CASE("executor: eval keeps logits and losses and needs no loss terms") {
  const Chain chain = chain_of(vision_language_blocks());
  TestParams params(chain, true, kSeed);
  Executor executor(chain, services(params));
  executor.begin_step(0, {});
  auto store = executor.begin(make_row(9, 3, 1), 0, false);
  executor.forward(*store, 0, chain.size());
  CHECK(executor.tensor(*store, "logits").size(0) == 9);
  CHECK_FALSE(executor.tensor(*store, "logits").requires_grad());
  CHECK_FALSE(executor.tensor(*store, "hidden").defined());
  CHECK_FALSE(executor.tensor(*store, "vision.merged").defined());
  CHECK(executor.losses().at("ce") ==
        doctest::Approx(executor.tensor(*store, "loss.ce").item<double>()));
  CHECK(executor.router_stats().at("1").sizes() == at::IntArrayRef({2, kHidden}));
  CHECK_THROWS_AS(executor.begin(make_row(9, 3, 1), 0, true), Error);
  CHECK_THROWS_AS(executor.backward(*store, 0, chain.size()), Error);
}

TEST_CASE("executor: broken rules name the unit and the plugin") {
  const Dim P = DimSymbol::kP, D = kPatch;
  const auto failure = [&](Forward forward, std::vector<ParamSpec> weights = {}) {
    const UnitSpec unit = unit_spec("u", std::move(weights), {spec("patches", {P, D}, at::kFloat)},
                                    {spec("x", {P, D}, at::kFloat)});
    const Chain chain = chain_of({block("b", {{unit, std::move(forward)}})});
    TestParams params(chain, true, kSeed);
    Executor executor(chain, services(params));
    executor.begin_step(0, {});
    auto store = executor.begin(make_row(4, 4, 1), 0, true);
    try {
      executor.forward(*store, 0, 1);
    } catch (const Error& error) {
      CHECK(error.problems().front().code == Code::kR4Contract);
      return problems_text(error.problems());
    }
    return std::string("no error");
  };
  const auto has = [](const std::string& text, const char* part) {
    INFO(text);
    return text.find("b.u") != std::string::npos && text.find(part) != std::string::npos;
  };
  CHECK(has(failure([](const Params&, const Tensors& in, StepContext&) {
              return Tensors{{"x", in.at("patches").view({4, kPatch})}};
            }),
            "view"));
  CHECK(
      has(failure([](const Params&, const Tensors&, StepContext&) { return Tensors{}; }), "\"x\""));
  CHECK(has(failure(
                [](const Params& p, const Tensors&, StepContext&) {
                  return Tensors{{"x", p.at("w").value().view({4, kPatch})}};
                },
                {param("w", {4, kPatch})}),
            "its parameter \"w\""));
  CHECK(has(failure([](const Params&, const Tensors& in, StepContext&) {
              return Tensors{{"x", in.at("patches").matmul(at::ones({3, 3}))}};
            }),
            "block/b) failed in forward"));
  CHECK(has(failure(
                [](const Params& p, const Tensors& in, StepContext& context) {
                  const at::Tensor outside = p.at("w").value() * in.at("patches");
                  const at::Tensor input = in.at("patches").clone().requires_grad_();
                  return Tensors{{"x", context.region(Region::kMlp,
                                                      [&](const std::vector<at::Tensor>&) {
                                                        return std::vector<at::Tensor>{input *
                                                                                       outside};
                                                      },
                                                      {outside})[0]}};
                },
                {param("w", {4, kPatch})}),
            "region mlp"));
  CHECK(has(failure([](const Params&, const Tensors& in, StepContext& context) {
              context.keep<int>("k", [] { return 1; });
              context.keep<int>("k", [] { return 2; });
              return Tensors{{"x", in.at("patches") + 1}};
            }),
            "is used twice"));
}

TEST_CASE("executor: parameters poisoned outside of their window change nothing") {
  // Values are readable only between before_* and after_*: what a graph saved is the same storage.
  class Poisoning final : public UnitEvents {
   public:
    Poisoning(TestParams& params, const Chain& chain) : params_(params) {
      for (int i = 0; i < chain.size(); ++i) hide(i);
    }
    const Params& before_forward(int unit, bool training) override {
      show(unit);
      return params_.before_forward(unit, training);
    }
    void after_forward(int unit) override { hide(unit); }
    const Params& before_backward(int unit) override {
      show(unit);
      return params_.before_backward(unit);
    }
    void after_backward(int unit) override { hide(unit); }

   private:
    // Below autograd, as a strategy swaps memory: no version counts. A tied value is one memory.
    void show(int unit) {
      for (size_t i = 0; i < params_.of(unit).size(); ++i) {
        const at::Tensor value = params_.of(unit).at(i).value().detach();
        const at::Tensor& original = originals_.at(value.data_ptr());
        std::memcpy(value.data_ptr(), original.data_ptr(), value.nbytes());
      }
    }
    void hide(int unit) {
      for (size_t i = 0; i < params_.of(unit).size(); ++i) {
        const at::Tensor value = params_.of(unit).at(i).value().detach();
        originals_.try_emplace(value.data_ptr(), value.clone());
        const at::Tensor poison = at::full(value.sizes(), NAN);
        std::memcpy(value.data_ptr(), poison.data_ptr(), value.nbytes());
      }
    }
    TestParams& params_;
    std::map<void*, at::Tensor> originals_;
  };
  const Chain chain = chain_of(vision_language_blocks());
  TestParams params(chain, true, kSeed);
  Poisoning poisoning(params, chain);
  Executor executor(chain, services(poisoning));
  executor.begin_step(0, loss_terms());
  auto store = executor.begin(make_row(9, 3, 1), 0, true);
  executor.forward(*store, 0, chain.size());
  executor.backward(*store, 0, chain.size());
  check_equal(params.gradients(), run(chain, {make_row(9, 3, 1)}), true);
}
