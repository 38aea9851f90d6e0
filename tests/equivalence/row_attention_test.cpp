// row_attention over context ranks, gathered and in a ring, against one process.
// Legend: C rows of a context rank, n query heads, m key/value heads, d head dim.
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include "keyseat/nn/attention.h"
#include "keyseat/nn/tensor_parallel.h"
#include "tests/equivalence/tensor_ops.h"

namespace keyseat::test::row_attention {
namespace {

constexpr double kScale = 0.3;

// All rows of the packed row, and what one process makes of them.
struct AttentionCase {
  std::vector<int64_t> cu_seqlens;
  int64_t heads = 4, key_heads = 2, head = 8;
  at::ScalarType dtype = at::kFloat;
  at::ScalarType oracle = at::kDouble;
  double strength = 1;  // of the queries

  at::Tensor q = {}, k = {}, v = {}, dy = {}, y = {};
  std::vector<at::Tensor> gradients = {};

  AttentionCase& make() {
    const int64_t rows = cu_seqlens.back();
    const auto values = [&](int64_t n, uint64_t seed) {
      return normal_values({rows, n, head}, seed).to(dtype);
    };
    q = values(heads, 1).mul_(strength), k = values(key_heads, 2), v = values(key_heads, 3),
    dy = values(heads, 4);
    const auto leaf = [&](const at::Tensor& x) { return x.to(oracle).clone().requires_grad_(); };
    const std::vector<at::Tensor> whole = {leaf(q), leaf(k), leaf(v)};
    const at::Tensor result = nn::varlen_attention(whole[0], whole[1], whole[2], cu_seqlens,
                                                   /*causal=*/true, kScale, Kernels::kNaive);
    gradients = gradients_of(result, dy.to(oracle), whole);
    y = result.detach();
    return *this;
  }
};

std::vector<Compared> attend_on_rank(const AttentionCase& test, GridRank& rank) {
  const at::Tensor rows_C = rank.context_rows();
  const auto own = [&](const at::Tensor& whole) { return whole.index_select(0, rows_C); };
  const std::vector<at::Tensor> leaves = {
      own(test.q).requires_grad_(), own(test.k).requires_grad_(), own(test.v).requires_grad_()};
  const at::Tensor y = nn::row_attention(leaves[0], leaves[1], leaves[2], kScale, *rank);
  const auto gradients = gradients_of(y, own(test.dy), leaves);
  return {{"y", y, own(test.y)},
          {"dq", gradients[0], own(test.gradients[0])},
          {"dk", gradients[1], own(test.gradients[1])},
          {"dv", gradients[2], own(test.gradients[2])}};
}

void check_attention(const AttentionCase& test, const TensorGrid& grid, Kernels kernels,
                     double tolerance) {
  const OpDifference difference = op_difference(
      grid, test.cu_seqlens, kernels, [&](GridRank& rank) { return attend_on_rank(test, rank); });
  CAPTURE(test.cu_seqlens);
  INFO(grid.text(), ": ", difference.what);
  CHECK(difference.value < tolerance);
}

// Rows of 16 and more: no row at all; a segment over all chunks; segments of one token, without a
// row and over several chunks; a tail of padding; each chunk a segment of its own.
const std::vector<std::vector<int64_t>> kRows = {
    {0}, {0, 16}, {0, 1, 2, 3, 9, 9, 16}, {0, 5, 16}, {0, 2, 4, 6, 8, 10, 12, 14, 16}};

}  // namespace

TEST_CASE("row_attention: over context ranks as on one, fast and naive, fp32 and fp64") {
  for (const auto& cu_seqlens : kRows) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      const AttentionCase test = AttentionCase{.cu_seqlens = cu_seqlens, .dtype = dtype}.make();
      for (const int64_t context : {1, 2, 4}) {
        for (const bool ring : {false, true}) {
          for (const Kernels kernels : {Kernels::kFast, Kernels::kNaive}) {
            check_attention(test, {.context = context, .ring = ring}, kernels,
                            dtype == at::kDouble ? 1e-12 : 1e-5);
          }
        }
      }
    }
  }
}

TEST_CASE("row_attention: several blocks of queries, grouped heads of odd sizes") {
  for (const auto& [heads, key_heads, head] :
       std::vector<std::array<int64_t, 3>>{{4, 2, 16}, {3, 3, 9}, {5, 1, 12}}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      const AttentionCase test = AttentionCase{.cu_seqlens = {0, 150, 160, 901, 1200},
                                               .heads = heads,
                                               .key_heads = key_heads,
                                               .head = head,
                                               .dtype = dtype}
                                     .make();
      for (const bool ring : {false, true}) {
        CAPTURE(heads);
        check_attention(test, {.context = 2, .ring = ring}, Kernels::kFast,
                        dtype == at::kDouble ? 1e-12 : 1e-5);
      }
    }
  }
}

TEST_CASE("row_attention: scores far apart are merged without overflow") {
  const AttentionCase test = AttentionCase{.cu_seqlens = {0, 64}, .strength = 60}.make();
  for (const bool ring : {false, true})
    check_attention(test, {.context = 4, .ring = ring}, Kernels::kFast, 1e-4);
}

TEST_CASE("row_attention: bf16 rounds rows, not the partial sums of the ring") {
  const AttentionCase test =
      AttentionCase{.cu_seqlens = {0, 40, 41, 256}, .dtype = at::kBFloat16, .oracle = at::kFloat}
          .make();
  for (const bool ring : {false, true}) {
    // bf16 rounds by 0.4 % at most; results are rounded once or twice.
    check_attention(test, {.context = 4, .ring = ring}, Kernels::kFast, 1e-2);
  }
}

TEST_CASE("row_attention: beside tensor ranks, each with its own heads") {
  const AttentionCase test = AttentionCase{.cu_seqlens = {0, 3, 16}}.make();
  for (const bool ring : {false, true}) {
    const TensorGrid grid{.tensor = 2, .context = 2, .slices = true, .ring = ring};
    check_on_ranks(grid, test.cu_seqlens, Kernels::kFast, [&](GridRank& rank) {
      AttentionCase part = test;
      for (at::Tensor* x : {&part.q, &part.k, &part.v, &part.dy, &part.y, &part.gradients[0],
                            &part.gradients[1], &part.gradients[2]}) {
        *x = x->chunk(2, 1)[static_cast<size_t>(rank.tensor_rank())].contiguous();
      }
      return attend_on_rank(part, rank);
    });
  }
}

namespace {

// Passes calls on and counts the bytes that lie in tensors of keys and values: everything that was
// exchanged or gathered and still lives.
class HeldBytes final : public CommGroup {
 public:
  explicit HeldBytes(CommGroup& inner) : inner_(inner) {}
  int64_t peak() const { return peak_; }
  int64_t size() const override { return inner_.size(); }
  int64_t rank() const override { return inner_.rank(); }
  std::unique_ptr<Work> all_gather(at::Tensor output, at::Tensor input,
                                   std::vector<int64_t> counts) override {
    hold({output, input});
    return inner_.all_gather(output, input, counts);
  }
  std::unique_ptr<Work> reduce_scatter(at::Tensor output, at::Tensor input,
                                       std::vector<int64_t> counts) override {
    hold({output, input});
    return inner_.reduce_scatter(output, input, counts);
  }
  std::unique_ptr<Work> send(at::Tensor tensor, int64_t to) override {
    return inner_.send(tensor, to);
  }
  std::unique_ptr<Work> receive(at::Tensor tensor, int64_t from) override {
    return inner_.receive(tensor, from);
  }
  std::unique_ptr<Work> all_reduce(at::Tensor tensor, ReduceOp op) override {
    return inner_.all_reduce(tensor, op);
  }
  std::unique_ptr<Work> broadcast(at::Tensor tensor, int64_t root) override {
    return inner_.broadcast(tensor, root);
  }
  std::unique_ptr<Work> all_to_all(at::Tensor output, at::Tensor input,
                                   std::vector<int64_t> output_counts,
                                   std::vector<int64_t> input_counts) override {
    hold({output, input});
    return inner_.all_to_all(output, input, output_counts, input_counts);
  }
  std::unique_ptr<Work> begin_barrier() override { return inner_.begin_barrier(); }

 private:
  using Storage = c10::weak_intrusive_ptr<c10::StorageImpl>;
  void hold(const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors)
      held_.try_emplace(tensor.storage().unsafeGetStorageImpl(),
                        tensor.storage().getWeakStorageImpl());
    int64_t bytes = 0;
    for (auto entry = held_.begin(); entry != held_.end();) {
      if (const auto alive = entry->second.lock()) {
        bytes += static_cast<int64_t>(alive->nbytes());
        ++entry;
      } else {
        entry = held_.erase(entry);
      }
    }
    peak_ = std::max(peak_, bytes);
  }
  CommGroup& inner_;
  std::map<c10::StorageImpl*, Storage> held_;
  int64_t peak_ = 0;
};

class HeldBytesComm final : public Comm {
 public:
  explicit HeldBytesComm(Comm& inner) : inner_(inner) {}
  void connect(const Rendezvous& rendezvous) override { inner_.connect(rendezvous); }
  CommGroup& group(const std::vector<int64_t>& ranks, CommChannel channel) override {
    auto& found = groups_[ranks];
    if (found == nullptr) found = std::make_unique<HeldBytes>(inner_.group(ranks, channel));
    return *found;
  }
  int64_t peak() const {
    int64_t most = 0;
    for (const auto& [ranks, group] : groups_) most = std::max(most, group->peak());
    return most;
  }

 private:
  Comm& inner_;
  std::map<std::vector<int64_t>, std::unique_ptr<HeldBytes>> groups_;
};

// Bytes of keys and values that a rank holds at once in forward, and in both passes.
std::pair<int64_t, int64_t> held_bytes(const AttentionCase& test, const TensorGrid& grid) {
  std::pair<int64_t, int64_t> most;
  ThreadWorld({.world = grid.world()}).run([&](int64_t number, ThreadComm& comm) {
    HeldBytesComm counting(comm);
    GridRank rank(grid, number, counting, test.cu_seqlens, Kernels::kFast);
    const at::Tensor rows_C = rank.context_rows();
    const auto own = [&](const at::Tensor& whole) { return whole.index_select(0, rows_C); };
    const std::vector<at::Tensor> leaves = {
        own(test.q).requires_grad_(), own(test.k).requires_grad_(), own(test.v).requires_grad_()};
    const at::Tensor y = nn::row_attention(leaves[0], leaves[1], leaves[2], kScale, *rank);
    // Thread ranks share what travels between them: it lives until both are behind the exchange.
    rank.sum_over({Axis::kContext}, at::zeros({1}));
    const int64_t forward = counting.peak();
    gradients_of(y, own(test.dy), leaves);
    if (number == 0) most = {forward, counting.peak()};
  });
  return most;
}

}  // namespace

TEST_CASE("row_attention: a ring of N ranks holds 2 / N of all keys and values") {
  const AttentionCase test = AttentionCase{.cu_seqlens = {0, 100, 256}}.make();
  const int64_t keys_values = test.k.nbytes() + test.v.nbytes();
  for (const int64_t context : {2, 4, 8}) {
    CAPTURE(context);
    const auto [forward, both] = held_bytes(test, {.context = context, .ring = true});
    CHECK(forward == 2 * keys_values / context);
    // Their gradients are as large, and travel as they do.
    CHECK(both == 2 * 2 * keys_values / context);
    CHECK(held_bytes(test, {.context = context}).first >= keys_values);
  }
}

TEST_CASE("row_attention: what is sent depends on the layout, never on segments") {
  const auto calls = [](const std::vector<int64_t>& cu_seqlens, bool ring) {
    const AttentionCase test = AttentionCase{.cu_seqlens = cu_seqlens}.make();
    std::vector<std::string> seen;
    const TensorGrid grid{.context = 4, .ring = ring};
    ThreadWorld({.world = 4}).run([&](int64_t number, ThreadComm& comm) {
      GridRank rank(grid, number, comm, cu_seqlens, Kernels::kFast);
      attend_on_rank(test, rank);
      if (number != 1) return;
      for (const RecordedCall& call : comm.take_calls())
        seen.push_back(fmt::format("{} {}", call.kind, call.sent.intra));
    });
    return seen;
  };
  for (const bool ring : {false, true}) {
    const auto whole = calls({0, 16}, ring);
    CHECK(whole.size() == (ring ? 10 : 3));
    CHECK(calls({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, ring) == whole);
  }
}

TEST_CASE("row_attention: rows and segments that do not fit are R4") {
  const auto attend = [](int64_t rows, const std::vector<int64_t>& cu_seqlens) {
    ThreadWorld({.world = 2}).run([&](int64_t number, ThreadComm& comm) {
      GridRank rank({.context = 2}, number, comm, cu_seqlens, Kernels::kFast);
      const at::Tensor x = normal_values({rows, 2, 4}, 1);
      nn::row_attention(x, x, x, kScale, *rank);
    });
  };
  CHECK_THROWS_WITH_AS(attend(7, {0, 16}), doctest::Contains("on a rank with 8 of 16 rows"), Error);
  CHECK_THROWS_WITH_AS(attend(8, {0, 9, 5, 16}), doctest::Contains("do not cover the 16 rows"),
                       Error);
}

}  // namespace keyseat::test::row_attention
