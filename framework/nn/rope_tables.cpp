// Tables of rotary position embeddings: angles and cos/sin in fp32, as transformers computes them.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include "keyseat/nn/rope.h"
#include "nn/contract.h"
#include "nn/patch_order.h"

namespace keyseat::nn {
namespace {

// theta^(-2i/D) for i < D/2, fp32 at every step.
at::Tensor inverse_frequencies(int64_t rotary_dim, double theta) {
  at::Tensor exponent =
      at::arange(0, rotary_dim, 2, at::kFloat).div(static_cast<float>(rotary_dim));
  return at::pow(theta, exponent).reciprocal();
}

// The position axis that each frequency follows.
std::vector<int64_t> frequency_axes(int64_t count, const std::vector<int64_t>& section) {
  std::vector<int64_t> axes(count, 0);
  if (section.empty()) return axes;
  if (section.size() != 3 || section[0] + section[1] + section[2] != count) {
    contract_error(fmt::format("mrope_section [{}] does not add up to {} frequencies",
                               fmt::join(section, ", "), count),
                   "every frequency belongs to one of the three axes t, h, w",
                   "mrope_section must have three parts with the sum rotary_dim / 2");
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t axis = i % 3;
    if (axis != 0 && i < 3 * section[axis]) axes[i] = axis;
  }
  return axes;
}

}  // namespace

RopeTables mrope_tables(const at::Tensor& position_ids_3T, int64_t rotary_dim, double theta,
                        const std::vector<int64_t>& section) {
  const at::Device device = position_ids_3T.device();
  at::Tensor axes = at::tensor(frequency_axes(rotary_dim / 2, section), at::kLong).to(device);
  const int64_t rows = position_ids_3T.size(1);
  at::Tensor positions_Tf =
      position_ids_3T.t().to(at::kFloat).gather(1, axes.expand({rows, axes.numel()}));
  at::Tensor angles_Tf = positions_Tf.mul(inverse_frequencies(rotary_dim, theta).to(device));
  return {angles_Tf.cos(), angles_Tf.sin()};
}

RopeTables vision_rope_tables(const std::vector<int64_t>& grid_thw, int64_t merge_size,
                              int64_t head_dim, double theta) {
  const int64_t count = head_dim / 4;
  at::Tensor frequencies = inverse_frequencies(head_dim / 2, theta);
  const float* frequency = frequencies.const_data_ptr<float>();
  at::Tensor angles_Pf = at::empty({patch_count(grid_thw), 2 * count}, at::kFloat);
  float* angle = angles_Pf.mutable_data_ptr<float>();
  for_each_patch(grid_thw, merge_size, [&](int64_t y, int64_t x, int64_t, int64_t) {
    for (int64_t i = 0; i < count; ++i) *angle++ = static_cast<float>(y) * frequency[i];
    for (int64_t i = 0; i < count; ++i) *angle++ = static_cast<float>(x) * frequency[i];
  });
  return {angles_Pf.cos(), angles_Pf.sin()};
}

}  // namespace keyseat::nn
