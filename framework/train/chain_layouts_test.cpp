// Conversions between layouts in a chain. Legend: T row tokens, V visual tokens.
#include <doctest/doctest.h>

#include "train/conversion_unit.h"
#include "train/test_units.h"

namespace keyseat::chain_layouts_test {
namespace {

using namespace keyseat::testing;
using Part = FunctionBlock::Part;

Mesh mesh_of(int64_t context, int64_t tensor, bool sequence_parallel) {
  MeshDegrees degrees;
  degrees.context = context;
  degrees.tensor = tensor;
  degrees.sequence_parallel = sequence_parallel;
  Problems problems;
  Mesh mesh = Mesh::build(degrees, context * tensor, 0, context * tensor, problems);
  REQUIRE(problems_text(problems) == "");
  return mesh;
}

TensorSpec in_layout(TensorSpec tensor, Layout layout) {
  tensor.layout = layout;
  return tensor;
}

TensorSpec hidden(Layout layout) {
  return in_layout(spec("hidden", {DimSymbol::kT, Dim(8)}), layout);
}

TensorSpec merged(Layout layout) {
  return in_layout(spec("vision.merged", {DimSymbol::kV, Dim(8)}), layout);
}

Chain chain_of(std::vector<NamedBlock> blocks, const std::vector<std::string>& freeze,
               const Mesh& mesh) {
  Problems problems;
  Chain chain = Chain::build(std::move(blocks), freeze, problems, mesh);
  REQUIRE(problems_text(problems) == "");
  return chain;
}

Part unit(std::string name, std::vector<TensorSpec> reads, std::vector<TensorSpec> writes,
          Layout layout = Layout::kWhole) {
  UnitSpec spec =
      unit_spec(std::move(name), {param("w", {2})}, std::move(reads), std::move(writes));
  spec.layout = layout;
  return {spec, nullptr};
}

std::vector<std::string> names_of(const Chain& chain) {
  std::vector<std::string> names;
  for (const ChainUnit& unit : chain.units()) names.push_back(unit.name);
  return names;
}

const Version& read_of(const Chain& chain, int unit, size_t read = 0) {
  return chain.versions()[chain.units()[unit].reads.at(read)];
}

std::string refused(std::vector<NamedBlock> blocks, const Mesh& mesh) {
  Problems problems;
  Chain::build(std::move(blocks), {}, problems, mesh);
  for (const Problem& problem : problems) CHECK(problem.code == Code::kC4Combination);
  return problems_text(problems);
}

const auto kRows = Layout::kRows, kWhole = Layout::kWhole, kImages = Layout::kImages,
           kContextRows = Layout::kContextRows;

}  // namespace

TEST_CASE("chain layouts: the same where a rank has the same of a tensor") {
  struct Case {
    int64_t context, tensor;
    bool sequence_parallel, rows_context_rows, rows_whole, context_rows_whole, rows_images,
        images_whole;
  };
  // Of a tensor with visual tokens for images, with row tokens for the rest.
  for (const Case& c : {Case{1, 1, false, true, true, true, true, true},
                        Case{1, 2, false, true, true, true, true, true},
                        Case{1, 2, true, false, false, true, false, true},
                        Case{2, 1, false, true, false, false, false, false},
                        Case{2, 2, false, true, false, false, false, false},
                        Case{2, 2, true, false, false, false, false, false}}) {
    CAPTURE(c.context);
    CAPTURE(c.tensor);
    CAPTURE(c.sequence_parallel);
    const Mesh mesh = mesh_of(c.context, c.tensor, c.sequence_parallel);
    CHECK(same_layout(hidden(kRows), hidden(kContextRows), mesh) == c.rows_context_rows);
    CHECK(same_layout(hidden(kRows), hidden(kWhole), mesh) == c.rows_whole);
    CHECK(same_layout(hidden(kContextRows), hidden(kWhole), mesh) == c.context_rows_whole);
    CHECK(same_layout(merged(kRows), merged(kImages), mesh) == c.rows_images);
    CHECK(same_layout(merged(kImages), merged(kWhole), mesh) == c.images_whole);
    // Sums over own rows are not those over all rows, also where ranks have equal rows.
    const TensorSpec sum = spec("router.stats.0", {Dim(2), Dim(4)});
    CHECK(same_layout(in_layout(sum, kRows), in_layout(sum, kWhole), mesh) ==
          (c.context * c.tensor == 1));
  }
}

TEST_CASE("chain layouts: one conversion per version and layout, behind the writer") {
  const auto blocks = [] {
    return std::vector<NamedBlock>{
        block("vision", {unit("merge", {}, {merged(kImages)}, kImages)}),
        block("text", {unit("embed", {merged(kRows)}, {hidden(kRows)}, kRows),
                       unit("plain", {hidden(kWhole)}, {hidden(kWhole)}),
                       unit("a", {hidden(kRows), merged(kRows)}, {}, kRows),
                       unit("b", {hidden(kWhole), merged(kImages)}, {}),
                       unit("c", {hidden(kRows)}, {hidden(kRows)}, kRows),
                       unit("d", {hidden(kRows), merged(kRows)}, {}, kRows)})};
  };
  const Chain plain = chain_of(blocks(), {}, mesh_of(1, 2, false));
  CHECK(plain.size() == 7);

  const Chain chain = chain_of(blocks(), {}, mesh_of(2, 2, true));
  CHECK(names_of(chain) == std::vector<std::string>{"vision.merge", "vision.convert.vision.merged",
                                                    "text.embed", "text.convert.hidden",
                                                    "text.plain", "text.convert.hidden.2", "text.a",
                                                    "text.b", "text.c", "text.d"});
  const auto check_read = [&](int unit, size_t read, int writer, Layout layout) {
    CAPTURE(chain.units()[unit].name);
    CAPTURE(read);
    CHECK(read_of(chain, unit, read).writer == writer);
    CHECK((read_of(chain, unit, read).spec.layout == layout));
  };
  check_read(2, 0, 1, kRows);
  check_read(4, 0, 3, kWhole);
  check_read(6, 0, 5, kRows);
  check_read(6, 1, 1, kRows);
  // A reader of the writer's layout reads what the writer wrote, behind the conversion, too.
  check_read(7, 0, 4, kWhole);
  check_read(7, 1, 0, kImages);
  check_read(8, 0, 5, kRows);
  check_read(9, 0, 8, kRows);
  check_read(9, 1, 1, kRows);

  const ChainUnit& conversion = chain.units()[1];
  CHECK(conversion.block == "vision");
  CHECK_FALSE(conversion.trainable);
  CHECK(conversion.runs_backward);
  CHECK((conversion.unit->spec().layout == kImages));
  CHECK(conversion.unit->cost({}).flops == 0);
  CHECK(read_of(chain, 1).readers == std::vector<int>{1, 7});
  CHECK(chain.versions()[conversion.writes[0]].readers == std::vector<int>{2, 6, 9});
  CHECK(chain.versions()[conversion.writes[0]].needs_grad);
  // Both cross a cut between the readers, once each.
  CHECK(chain.live_at(3) == std::vector<int>{chain.units()[0].writes[0], conversion.writes[0],
                                             chain.units()[2].writes[0]});
}

TEST_CASE("chain layouts: a conversion of what nothing trains runs forward only") {
  const Chain chain =
      chain_of({block("vision", {unit("merge", {}, {merged(kImages)}, kImages)}),
                block("text", {unit("embed", {merged(kRows)}, {hidden(kRows)}, kRows)})},
               {"vision"}, mesh_of(2, 1, false));
  CHECK(chain.size() == 3);
  CHECK_FALSE(chain.units()[1].runs_backward);
  CHECK(chain.units()[2].runs_backward);
}

TEST_CASE("chain layouts: blocks that know nothing of layouts convert whole tensors") {
  // The decoder, with its own layouts, behind a block without: vision.merged is made of no image
  // tensor here.
  const Chain chain =
      chain_of({block("plain", {unit("make", {}, {merged(kWhole)})}),
                block("text", {unit("embed", {merged(kRows)}, {hidden(kRows)}, kRows)})},
               {}, mesh_of(1, 2, true));
  CHECK(names_of(chain) ==
        std::vector<std::string>{"plain.make", "plain.convert.vision.merged", "text.embed"});
}

TEST_CASE("chain layouts: what cannot be converted is refused with names, layouts and degrees") {
  const auto contains = [](const std::string& text, const std::string& part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  const TensorSpec tokens = spec("tokens", {DimSymbol::kT}, at::kLong);
  const auto reads_tokens = [&] { return std::vector{block("a", {unit("u", {tokens}, {})})}; };
  contains(refused(reads_tokens(), mesh_of(2, 1, false)),
           "unit a.u (block/a) reads the whole of \"tokens\", but under context 2, tensor 1 a rank "
           "has the rows of the context rank");
  // Without context ranks every rank has all tokens.
  CHECK(refused(reads_tokens(), mesh_of(1, 2, true)) == "");
  const TensorSpec visual = spec("visual_dst", {DimSymbol::kV}, at::kLong);
  contains(refused({block("a", {unit("u", {visual}, {})})}, mesh_of(1, 2, true)),
           "reads the whole of \"visual_dst\", but under context 1, tensor 2 a rank has own rows");

  const TensorSpec sum = spec("sum", {Dim(4)});
  contains(
      refused({block("a", {unit("w", {}, {in_layout(sum, kRows)}, kRows), unit("r", {sum}, {})})},
              mesh_of(1, 2, false)),
      "unit a.r (block/a) reads the whole of \"sum\"");

  DerivedSpec derived;
  derived.tensor = spec("table", {DimSymbol::kT, Dim(4)}, at::kFloat);
  derived.reads = {"position_ids"};
  const auto made = [&](Layout layout, Layout read) {
    derived.tensor.layout = layout;
    return std::vector{
        block("a", {unit("u", {in_layout(derived.tensor, read)}, {})}, {}, {derived})};
  };
  contains(refused(made(kWhole, kWhole), mesh_of(2, 1, false)), "reads the whole of \"table\"");
  contains(refused(made(kContextRows, kWhole), mesh_of(2, 1, false)),
           "but under context 2, tensor 1 a rank has the rows of the context rank");
  CHECK(refused(made(kContextRows, kContextRows), mesh_of(2, 2, true)) == "");
  CHECK(refused(made(kWhole, kWhole), mesh_of(1, 2, true)) == "");

  contains(
      refused({block("a", {unit("u", {}, {hidden(kImages)})})}, mesh_of(2, 1, false)),
      "unit a.u (block/a) declares \"hidden\" [T, 8] compute dtype in the layout \"own images\"");

  Part experts = unit("u", {}, {hidden(kWhole)});
  experts.spec.top_k = 2;
  contains(refused({block("a", {experts})}, mesh_of(1, 2, true)),
           "unit a.u (block/a) sends the whole to routed experts");
  experts.spec.layout = kRows;
  CHECK(refused({block("a", {experts})}, mesh_of(1, 2, true)) == "");
}

}  // namespace keyseat::chain_layouts_test
