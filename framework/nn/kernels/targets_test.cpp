#include "nn/kernels/targets.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include "keyseat/nn/activation.h"
#include "keyseat/nn/attention.h"
#include "keyseat/nn/cross_entropy.h"
#include "keyseat/nn/moe.h"
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

  const at::Tensor source = at::tensor({1, 0, 1, 2, 0}, at::kLong);
  const at::Tensor slot = at::tensor({1, 4, 2, 0, 3, -1}, at::kLong).view({3, 2});
  check::OpCase sum;
  sum.fast = [=](const auto& in, const auto&) {
    const at::Device device = in[0].device();
    return unpermute_rows(in[0], source.to(device), slot.to(device));
  };
  sum.naive = [=](const auto& in, const auto&) {
    return at::zeros({3, 45}, in[0].options()).index_add(0, source, in[0]);
  };
  sum.inputs = {check::random({5, 45}, 11)};
  check::check_op(sum);

  const at::Tensor labels = at::tensor({3, -100, 148, 0}, at::kLong);
  check::OpCase loss = both([=](Kernels kernels) -> check::Op {
    return [=](const auto& in, const auto& p) {
      return linear_cross_entropy(in[0], p[0], labels.to(in[0].device()), kernels);
    };
  });
  loss.inputs = {check::random({4, 12}, 12)};
  loss.parameters = {check::random({149, 12}, 13)};
  loss.bf16_tolerance = 0;  // its value is fp32 for bf16 rows too
  check::check_op(loss);

  check::OpCase attention = both([](Kernels kernels) -> check::Op {
    return [=](const auto& in, const auto&) {
      return varlen_attention(in[0], in[1], in[2], {0, 130, 270}, true, 0.3, kernels);
    };
  });
  attention.inputs = {check::random({270, 4, 11}, 11), check::random({270, 2, 11}, 12),
                      check::random({270, 2, 11}, 13)};
  check::check_op(attention);
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

TEST_CASE("kernels: run.cpu_target takes the names of this CPU and refuses others by name") {
  const auto targets = kernels::supported_targets();
  for (const kernels::Target& target : targets) {
    CHECK_FALSE(kernels::use_target(target.name));
    check_kernels();
  }
  CHECK_FALSE(kernels::use_target("best"));
  const auto problem = kernels::use_target("avx1024");
  REQUIRE(problem);
  CHECK(problem->code == Code::kC3Value);
  CHECK(problem->text().find("avx1024") != std::string::npos);
  CHECK(problem->text().find(targets.front().name) != std::string::npos);
}

}  // namespace keyseat::nn
