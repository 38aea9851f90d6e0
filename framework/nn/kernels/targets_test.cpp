#include "nn/kernels/targets.h"

#include <doctest/doctest.h>

#include "keyseat/nn/activation.h"
#include "keyseat/nn/norm.h"
#include "keyseat/nn/rope.h"
#include "nn/op_check.h"

namespace keyseat::nn {
namespace {

// Every op that has SIMD kernels, on rows that end inside a vector.
void check_kernels() {
  const auto both = [](auto make) {
    check::OpCase op_case;
    op_case.fast = make(Kernels::kFast);
    op_case.naive = make(Kernels::kNaive);
    return op_case;
  };
  check::OpCase rms = both([](Kernels kernels) -> check::Op {
    return [=](const auto& in, const auto& p) { return rms_norm(in[0], p[0], 1e-6, kernels); };
  });
  rms.inputs = {check::random({9, 77}, 1)};
  rms.parameters = {check::random({77}, 2)};
  rms.bf16_tolerance = 6e-2;
  check::check_op(rms);

  check::OpCase layer = both([](Kernels kernels) -> check::Op {
    return
        [=](const auto& in, const auto& p) { return layer_norm(in[0], p[0], p[1], 1e-6, kernels); };
  });
  layer.inputs = {check::random({9, 77}, 3)};
  layer.parameters = {check::random({77}, 4), check::random({77}, 5)};
  layer.bf16_tolerance = 6e-2;
  check::check_op(layer);

  const at::Tensor angles = check::random({5, 21}, 6);
  const RopeTables tables{angles.cos(), angles.sin()};
  check::OpCase rope = both([=](Kernels kernels) -> check::Op {
    return [=](const auto& in, const auto&) { return apply_rope(in[0], tables, kernels); };
  });
  rope.inputs = {check::random({5, 3, 47}, 7)};
  check::check_op(rope);

  check::OpCase swiglu = both([](Kernels kernels) -> check::Op {
    return [=](const auto& in, const auto&) { return weighted_swiglu(in[0], in[1], kernels); };
  });
  swiglu.inputs = {check::random({6, 2 * 37}, 8).mul(4), check::random({6}, 9)};
  swiglu.keep_fp32 = {false, true};
  check::check_op(swiglu);

  check::OpCase gelu = both([](Kernels kernels) -> check::Op {
    return [=](const auto& in, const auto&) { return gelu_tanh(in[0], kernels); };
  });
  gelu.inputs = {check::random({3, 43}, 10).mul(4)};
  check::check_op(gelu);
}

}  // namespace

TEST_CASE("kernels: every instruction set of this CPU") {
  const auto targets = kernels::supported_targets();
  REQUIRE_FALSE(targets.empty());
  for (const kernels::Target& target : targets) {
    CAPTURE(target.name);
    kernels::force_target(target.id);
    check_kernels();
  }
  kernels::force_target(0);
}

}  // namespace keyseat::nn
