// Legend: S supervised rows, C rows of a chunk, H hidden, V vocabulary, B rows of a weight block.
#include "nn/cross_entropy_chunks.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>

#include "nn/kernels/cross_entropy.h"
#include "nn/logsumexp.h"

namespace keyseat::nn {
namespace {

// Logits held at once. More rows keep the GEMMs at full rate and read the weight less often; below
// 128 rows that shows, above 512 nothing is gained.
constexpr int64_t kChunkElements = int64_t{12} << 20;  // 48 MiB
constexpr int64_t kMinimumRows = 128, kMaximumRows = 512;

// Chunks of equal size, so that the last one is not a sliver.
int64_t chunk_rows(int64_t rows, int64_t vocabulary) {
  const int64_t limit = std::clamp(kChunkElements / vocabulary, kMinimumRows, kMaximumRows);
  const int64_t chunks = std::max<int64_t>(1, (rows + limit - 1) / limit);
  return (rows + chunks - 1) / chunks;
}

// Rows of a lower-precision weight that are cast at once.
constexpr int64_t kVocabularyRows = 4096;

// function(cast block of the weight [B, H], first row). fp32 weights are one block and no copy.
template <typename Function>
void for_each_block(const at::Tensor& weight_VH, at::ScalarType type, Function&& function) {
  if (weight_VH.scalar_type() == type) {
    function(weight_VH, 0);
    return;
  }
  for (int64_t begin = 0; begin < weight_VH.size(0); begin += kVocabularyRows) {
    const int64_t size = std::min(kVocabularyRows, weight_VH.size(0) - begin);
    function(weight_VH.narrow(0, begin, size).to(type), begin);
  }
}

void run_rows(const at::Tensor& logits_CV, const at::Tensor& labels_C, const at::Tensor& loss_C,
              bool gradient) {
  const int64_t vocabulary = logits_CV.size(1);
  float* logits = logits_CV.mutable_data_ptr<float>();
  const int64_t* labels = labels_C.const_data_ptr<int64_t>();
  float* loss = loss_C.mutable_data_ptr<float>();
  at::parallel_for(0, logits_CV.size(0), 1, [&](int64_t begin, int64_t end) {
    kernels::run(kernels::CrossEntropyRows{.logits = logits + begin * vocabulary,
                                           .labels = labels + begin,
                                           .loss = loss + begin,
                                           .rows = end - begin,
                                           .vocabulary = vocabulary,
                                           .gradient = gradient});
  });
}

// Other devices, fp64 and meta tensors: LibTorch's ops, in place as well.
void run_rows_composed(const at::Tensor& logits_CV, const at::Tensor& labels_C,
                       const at::Tensor& loss_C, bool gradient) {
  const at::Tensor label_C1 = labels_C.unsqueeze(1);
  const at::Tensor logsumexp_C1 = logsumexp_rows(logits_CV);
  loss_C.copy_(logsumexp_C1.sub(logits_CV.gather(1, label_C1)).squeeze(1));
  if (!gradient) return;
  logits_CV.sub_(logsumexp_C1).exp_();
  logits_CV.scatter_add_(1, label_C1, at::full(label_C1.sizes(), -1, logits_CV.options()));
}

}  // namespace

void chunked_cross_entropy(const at::Tensor& x_SH, const at::Tensor& weight_VH,
                           const at::Tensor& labels_S, ChunkedLoss& result) {
  const int64_t rows = x_SH.size(0);
  const int64_t vocabulary = weight_VH.size(0);
  const at::ScalarType type = result.loss_S.scalar_type();
  const bool gradient = result.x_gradient_SH.defined() || result.weight_gradient_VH.defined();
  if (rows == 0 && result.weight_gradient_VH.defined()) result.weight_gradient_VH.zero_();
  const int64_t chunk = chunk_rows(rows, vocabulary);
  const at::Tensor buffer = at::empty({chunk, vocabulary}, result.loss_S.options());
  for (int64_t begin = 0; begin < rows; begin += chunk) {
    const int64_t size = std::min(chunk, rows - begin);
    const at::Tensor x_CH = x_SH.narrow(0, begin, size).to(type);
    const at::Tensor labels_C = labels_S.narrow(0, begin, size);
    const at::Tensor loss_C = result.loss_S.narrow(0, begin, size);
    at::Tensor logits_CV = buffer.narrow(0, 0, size);
    for_each_block(weight_VH, type, [&](const at::Tensor& block_BH, int64_t first) {
      at::Tensor logits_CB = logits_CV.narrow(1, first, block_BH.size(0));
      at::mm_out(logits_CB, x_CH, block_BH.t());
    });
    if (logits_CV.is_cpu() && type == at::kFloat) {
      run_rows(logits_CV, labels_C, loss_C, gradient);
    } else {
      run_rows_composed(logits_CV, labels_C, loss_C, gradient);
    }
    if (result.x_gradient_SH.defined()) {
      at::Tensor x_gradient_CH = result.x_gradient_SH.narrow(0, begin, size);
      for_each_block(weight_VH, type, [&](const at::Tensor& block_BH, int64_t first) {
        const at::Tensor logits_CB = logits_CV.narrow(1, first, block_BH.size(0));
        at::addmm_out(x_gradient_CH, x_gradient_CH, logits_CB, block_BH,
                      /*beta=*/first == 0 ? 0 : 1);
      });
    }
    if (result.weight_gradient_VH.defined()) {
      // The first product overwrites the uninitialised buffer (beta 0 reads nothing).
      at::addmm_out(result.weight_gradient_VH, result.weight_gradient_VH, logits_CV.t(), x_CH,
                    /*beta=*/begin == 0 ? 0 : 1);
    }
  }
}

}  // namespace keyseat::nn
