// Layouts of rows over context and tensor ranks: shares and conversions on ranks as threads, and a
// block that declares no layout among those that do. Legend: T row tokens, V visual tokens, P
// patches, H hidden.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

#include "keyseat/nn/attention.h"
#include "keyseat/row_share.h"
#include "runtime/mesh_fixture.h"
#include "tests/ranks/layout_run.h"
#include "tests/ranks/thread_comm.h"
#include "train/step_counts.h"
#include "train/test_units.h"

namespace keyseat::test::row_layouts {
namespace {

using testing::mesh_of;
using testing::RowGroup;
using testing::Values;

const std::vector<RowGroup> kGroups{{1, 2, true}, {2, 1, false}, {2, 2, false},
                                    {2, 2, true}, {4, 1, false}, {1, 4, true}};

Row packed_row(const Chain& chain, const std::vector<SampleShape>& shapes) {
  std::vector<Sample> samples;
  for (const SampleShape& shape : shapes) {
    const auto id = static_cast<int64_t>(samples.size());
    samples.push_back(testing::small_sample(id, shape.text, shape.image, chain.input()));
  }
  data::PackOptions options;
  options.input = chain.input();
  std::vector<const Sample*> pointers;
  for (const Sample& sample : samples) pointers.push_back(&sample);
  return data::pack(pointers, options);
}

const std::vector<std::vector<SampleShape>> kShapes{
    {}, {{1, false}}, {{3, true}, {4, false}}, {{1, true}, {2, true}, {6, false}, {5, true}}};

using testing::FunctionBlock;

// Units that declare no layout, and whose rows depend on other rows: x + tanh(W f(x) + b).
using Mix = std::function<at::Tensor(const at::Tensor& x, StepContext& context)>;

FunctionBlock::Part plain_unit(const TensorSpec& tensor, DimSymbol rows, const std::string& after,
                               const Mix& mix) {
  const int64_t width = tensor.dims[1].size;
  std::vector<ParamSpec> params{testing::param("w", {width, width}), testing::param("b", {width})};
  params[1].init = {Init::Kind::kZeros, 0};
  const std::string& name = tensor.name;
  return {testing::unit_spec(name, std::move(params), {tensor}, {tensor}, after, rows),
          [name, mix](const Params& p, const Tensors& in, StepContext& context) {
            const at::Tensor x = in.at(name);
            const at::Tensor mixed = testing::linear(mix(x, context), p.at("w"));
            return Tensors{{name, x + (mixed + p.at("b").value()).tanh()}};
          }};
}

at::Tensor sum_of_rows(const at::Tensor& x, StepContext&) { return x.sum(0, true); }

at::Tensor attend(const at::Tensor& x_TH, StepContext& context) {
  const at::Tensor x_T1H = x_TH.unsqueeze(1);
  return nn::varlen_attention(x_T1H, x_T1H, x_T1H, context.row().cu_seqlens, true, 1.0,
                              context.kernels())
      .squeeze(1);
}

// `met`: the rows that the parameters are said to meet.
LayoutModel model_with_plain_block(bool moe, Layout met = Layout::kWhole) {
  LayoutModel model;
  model.blocks = [moe, met] {
    const Values dense{{"num_experts", int64_t{0}}};
    std::vector<NamedBlock> blocks = testing::small_blocks(moe ? Values() : dense);
    const TensorSpec patches = testing::spec("vision.hidden", {DimSymbol::kP, Dim(16)});
    const TensorSpec merged = testing::spec("vision.merged", {DimSymbol::kV, Dim(20)});
    const TensorSpec hidden = testing::spec("hidden", {DimSymbol::kT, Dim(20)});
    std::vector<FunctionBlock::Part> parts{plain_unit(merged, DimSymbol::kV, "", sum_of_rows)};
    // Behind the first layer: an anchor is a name that one unit writes.
    if (moe) parts.push_back(plain_unit(hidden, DimSymbol::kT, "router.stats.0", attend));
    for (FunctionBlock::Part& part : parts) part.spec.layout = met;
    blocks.insert(blocks.begin() + 2, testing::block("plain", std::move(parts)));
    blocks.insert(blocks.begin() + 1,
                  testing::block("tower", {plain_unit(patches, DimSymbol::kP, "", sum_of_rows)}));
    return blocks;
  };
  return model;
}

std::vector<std::string> conversions_of(const Chain& chain) {
  std::vector<std::string> found;
  for (const ChainUnit& unit : chain.units()) {
    if (unit.unit->spec().name.starts_with("convert.")) found.push_back(unit.name);
  }
  return found;
}

struct Run {
  const char* name;
  int64_t world;
  Values options;
  const char* recompute = "none";
  Values recompute_options = {};
  bool moe = true;
};

LayoutChoice choice_of(const Run& run) {
  LayoutChoice choice;
  choice.world = run.world;
  choice.strategy = "three_d";
  choice.strategy_options = run.options;
  choice.recompute = run.recompute;
  choice.recompute_options = run.recompute_options;
  return choice;
}

}  // namespace

TEST_CASE("row layouts: the shares of all ranks make the whole again, on each of them") {
  const Chain chain = testing::chain_of(testing::small_blocks());
  for (const RowGroup& group : kGroups) {
    for (const auto& shapes : kShapes) {
      CAPTURE(group.context);
      CAPTURE(group.tensor);
      CAPTURE(shapes.size());
      ThreadWorldOptions options;
      options.world = group.context * group.tensor;
      ThreadWorld(options).run([&](int64_t rank, ThreadComm& comm) {
        const Mesh mesh = mesh_of(group, rank);
        const Row packed = packed_row(chain, shapes);
        const RowFacts facts = share_row(packed, mesh).facts;
        const auto check = [&](Layout layout, DimSymbol rows, int64_t size) {
          for (const at::ScalarType dtype : {at::kFloat, at::kLong}) {
            const at::Tensor whole = at::arange(3 * size, dtype).view({size, 3});
            const at::Tensor turned = whole.t().contiguous();
            const at::Tensor share = own_share(whole, layout, rows, 0, facts, mesh);
            CHECK(at::equal(whole_of(share, layout, rows, 0, facts, mesh, comm), whole));
            const at::Tensor column_share = own_share(turned, layout, rows, 1, facts, mesh);
            CHECK(at::equal(whole_of(column_share, layout, rows, 1, facts, mesh, comm), turned));
          }
        };
        check(Layout::kRows, DimSymbol::kT, facts.share.row_tokens);
        check(Layout::kContextRows, DimSymbol::kT, facts.share.row_tokens);
        check(Layout::kRows, DimSymbol::kV, packed.facts.counts.visual_tokens);
        check(Layout::kImages, DimSymbol::kV, packed.facts.counts.visual_tokens);
        check(Layout::kImages, DimSymbol::kP, packed.facts.counts.patches);
        check(Layout::kImages, DimSymbol::kN, packed.facts.counts.images);
        check(Layout::kWhole, DimSymbol::kT, facts.share.row_tokens);
      });
    }
  }
}

TEST_CASE("row layouts: where ranks of one data rank read different rows, all are told") {
  const Chain chain = testing::chain_of(testing::small_blocks());
  constexpr int64_t kWorld = 4;
  const auto count = [&](const std::vector<int64_t>& text) {  // of the sample, by rank
    ThreadWorld({.world = kWorld}).run([&](int64_t rank, ThreadComm& comm) {
      MeshDegrees degrees;
      degrees.tensor = degrees.shard = 2;
      Problems problems;
      const Mesh mesh = Mesh::build(degrees, kWorld, rank, kWorld, problems);
      std::vector<Row> rows;
      rows.push_back(packed_row(chain, {{text[static_cast<size_t>(rank)], false}}));
      const auto gather = [&] { train::gather_counts(rows, comm, mesh); };
      if (text[2] == text[3]) {
        CHECK_NOTHROW(gather());
      } else {
        CHECK_THROWS_WITH_AS(gather(), doctest::Contains("ranks 2 and 3 work on the same rows"),
                             Error);
      }
    });
  };
  count({4, 4, 9, 9});
  count({4, 4, 9, 8});
}

TEST_CASE("row layouts: conversions have shapes on meta tensors") {
  const Chain chain = testing::chain_of(testing::small_blocks(), {}, mesh_of({2, 2, true}, 3));
  const Mesh mesh = mesh_of({2, 2, true}, 3);
  const Row row = share_row(packed_row(chain, kShapes.back()), mesh);
  const auto comm = testing::make_plugin<Comm>("self");
  for (const ChainUnit& unit : chain.units()) {
    if (!unit.unit->spec().name.starts_with("convert.")) continue;
    StepContext::State state;
    state.unit = unit.name;
    state.row = &row.facts;
    state.mesh = &mesh;
    state.comm = comm.get();
    StepContext context(state);
    const std::string& name = unit.unit->spec().reads[0].name;
    const at::Tensor images_VH =
        at::empty({row.facts.counts.visual_tokens, 20}, at::TensorOptions().device(at::kMeta))
            .set_requires_grad(true);
    const at::Tensor rows_VH = unit.unit->forward({}, {{name, images_VH}}, context).at(name);
    CHECK(rows_VH.sizes() ==
          at::IntArrayRef{static_cast<int64_t>(row.facts.share.own_visual.size()), 20});
    rows_VH.sum().backward();
    CHECK(images_VH.grad().sizes() == images_VH.sizes());
  }
}

TEST_CASE("row layouts: the small model converts what goes from images to rows") {
  const auto conversions = [](const RowGroup& group) {
    return conversions_of(testing::chain_of(testing::small_blocks(), {}, mesh_of(group, 0)));
  };
  const std::vector<std::string> all{"projector.convert.deepstack.0",
                                     "projector.convert.deepstack.1",
                                     "projector.convert.vision.merged"};
  CHECK(conversions({1, 1, false}).empty());
  CHECK(conversions({1, 2, false}).empty());
  CHECK(conversions({1, 2, true}) == all);
  CHECK(conversions({2, 1, false}) == all);
  CHECK(conversions({2, 2, true}) == all);
}

TEST_CASE("row layouts: a block without layouts trains the same, its gradients counted once") {
  const auto with_plain = [](const RowGroup& group) {
    return conversions_of(
        testing::chain_of(model_with_plain_block(true).blocks(), {}, mesh_of(group, 0)));
  };
  CHECK(with_plain({2, 1, false}) ==
        std::vector<std::string>{"projector.convert.deepstack.0", "vision.convert.vision.hidden",
                                 "projector.convert.deepstack.1", "tower.convert.vision.hidden",
                                 "projector.convert.vision.merged", "plain.convert.vision.merged",
                                 "decoder.convert.hidden", "plain.convert.hidden"});

  const Values tensor{{"tensor", int64_t{2}}}, context{{"context", int64_t{2}}};
  const Values pipeline{{"pipeline", int64_t{2}}};
  // Regions with collectives inside, which run again with them.
  const Values regions{{"regions", std::vector<std::string>{"attn", "mlp", "moe", "vision_attn",
                                                            "vision_mlp", "projector"}}};
  std::map<bool, LayoutResult> oracles;
  for (const Run& layout : {Run{"tensor 2", 2, tensor}, Run{"context 2", 2, context},
                            Run{"context 2 x tensor 2", 4, testing::with(tensor, context)},
                            Run{"pipeline 2 x tensor 2", 4, testing::with(tensor, pipeline)},
                            Run{"context 2, units run again", 2, context, "full"},
                            Run{"context 2 x tensor 2, regions run again", 4,
                                testing::with(tensor, context), "selective", regions},
                            Run{"tensor 2 without slices of rows",
                                2,
                                testing::with(tensor, {{"sequence_parallel", false}}),
                                "none",
                                {},
                                false}}) {
    CAPTURE(layout.name);
    const LayoutModel model = model_with_plain_block(layout.moe);
    const auto [oracle, fresh] = oracles.try_emplace(layout.moe);
    if (fresh) oracle->second = run_layout({}, model, mixed_step());
    const LayoutDifference difference =
        compare_layouts(run_layout(choice_of(layout), model, mixed_step()), oracle->second);
    CHECK_MESSAGE(difference.within_limits(), difference.text());
  }
  // Said to meet own rows, they count on both ranks: twice as much.
  const LayoutDifference twice =
      compare_layouts(run_layout(choice_of({"tensor 2", 2, tensor}),
                                 model_with_plain_block(true, Layout::kRows), mixed_step()),
                      oracles.at(true));
  CHECK_MESSAGE(twice.gradient == doctest::Approx(1).epsilon(1e-3), twice.text());
  CHECK(twice.worst_gradient.starts_with("plain."));
}

TEST_CASE("row layouts: a block without layouts that reads the batch is refused") {
  LayoutModel model;
  model.blocks = [] {
    std::vector<NamedBlock> blocks = testing::small_blocks();
    const TensorSpec hidden = testing::spec("hidden", {DimSymbol::kT, Dim(20)});
    blocks.push_back(testing::block(
        "plain",
        {{testing::unit_spec("u", {}, {hidden, testing::spec("tokens", {DimSymbol::kT}, at::kLong)},
                             {hidden}, "router.stats.0"),
          nullptr}}));
    return blocks;
  };
  LayoutChoice choice;
  choice.world = 2;
  choice.strategy = "three_d";
  choice.strategy_options = {{"context", int64_t{2}}};
  const Problems problems = layout_problems(choice, model);
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].code == Code::kC4Combination);
  CHECK(problems[0].text().find("unit plain.u (block/plain) reads the whole of \"tokens\"") !=
        std::string::npos);
}

}  // namespace keyseat::test::row_layouts
