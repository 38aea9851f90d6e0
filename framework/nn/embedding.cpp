// Token embedding; the gradient goes row by row into the sink, never through a [V, H] temporary.
#include <ATen/Parallel.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include "keyseat/nn/linear.h"
#include "nn/contract.h"
#include "nn/embedding_rows.h"
#include "nn/parameter_gradient.h"
#include "nn/select_rows.h"

namespace keyseat::nn {

void check_ids(const at::Tensor& ids_T, int64_t vocabulary) {
  if (!ids_T.is_cpu() || ids_T.numel() == 0) return;
  auto [lowest, highest] = at::aminmax(ids_T);
  const int64_t low = lowest.item<int64_t>(), high = highest.item<int64_t>();
  if (low >= 0 && high < vocabulary) return;
  contract_error(
      fmt::format("token ids from {} to {} index an embedding of {} rows", low, high, vocabulary),
      "an id outside of the table has no embedding",
      "check that the tokenizer and vocab_size belong to the same model");
}

// Threads split the columns, so equal ids never meet.
void add_into_rows(const at::Tensor& table_VH, const at::Tensor& ids_T, const at::Tensor& dy_TH) {
  if (ids_T.numel() == 0) return;
  const bool plain_memory = table_VH.is_cpu() && table_VH.is_contiguous() &&
                            table_VH.scalar_type() == at::kFloat &&
                            dy_TH.scalar_type() == at::kFloat;
  if (!plain_memory) {
    table_VH.index_add_(0, ids_T, dy_TH.to(table_VH.scalar_type()));
    return;
  }
  const at::Tensor ids = ids_T.contiguous(), dy = dy_TH.contiguous();
  const int64_t* id = ids.const_data_ptr<int64_t>();
  const float* source = dy.const_data_ptr<float>();
  float* table = table_VH.mutable_data_ptr<float>();
  const int64_t rows = ids.numel(), width = table_VH.size(1);
  at::parallel_for(0, width, 64, [&](int64_t begin, int64_t end) {
    for (int64_t row = 0; row < rows; ++row) {
      float* to = table + id[row] * width;
      const float* from = source + row * width;
      for (int64_t column = begin; column < end; ++column) to[column] += from[column];
    }
  });
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct EmbeddingFunction : torch::autograd::Function<EmbeddingFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& ids_T,
                            const at::Tensor& table, const ParamHandle& handle) {
    context->save_for_backward({table.requires_grad() ? ids_T : at::Tensor()});
    context->saved_data["table"] = handle.capsule();
    return select_rows(table, ids_T);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    if (!context->needs_input_grad(1)) return {{}, {}, {}};
    const ParamHandle table = ParamHandle::from_capsule(context->saved_data["table"]);
    const at::Tensor ids = context->get_saved_variables()[0];
    const GradientBuffer buffer(table);
    add_into_rows(buffer.tensor(), ids, gradients[0]);
    return {{}, buffer.hand_over(), {}};
  }
};

}  // namespace

at::Tensor embedding(const at::Tensor& ids_T, const ParamHandle& table_VH) {
  check_ids(ids_T, table_VH.value().size(0));
  return EmbeddingFunction::apply(ids_T, table_VH.value(), table_VH);
}

}  // namespace keyseat::nn
