// The update of AdamW over flat ranges, with run-time dispatch by instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace keyseat_optimizer_adamw {

// Numbers of one shard and step.
struct Coefficients {
  float grad_scale;  // clip coefficient
  float keep;        // 1 - lr * weight_decay
  float one_minus_beta1;
  float beta2, one_minus_beta2;
  float inverse_correction2;  // 1 / sqrt(1 - beta2^step)
  float eps;
  float step_size;  // lr / (1 - beta1^step)
};

// g = grad * grad_scale; m += (1 - beta1) (g - m); v = beta2 v + (1 - beta2) g^2;
// master = master * keep - step_size * m / (sqrt(v) * inverse_correction2 + eps).
// `compute`, unless null, receives master rounded to bf16 (nearest, ties to even). Every element
// sees the same operations wherever the range begins and ends.
using Update = void (*)(const Coefficients&, size_t count, float* master, const float* grad,
                        float* m, float* v, uint16_t* compute);

void update_simd(const Coefficients& c, size_t count, float* master, const float* grad, float* m,
                 float* v, uint16_t* compute);
void update_naive(const Coefficients& c, size_t count, float* master, const float* grad, float* m,
                  float* v, uint16_t* compute);

}  // namespace keyseat_optimizer_adamw
