#include "keyseat/nn/rope.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/randint.h>
#include <doctest/doctest.h>

#include "keyseat/status.h"
#include "nn/op_check.h"

namespace keyseat::nn {
namespace {

RopeTables tables_of(int64_t rows, int64_t rotary_dim) {
  at::Tensor angles = check::random({rows, rotary_dim / 2}, 11).mul(3);
  return {angles.cos(), angles.sin()};
}

check::Op rope(const RopeTables& tables, Kernels kernels) {
  return [=](const auto& inputs, const auto&) { return apply_rope(inputs[0], tables, kernels); };
}

}  // namespace

TEST_CASE("apply_rope: fast and naive agree; whole and partial heads, odd sizes") {
  struct Shape {
    int64_t rows, heads, head, rotary;
  };
  for (const Shape& s : {Shape{5, 3, 64, 64}, Shape{7, 1, 20, 20}, Shape{4, 2, 16, 8},
                         Shape{3, 2, 10, 6}, Shape{0, 2, 8, 8}, Shape{130, 4, 32, 32}}) {
    CAPTURE(s.head);
    const RopeTables tables = tables_of(s.rows, s.rotary);
    const std::vector<at::Tensor> inputs = {check::random({s.rows, s.heads, s.head}, 1)};
    check::check_op({.fast = rope(tables, Kernels::kFast),
                     .naive = rope(tables, Kernels::kNaive),
                     .inputs = inputs,
                     .parameters = {}});
  }
}

TEST_CASE("apply_rope: a view into fused q, k, v") {
  const RopeTables tables = tables_of(6, 12);
  const auto middle = [&](Kernels kernels) -> check::Op {
    return [=](const auto& inputs, const auto&) {
      return apply_rope(inputs[0].select(1, 1), tables, kernels);
    };
  };
  check::check_op({.fast = middle(Kernels::kFast),
                   .naive = middle(Kernels::kNaive),
                   .inputs = {check::random({6, 3, 2, 12}, 1)},
                   .parameters = {}});
}

TEST_CASE("apply_rope: fp64 gradients") {
  for (Kernels kernels : {Kernels::kNaive, Kernels::kFast})
    check::check_gradient(rope(tables_of(3, 4), kernels), {check::random({3, 2, 6}, 1)}, {});
}

TEST_CASE("mrope_tables: interleaved axes") {
  // Section (3, 2, 1), 6 frequencies: h takes 1 and 4, w takes 2, the rest is t.
  at::Tensor positions = at::arange(3, at::kLong).add(1).unsqueeze(1).mul(at::arange(5));
  const RopeTables mixed = mrope_tables(positions, 12, 100.0, {3, 2, 1});
  const std::vector<int64_t> axis = {0, 1, 2, 0, 1, 0};
  for (int64_t i = 0; i < 6; ++i) {
    at::Tensor angle =
        positions.select(0, axis[i]).to(at::kDouble).mul(std::pow(100.0, -2.0 * i / 12.0));
    check::check_close(mixed.cos.select(1, i), angle.cos(), 1e-6);
    check::check_close(mixed.sin.select(1, i), angle.sin(), 1e-6);
  }
  const RopeTables plain = mrope_tables(positions, 12, 100.0, {});
  check::check_close(plain.cos.select(1, 0), mixed.cos.select(1, 0), 0);
  CHECK_THROWS_WITH_AS(mrope_tables(positions, 12, 100.0, {3, 2, 2}),
                       doctest::Contains("does not add up"), Error);
  CHECK(mrope_tables(positions.narrow(1, 0, 0), 12, 100.0, {}).cos.size(0) == 0);
  CHECK((mrope_tables(positions.to(at::kMeta), 12, 100.0, {3, 2, 1}).cos.sizes() ==
         mixed.cos.sizes()));
}

TEST_CASE("vision_rope_tables: merge-block order, y before x, every frame alike") {
  const RopeTables tables = vision_rope_tables({2, 2, 4}, 2, 8, 10000.0);
  CHECK((tables.cos.sizes() == at::IntArrayRef({16, 4})));
  // Patch 5 of a frame: second block, top right: y = 0, x = 3.
  const std::vector<double> angles = {0, 0, 3, 3 * std::pow(10000.0, -2.0 / 4.0)};
  for (int64_t frame = 0; frame < 2; ++frame)
    for (int64_t i = 0; i < 4; ++i)
      CHECK(tables.sin[8 * frame + 5][i].item<double>() ==
            doctest::Approx(std::sin(angles[i])).epsilon(1e-6));
  CHECK(vision_rope_tables({}, 2, 8, 10000.0).cos.size(0) == 0);
  CHECK_THROWS_AS(vision_rope_tables({1, 3, 4}, 2, 8, 10000.0), Error);
}

TEST_CASE("mrope_positions: text, image, video frame groups") {
  using V = std::vector<int64_t>;
  CHECK(mrope_positions({0, 0, 0}, {}, 2) == V{0, 1, 2, 0, 1, 2, 0, 1, 2});
  // One text token, a 2 x 3 image, one text token.
  CHECK(mrope_positions({0, 1, 1, 1, 1, 1, 1, 0}, {1, 4, 6}, 2) ==
        V{0, 1, 1, 1, 1, 1, 1, 4, 0, 1, 1, 1, 2, 2, 2, 4, 0, 1, 2, 3, 1, 2, 3, 4});
  // Two frame groups of one video, a text token between them: the t axis does not grow inside.
  CHECK(mrope_positions({2, 2, 0, 2, 2}, {2, 2, 4}, 2) ==
        V{0, 0, 2, 3, 3, 0, 0, 2, 3, 3, 0, 1, 2, 3, 4});
  // The same with one grid per frame group.
  CHECK(mrope_positions({2, 2, 0, 2, 2}, {1, 2, 4, 1, 2, 4}, 2) ==
        mrope_positions({2, 2, 0, 2, 2}, {2, 2, 4}, 2));
  CHECK(mrope_positions({}, {}, 2).empty());
  CHECK_THROWS_WITH_AS(mrope_positions({0, 1, 0}, {1, 2, 4}, 2), doctest::Contains("needs 2"),
                       Error);
  CHECK_THROWS_WITH_AS(mrope_positions({0, 1}, {}, 2), doctest::Contains("used up"), Error);
  CHECK_THROWS_WITH_AS(mrope_positions({0}, {1, 2, 2}, 2), doctest::Contains("1 grids are given"),
                       Error);
}

}  // namespace keyseat::nn
