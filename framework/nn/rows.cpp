// replace_rows and add_rows: how visual features enter the packed row.
#include <torch/csrc/autograd/custom_function.h>

#include "keyseat/nn/linear.h"
#include "nn/select_rows.h"

namespace keyseat::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct RowsFunction : torch::autograd::Function<RowsFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_TH,
                            const at::Tensor& source_RH, const at::Tensor& index_R, bool add) {
    context->save_for_backward({index_R});
    context->saved_data["add"] = add;
    at::Tensor y_TH = x_TH.clone(at::MemoryFormat::Contiguous);
    if (index_R.numel() == 0) return y_TH;  // LibTorch's index operations refuse zero rows
    return add ? y_TH.index_add_(0, index_R, source_RH) : y_TH.index_copy_(0, index_R, source_RH);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor& dy_TH = gradients[0];
    const at::Tensor index_R = context->get_saved_variables()[0];
    at::Tensor dx_TH, dsource_RH;
    if (context->needs_input_grad(0)) {
      dx_TH = context->saved_data["add"].toBool() ? dy_TH : dy_TH.index_fill(0, index_R, 0);
    }
    if (context->needs_input_grad(1)) dsource_RH = select_rows(dy_TH, index_R);
    return {dx_TH, dsource_RH, {}, {}};
  }
};

}  // namespace

at::Tensor replace_rows(const at::Tensor& x_TH, const at::Tensor& index_R,
                        const at::Tensor& source_RH) {
  return RowsFunction::apply(x_TH, source_RH, index_R, false);
}

at::Tensor add_rows(const at::Tensor& x_TH, const at::Tensor& index_R,
                    const at::Tensor& source_RH) {
  return RowsFunction::apply(x_TH, source_RH, index_R, true);
}

}  // namespace keyseat::nn
