// Legend: S supervised rows, C rows of a chunk, H hidden, V vocabulary of this rank, B rows of a
// weight block.
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
  const int64_t limit =
      std::clamp(kChunkElements / std::max<int64_t>(vocabulary, 1), kMinimumRows, kMaximumRows);
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

// Calls body(first row, x [C, H], logits [C, V]) chunk by chunk; it may overwrite the logits.
template <typename Body>
void for_each_chunk(const at::Tensor& x_SH, const at::Tensor& weight_VH, at::ScalarType type,
                    const Body& body) {
  const int64_t rows = x_SH.size(0), vocabulary = weight_VH.size(0);
  const int64_t chunk = chunk_rows(rows, vocabulary);
  const at::Tensor buffer = at::empty({chunk, vocabulary}, x_SH.options().dtype(type));
  for (int64_t begin = 0; begin < rows; begin += chunk) {
    const int64_t size = std::min(chunk, rows - begin);
    const at::Tensor x_CH = x_SH.narrow(0, begin, size).to(type);
    const at::Tensor logits_CV = buffer.narrow(0, 0, size);
    for_each_block(weight_VH, type, [&](const at::Tensor& block_BH, int64_t first) {
      at::Tensor logits_CB = logits_CV.narrow(1, first, block_BH.size(0));
      at::mm_out(logits_CB, x_CH, block_BH.t());
    });
    body(begin, x_CH, logits_CV);
  }
}

// x_gradient_CH = logits_gradient_CV weight_VH.
void gradient_of_rows(const at::Tensor& logits_gradient_CV, const at::Tensor& weight_VH,
                      at::Tensor x_gradient_CH) {
  for_each_block(
      weight_VH, x_gradient_CH.scalar_type(), [&](const at::Tensor& block_BH, int64_t first) {
        const at::Tensor logits_gradient_CB = logits_gradient_CV.narrow(1, first, block_BH.size(0));
        at::addmm_out(x_gradient_CH, x_gradient_CH, logits_gradient_CB, block_BH,
                      /*beta=*/first == 0 ? 0 : 1);
      });
}

// Which labels are here, and a column for each; any for the others.
struct OwnLabels {
  explicit OwnLabels(const at::Tensor& labels_C)
      : column_C(labels_C.clamp_min(0)), here_C(labels_C.ge(0)) {}
  at::Tensor column_C, here_C;
};

}  // namespace

void chunked_cross_entropy(const at::Tensor& x_SH, const at::Tensor& weight_VH,
                           const at::Tensor& labels_S, ChunkedLoss& result) {
  const at::ScalarType type = result.loss_S.scalar_type();
  const bool gradient = result.x_gradient_SH.defined() || result.weight_gradient_VH.defined();
  if (x_SH.size(0) == 0 && result.weight_gradient_VH.defined()) result.weight_gradient_VH.zero_();
  for_each_chunk(
      x_SH, weight_VH, type,
      [&](int64_t begin, const at::Tensor& x_CH, const at::Tensor& logits_CV) {
        const int64_t size = x_CH.size(0);
        const at::Tensor labels_C = labels_S.narrow(0, begin, size);
        const at::Tensor loss_C = result.loss_S.narrow(0, begin, size);
        if (logits_CV.is_cpu() && type == at::kFloat) {
          run_rows(logits_CV, labels_C, loss_C, gradient);
        } else {
          run_rows_composed(logits_CV, labels_C, loss_C, gradient);
        }
        if (result.x_gradient_SH.defined())
          gradient_of_rows(logits_CV, weight_VH, result.x_gradient_SH.narrow(0, begin, size));
        if (result.weight_gradient_VH.defined()) {
          // The first product overwrites the uninitialised buffer (beta 0 reads nothing).
          at::addmm_out(result.weight_gradient_VH, result.weight_gradient_VH, logits_CV.t(), x_CH,
                        /*beta=*/begin == 0 ? 0 : 1);
        }
      });
}

void chunked_log_sums(const at::Tensor& x_SH, const at::Tensor& weight_VH,
                      const at::Tensor& labels_S, const LogSums& result) {
  if (weight_VH.size(0) == 0) {  // a rank without a part of the vocabulary
    result.log_sum_S.fill_(-std::numeric_limits<double>::infinity());
    result.target_S.zero_();
    return;
  }
  const at::ScalarType type = result.log_sum_S.scalar_type();
  for_each_chunk(x_SH, weight_VH, type,
                 [&](int64_t begin, const at::Tensor& x_CH, const at::Tensor& logits_CV) {
                   const int64_t size = x_CH.size(0);
                   const OwnLabels labels(labels_S.narrow(0, begin, size));
                   at::Tensor log_sum_C = result.log_sum_S.narrow(0, begin, size);
                   at::Tensor target_C = result.target_S.narrow(0, begin, size);
                   target_C.copy_(logits_CV.gather(1, labels.column_C.unsqueeze(1)).squeeze(1));
                   if (logits_CV.is_cpu() && type == at::kFloat) {
                     run_rows(logits_CV, labels.column_C, log_sum_C, /*gradient=*/false);
                     log_sum_C.add_(target_C);  // the kernel gives the loss
                   } else {
                     log_sum_C.copy_(logsumexp_rows(logits_CV).squeeze(1));
                   }
                   target_C.mul_(labels.here_C);
                 });
}

void chunked_gradients(const at::Tensor& x_SH, const at::Tensor& weight_VH,
                       const at::Tensor& labels_S, const at::Tensor& log_sum_S,
                       const at::Tensor& scale_1, const SplitGradients& result) {
  if (weight_VH.size(0) == 0) {
    if (result.x_gradient_SH.defined()) result.x_gradient_SH.zero_();
    return;
  }
  for_each_chunk(x_SH, weight_VH, log_sum_S.scalar_type(),
                 [&](int64_t begin, const at::Tensor& x_CH, const at::Tensor& logits_CV) {
                   const int64_t size = x_CH.size(0);
                   const OwnLabels labels(labels_S.narrow(0, begin, size));
                   logits_CV.sub_(log_sum_S.narrow(0, begin, size).unsqueeze(1)).exp_();
                   logits_CV.scatter_add_(
                       1, labels.column_C.unsqueeze(1),
                       labels.here_C.to(logits_CV.scalar_type()).neg().unsqueeze(1));
                   if (result.x_gradient_SH.defined()) {
                     at::Tensor x_gradient_CH = result.x_gradient_SH.narrow(0, begin, size);
                     gradient_of_rows(logits_CV, weight_VH, x_gradient_CH);
                     x_gradient_CH.mul_(scale_1);
                   }
                   if (result.weight_gradient_VH.defined())
                     result.weight_gradient_VH.addmm_(logits_CV.t(), x_CH.mul(scale_1));
                 });
}

}  // namespace keyseat::nn
