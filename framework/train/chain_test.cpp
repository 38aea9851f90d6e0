#include "keyseat/chain.h"

#include <doctest/doctest.h>

#include "train/test_units.h"

using namespace keyseat;
using namespace keyseat::testing;

namespace {

using Part = FunctionBlock::Part;

Tensors nothing(const Params&, const Tensors&, StepContext&) { return {}; }

UnitSpec unit(std::string name, std::vector<TensorSpec> reads, std::vector<TensorSpec> writes,
              std::string after = "", std::vector<ParamSpec> params = {}) {
  return unit_spec(std::move(name), std::move(params), std::move(reads), std::move(writes),
                   std::move(after));
}

TensorSpec tokens() { return spec("tokens", {DimSymbol::kT}, at::kLong); }
TensorSpec hidden(int64_t width = 8) { return spec("hidden", {DimSymbol::kT, Dim(width)}); }

// The text of all problems of a chain of these blocks.
std::string problems_of(std::vector<NamedBlock> blocks, std::vector<std::string> freeze = {}) {
  Problems problems;
  Chain::build(std::move(blocks), freeze, problems);
  for (const Problem& problem : problems) CHECK(problem.code == Code::kC4Combination);
  return problems_text(problems);
}

bool contains(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

std::vector<std::string> names_of(const Chain& chain) {
  std::vector<std::string> names;
  for (const ChainUnit& unit : chain.units()) names.push_back(unit.name);
  return names;
}

int version_of(const Chain& chain, const std::string& name, int writer) {
  for (size_t i = 0; i < chain.versions().size(); ++i) {
    if (chain.versions()[i].name == name && chain.versions()[i].writer == writer) return int(i);
  }
  return -1;
}

}  // namespace

TEST_CASE("chain: a read without a writer names the unit and whoever writes later") {
  const std::string text =
      problems_of({block("a", {{unit("first", {hidden()}, {}), nothing},
                               {unit("second", {tokens()}, {hidden()}), nothing}})});
  CHECK(contains(text, "unit a.first (block/a) reads \"hidden\", which nothing before it writes"));
  CHECK(contains(text, "unit a.second (block/a) writes it, but not before"));
}

TEST_CASE("chain: writer and reader that disagree are both named") {
  const std::string text = problems_of({block("a", {{unit("w", {tokens()}, {hidden(8)}), nothing}}),
                                        block("b", {{unit("r", {hidden(16)}, {}), nothing}})});
  CHECK(contains(text,
                 "unit b.r (block/b) reads \"hidden\" as [T, 16] compute dtype, but "
                 "a.w of block a (block/a) writes it as [T, 8] compute dtype"));
  TensorSpec single = hidden(8);
  single.dtype = at::kFloat;
  CHECK(contains(problems_of({block("a", {{unit("w", {tokens()}, {hidden(8)}), nothing},
                                          {unit("r", {single}, {}), nothing}})}),
                 "reads \"hidden\" as [T, 8] Float"));
}

TEST_CASE("chain: batch tensors are read as they are") {
  CHECK(contains(
      problems_of({block("a", {{unit("r", {spec("tokens", {DimSymbol::kT})}, {}), nothing}})}),
      "the batch has 1 dimensions of Long"));
  CHECK(contains(problems_of({block("a", {{unit("w", {}, {tokens()}), nothing}})}),
                 "writes \"tokens\", which is a tensor of the batch"));
}

TEST_CASE("chain: equal names, unknown freeze, losses") {
  const std::string text = problems_of(
      {block("a", {{unit("u", {}, {}), nothing}, {unit("u", {}, {}), nothing}}), block("a", {})},
      {"tower"});
  CHECK(contains(text, "two blocks are named \"a\""));
  CHECK(contains(text, "two units are named \"a.u\""));
  CHECK(contains(text, "model.freeze names \"tower\", which is no block"));
  CHECK(contains(
      problems_of(
          {block("a", {{unit("u", {}, {spec("loss.x", {Dim(1)}, at::kFloat, "rows")}), nothing}})}),
      "normaliser \"rows\""));
}

TEST_CASE("chain: anchored units stand behind the writer, in their own order") {
  Problems problems;
  const Chain chain = Chain::build(
      {block("tower", {{unit("t0", {}, {spec("tap.0", {DimSymbol::kP})}), nothing},
                       {unit("t1", {}, {spec("tap.1", {DimSymbol::kP})}), nothing}}),
       block("merger", {{unit("last", {}, {}), nothing},
                        {unit("b", {}, {spec("made", {DimSymbol::kP})}, "tap.0"), nothing},
                        {unit("c", {}, {}, "tap.0"), nothing},
                        {unit("on_b", {}, {}, "made"), nothing}})},
      {}, problems);
  CHECK(problems_text(problems) == "");
  CHECK(names_of(chain) == std::vector<std::string>{"tower.t0", "merger.b", "merger.on_b",
                                                    "merger.c", "tower.t1", "merger.last"});
}

TEST_CASE("chain: anchors that are unknown, ambiguous or circular") {
  CHECK(contains(problems_of({block("a", {{unit("u", {}, {}, "tap"), nothing}})}),
                 "unit a.u (block/a) is anchored after \"tap\", which no unit writes"));
  CHECK(contains(problems_of({block("a", {{unit("w", {}, {hidden()}), nothing},
                                          {unit("x", {hidden()}, {hidden()}), nothing},
                                          {unit("u", {}, {}, "hidden"), nothing}})}),
                 "which 2 units write"));
  CHECK(contains(problems_of({block("a", {{unit("u", {}, {hidden()}, "hidden"), nothing}})}),
                 "anchors must not form a circle"));
}

TEST_CASE("chain: reads are bound to the latest earlier version") {
  Problems problems;
  const Chain chain = Chain::build({block("a", {{unit("w", {tokens()}, {hidden()}), nothing},
                                                {unit("x", {hidden()}, {hidden()}), nothing},
                                                {unit("r", {hidden(), tokens()}, {}), nothing}})},
                                   {}, problems);
  REQUIRE(problems.empty());
  CHECK(chain.units()[1].reads[0] == version_of(chain, "hidden", 0));
  CHECK(chain.units()[2].reads[0] == version_of(chain, "hidden", 1));
  CHECK(chain.versions()[version_of(chain, "tokens", -1)].readers == std::vector<int>{0, 2});
  CHECK(chain.live_at(0).empty());
  CHECK(chain.live_at(1) == std::vector<int>{version_of(chain, "hidden", 0)});
  CHECK(chain.live_at(2) == std::vector<int>{version_of(chain, "hidden", 1)});
  CHECK(chain.live_at(3).empty());
}

TEST_CASE("chain: gradients are decided by what is trained") {
  const auto units_with_backward = [](std::vector<std::string> freeze) {
    Problems problems;
    const Chain chain = Chain::build(vision_language_blocks(), freeze, problems);
    INFO(problems_text(problems));
    CHECK(problems.empty());
    std::vector<std::string> names;
    for (const ChainUnit& unit : chain.units()) {
      if (unit.runs_backward) names.push_back(unit.name);
    }
    return names;
  };
  CHECK(units_with_backward({}).size() == 8);
  CHECK(units_with_backward({"vision"}) ==
        std::vector<std::string>{"projector.deepstack.0", "projector.final", "decoder.embed",
                                 "decoder.layers.0", "decoder.layers.1", "decoder.head"});
  // A frozen decoder still passes gradients on to the projector.
  CHECK(units_with_backward({"vision", "decoder"}).size() == 6);
  CHECK(units_with_backward({"vision", "projector"}).size() == 4);
  CHECK(units_with_backward({"vision", "projector", "decoder"}).empty());
}

TEST_CASE("chain: tied parameters count once and must agree") {
  Problems problems;
  const Chain chain = Chain::build(vision_language_blocks(), {}, problems);
  REQUIRE(problems.empty());
  CHECK(chain.units().back().owners[0] == ParamRef{4, 0});
  CHECK(chain.parameter_count() == 8 * 6 + 3 * 8 * 8 + 11 * 8 + 2 * 8 * 8);
  const auto user = [](const char* name, std::vector<int64_t> shape) {
    return block(name, {{unit("u", {}, {}, "", {param("w", std::move(shape), "group")}), nothing}});
  };
  CHECK(contains(problems_of({user("a", {2, 3}), user("b", {3, 2})}),
                 "a.u.w and b.u.w are tied (\"group\") but have shapes [2, 3] and [3, 2]"));
  CHECK(contains(problems_of({user("a", {2, 3}), user("b", {2, 3})}, {"b"}),
                 "only one of their blocks is frozen"));
}

TEST_CASE("chain: derived tensors are shared only with equal specs") {
  const auto derived = [](int64_t width, std::string read = "tokens") {
    DerivedSpec made;
    made.tensor = spec("rope", {DimSymbol::kT, Dim(width)}, at::kFloat);
    made.reads = {std::move(read)};
    return made;
  };
  CHECK(contains(problems_of({block("a", {}, {}, {derived(4)}), block("b", {}, {}, {derived(8)})}),
                 "derives \"rope\" as [T, 8] Float, an earlier block as [T, 4] Float"));
  CHECK(contains(problems_of({block("a", {}, {}, {derived(4, "hidden")})}),
                 "derives \"rope\" from \"hidden\", which is no tensor of the batch"));
  Problems problems;
  const Chain chain = Chain::build(
      {block("a", {{unit("r", {spec("rope", {DimSymbol::kT, Dim(4)}, at::kFloat)}, {}), nothing}},
             {}, {derived(4)}),
       block("b", {}, {}, {derived(4)})},
      {}, problems);
  CHECK(problems.empty());
  CHECK(chain.derived().size() == 1);
  CHECK(chain.versions()[chain.derived_reads(0)[0]].readers == std::vector<int>{0});
}

TEST_CASE("chain: a parameter that cannot be counted is refused") {
  UnitSpec huge = unit("w", {tokens()}, {hidden(8)});
  huge.params.push_back(param("experts", {65536, 1 << 24, 1 << 24}));
  CHECK(contains(problems_of({block("a", {{huge, nothing}})}),
                 "parameter \"experts\" of unit a.w (block/a) would have the shape [65536, "
                 "16777216, 16777216], 1.84e+19 elements"));
}

TEST_CASE("chain: input specs merge or contradict") {
  InputSpec vision, text, other;
  vision.patch_size = 16;
  vision.image_mean = {0.5, 0.5, 0.5};
  vision.max_positions = 100;
  text.vocab_size = 1000;
  text.max_positions = 50;
  other.vocab_size = 999;
  Problems problems;
  const Chain chain = Chain::build({block("v", {}, vision), block("t", {}, text)}, {}, problems);
  CHECK(problems.empty());
  CHECK(chain.input().patch_size == 16);
  CHECK(chain.input().vocab_size == 1000);
  CHECK(chain.input().max_positions == 50);
  CHECK(chain.input().channels == 3);
  CHECK(contains(problems_of({block("t", {}, text), block("o", {}, other)}),
                 "block o (block/o) works with vocab_size = 999, but block t (block/t) with 1000"));
}
