// Tensor and context ranks with little or nothing to hold or to train, and in bf16, against one
// process.
#include <doctest/doctest.h>

#include "tests/equivalence/three_d_cells.h"

namespace keyseat::test::three_d {
namespace {

const std::vector<Layout> kShared{
    {"tensor 2 x context 2, ring",
     4,
     {{"tensor", int64_t{2}}, {"context", int64_t{2}}, {"context_method", std::string("ring")}}},
    {"tensor 2 x context 2, gather", 4, {{"tensor", int64_t{2}}, {"context", int64_t{2}}}},
    {"pipeline 2 x tensor 2", 4, {{"pipeline", int64_t{2}}, {"tensor", int64_t{2}}}}};

}  // namespace

TEST_CASE("three_d: only the projector, or only the decoder, of ranks that share rows is trained") {
  for (const std::vector<std::string>& freeze :
       {std::vector<std::string>{"vision", "decoder"}, {"projector", "decoder"}, {"projector"}}) {
    LayoutChoice one;
    one.freeze = freeze;
    const LayoutResult oracle = run_layout(one, {}, mixed_step());
    for (const Layout& layout : kShared) {
      Cell cell{layout};
      cell.freeze = freeze;
      INFO(cell.name());
      const LayoutDifference difference =
          compare_layouts(run_layout(cell.choice(), {}, mixed_step()), oracle);
      CHECK_MESSAGE(difference.within_limits(), difference.text());
    }
  }
}

TEST_CASE("three_d: with everything frozen ranks that share rows still agree about the losses") {
  LayoutChoice one;
  one.freeze = {"vision", "projector", "decoder"};
  const LayoutResult oracle = run_layout(one, {}, mixed_step(), 1);
  for (const Layout& layout : kShared) {
    Cell cell{layout};
    cell.freeze = one.freeze;
    INFO(cell.name());
    const LayoutResult found = run_layout(cell.choice(), {}, mixed_step(), 1);
    CHECK(found.gradients.empty());
    CHECK(compare_layouts(found, oracle).loss <= 1e-5);
  }
}

TEST_CASE("three_d: tensor ranks that hold one row of the vocabulary, or none") {
  // 49 rows over 8 ranks: the last one has none; of 50 it has one.
  for (const int64_t vocabulary : {49, 50}) {
    CAPTURE(vocabulary);
    for (const bool tied : {false, true}) {
      const LayoutModel model{.decoder = {{"vocab_size", vocabulary},
                                          {"vision_end_token_id", int64_t{46}},
                                          {"num_attention_heads", int64_t{8}},
                                          {"intermediate_size", int64_t{32}},
                                          {"tie_word_embeddings", tied}},
                              .text_only = true};
      const Cell cell{{"tensor 8", 8, {{"tensor", int64_t{8}}}}};
      const LayoutDifference difference = compare_layouts(
          run_layout(cell.choice(), model, mixed_step()), run_layout({}, model, mixed_step()));
      CHECK_MESSAGE(difference.within_limits(), difference.text());
    }
  }
}

TEST_CASE("three_d: tensor and context ranks in bf16 stay near fp32") {
  const LayoutResult expected = run_layout({}, {}, mixed_step());
  for (const Layout& layout : kShared) {
    INFO(layout.name);
    LayoutChoice choice = Cell{layout}.choice();
    choice.compute_dtype = at::kBFloat16;
    const LayoutResult found = run_layout(choice, {}, mixed_step());
    for (size_t step = 0; step < expected.losses.size(); ++step) {
      for (const auto& [name, loss] : expected.losses[step])
        CHECK(found.losses[step].at(name) == doctest::Approx(loss).epsilon(0.02));
    }
  }
}

}  // namespace keyseat::test::three_d
