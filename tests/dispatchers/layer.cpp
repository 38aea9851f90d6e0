#include "tests/dispatchers/layer.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>
#include <mutex>

#include "nn/testing.h"

namespace keyseat::test {
namespace {

constexpr int64_t kWidth = 4;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

at::Tensor normal(at::IntArrayRef shape, uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::kFloat);
}

// Inputs of all ranks and of the one process alike.
struct LayerValues {
  std::vector<at::Tensor> x, weight, dy;  // per rank; fp32
  at::Tensor up_EIH, down_EHI;

  explicit LayerValues(const DispatcherCase& test) {
    for (size_t rank = 0; rank < test.index.size(); ++rank) {
      const int64_t tokens = test.index[rank].size(0), top_k = test.index[rank].size(1);
      x.push_back(normal({tokens, test.hidden}, 10 + rank));
      weight.push_back(normal({tokens, top_k}, 50 + rank).abs());
      dy.push_back(normal({tokens, test.hidden}, 90 + rank));
      weight.back().masked_fill_(test.index[rank].lt(0), 0);
    }
    up_EIH = normal({test.experts, kWidth, test.hidden}, 1);
    down_EHI = normal({test.experts, test.hidden, kWidth}, 2);
  }
};

struct Results {
  at::Tensor y, dx, dweight, dup, ddown;  // of experts: those of the rank, its slice of the width
};

// What the layer means: y = sum over choices of weight * down(up(x)).
Results one_process(const DispatcherCase& test, const LayerValues& values) {
  const at::Tensor x = at::cat(values.x).requires_grad_();
  const at::Tensor weight = at::cat(values.weight).requires_grad_();
  const at::Tensor up = values.up_EIH.clone().requires_grad_();
  const at::Tensor down = values.down_EHI.clone().requires_grad_();
  const at::Tensor index = at::cat(test.index);
  at::Tensor y = x.mul(0).add(weight.sum().mul(0)).add(up.sum().mul(0)).add(down.sum().mul(0));
  for (int64_t expert = 0; expert < test.experts; ++expert) {
    const at::Tensor share = weight.mul(index.eq(expert)).sum(1, /*keepdim=*/true);
    const at::Tensor act = at::linear(x, up.select(0, expert)).mul(share);
    y = y.add(at::linear(act, down.select(0, expert)));
  }
  const auto g = torch::autograd::grad({y}, {x, weight, up, down}, {at::cat(values.dy)});
  // The weight of a choice that goes nowhere has no influence.
  return {y.detach(), g[0], g[1].mul(index.ge(0)), g[2], g[3]};
}

// Rows past the used ones are nobody's: whatever reads them shows.
at::Tensor with_poisoned_tail(const at::Tensor& rows, int64_t used) {
  at::Tensor poisoned = rows.detach().clone();
  poisoned.narrow(0, used, rows.size(0) - used).fill_(kNaN);
  return poisoned;
}

class LayerRank {
 public:
  LayerRank(const DispatcherCase& test, const DispatcherLayout& layout, const LayerValues& values,
            int64_t rank, ThreadComm& comm, Dispatcher& dispatcher, std::vector<std::string>& wrong)
      : test_(test),
        layout_(layout),
        values_(values),
        rank_(rank),
        mesh_(layout.mesh(rank)),
        comm_(comm),
        dispatcher_(dispatcher),
        wrong_(wrong) {}

  Results run(bool compare_traffic) {
    const at::Tensor& index_TK = test_.index[static_cast<size_t>(rank_)];
    const int64_t tokens = index_TK.size(0);
    const int64_t real = test_.real[static_cast<size_t>(rank_)];
    nn::check::CallContext context(real, tokens - real, mesh_, comm_, dispatcher_);
    at::Tensor x = values_.x[static_cast<size_t>(rank_)].to(test_.dtype, false, /*copy=*/true);
    x.narrow(0, real, tokens - real).fill_(kNaN);
    x.requires_grad_();
    const at::Tensor weight = values_.weight[static_cast<size_t>(rank_)].clone().requires_grad_();
    comm_.take_calls();

    const auto plan = dispatcher_.plan(index_TK, test_.experts, *context, test_.capacity);
    const LinkBytes planned = comm_.take_sent();
    const Dispatched sent = dispatcher_.dispatch(plan, x, weight, *context);
    const LinkBytes dispatched = comm_.take_sent();
    check_rows(sent);
    const at::Tensor rows = with_poisoned_tail(sent.rows_MH, used_).requires_grad_();
    const at::Tensor row_weight = with_poisoned_tail(sent.row_weight_M, used_).requires_grad_();
    const at::Tensor up = local_up().requires_grad_(), down = local_down().requires_grad_();
    const at::Tensor out = experts(rows, row_weight, up, down, sent.host_tokens_per_expert);
    const at::Tensor y = dispatcher_.combine(plan, out, *context);
    const LinkBytes combined = comm_.take_sent();

    const at::Tensor dy = values_.dy[static_cast<size_t>(rank_)].to(test_.dtype);
    const auto inner = torch::autograd::grad({y}, {rows, row_weight, up, down}, {dy}, {}, false,
                                             /*allow_unused=*/true);
    const LinkBytes combined_back = comm_.take_sent();
    const auto outer = torch::autograd::grad(
        {sent.rows_MH, sent.row_weight_M}, {x, weight},
        {with_poisoned_tail(inner[0], used_), with_poisoned_tail(inner[1], used_)});
    const LinkBytes dispatched_back = comm_.take_sent();
    if (compare_traffic) {
      const DispatcherTraffic expected = dispatcher_.traffic(work(), mesh_);
      compare("plan", planned, expected.plan);
      compare("dispatch", dispatched, expected.dispatch);
      compare("combine", combined, expected.combine);
      compare("backward of combine", combined_back, expected.combine_backward);
      compare("backward of dispatch", dispatched_back, expected.dispatch_backward);
    }
    return {y.detach(), outer[0], outer[1], inner[2], inner[3]};
  }

 private:
  void note(const std::string& what) {
    wrong_.push_back(fmt::format("{}, {}: rank {}: {}", layout_.name, test_.name, rank_, what));
  }

  DispatcherWork work() const {
    DispatcherWork work;
    work.facts = {test_.experts, test_.index[0].size(1), test_.hidden, test_.capacity > 0};
    work.element_bytes = static_cast<int64_t>(c10::elementSize(test_.dtype));
    work.capacity = test_.capacity;
    for (const int64_t peer : mesh_.group({Axis::kExpertTensor, Axis::kExpert})) {
      work.topk_index.push_back(test_.index[static_cast<size_t>(peer)]);
    }
    return work;
  }

  void compare(const char* phase, const LinkBytes& sent, const LinkTraffic& expected) {
    if (static_cast<double>(sent.intra) == expected.intra &&
        static_cast<double>(sent.inter) == expected.inter) {
      return;
    }
    note(fmt::format("{} sent {} bytes inside the node and {} between nodes; predicted {} and {}",
                     phase, sent.intra, sent.inter, expected.intra, expected.inter));
  }

  int64_t local_experts() const { return test_.experts / layout_.expert; }
  int64_t slice_width() const { return kWidth / layout_.expert_tensor; }
  at::Tensor local_up() const {
    return values_.up_EIH
        .narrow(0, mesh_.coordinate(Axis::kExpert) * local_experts(), local_experts())
        .narrow(1, mesh_.coordinate(Axis::kExpertTensor) * slice_width(), slice_width())
        .to(test_.dtype, false, /*copy=*/true);
  }
  at::Tensor local_down() const {
    return values_.down_EHI
        .narrow(0, mesh_.coordinate(Axis::kExpert) * local_experts(), local_experts())
        .narrow(2, mesh_.coordinate(Axis::kExpertTensor) * slice_width(), slice_width())
        .to(test_.dtype, false, /*copy=*/true);
  }

  // Counts describe the rows, and a row that fills a block up is zero.
  void check_rows(const Dispatched& sent) {
    const auto& counts = sent.host_tokens_per_expert;
    used_ = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    if (static_cast<int64_t>(counts.size()) != local_experts()) note("wrong number of experts");
    if (sent.rows_MH.size(0) < used_) note("fewer rows than the counts say");
    if (sent.rows_MH.narrow(0, 0, used_).isnan().any().item<bool>()) {
      note("a row of the padding was dispatched");
    }
  }

  at::Tensor experts(const at::Tensor& rows, const at::Tensor& row_weight, const at::Tensor& up,
                     const at::Tensor& down, const std::vector<int64_t>& counts) const {
    std::vector<at::Tensor> parts;
    int64_t begin = 0;
    for (size_t e = 0; e < counts.size(); ++e) {
      const at::Tensor act =
          at::linear(rows.narrow(0, begin, counts[e]), up.select(0, static_cast<int64_t>(e)))
              .to(at::kFloat)
              .mul(row_weight.narrow(0, begin, counts[e]).unsqueeze(1))
              .to(rows.scalar_type());
      parts.push_back(at::linear(act, down.select(0, static_cast<int64_t>(e))));
      begin += counts[e];
    }
    parts.push_back(at::full({rows.size(0) - begin, rows.size(1)}, kNaN, rows.options()));
    return at::cat(parts);
  }

  const DispatcherCase& test_;
  const DispatcherLayout& layout_;
  const LayerValues& values_;
  int64_t rank_;
  Mesh mesh_;
  ThreadComm& comm_;
  Dispatcher& dispatcher_;
  std::vector<std::string>& wrong_;
  int64_t used_ = 0;
};

class Comparison {
 public:
  Comparison(const DispatcherCase& test, const DispatcherLayout& layout, double limit,
             std::vector<std::string>& wrong)
      : test_(test), layout_(layout), limit_(limit), wrong_(wrong) {}

  void operator()(const char* what, const at::Tensor& got, const at::Tensor& expected) {
    const at::Tensor difference = got.to(at::kDouble) - expected.to(at::kDouble);
    const double scale = std::max(expected.to(at::kDouble).norm().item<double>(), 1e-30);
    const double error = difference.norm().item<double>() / scale;
    if (error <= limit_) return;  // false for NaN
    if (difference.numel() == 0) return;
    wrong_.push_back(fmt::format("{}, {}: {} is off by {:.2g} (limit {:.2g})", layout_.name,
                                 test_.name, what, error, limit_));
  }

 private:
  const DispatcherCase& test_;
  const DispatcherLayout& layout_;
  double limit_;
  std::vector<std::string>& wrong_;
};

// Results of the ranks put together as the one process has them. Ranks that hold a slice or copies
// of an expert (expert_data) add up their gradients.
void compare_all(const DispatcherCase& test, const DispatcherLayout& layout,
                 const std::vector<Results>& ranks, const Results& expected, Comparison& compare) {
  std::vector<at::Tensor> y, dx, dweight;
  at::Tensor dup = at::zeros_like(expected.dup), ddown = at::zeros_like(expected.ddown);
  const int64_t local = test.experts / layout.expert, width = kWidth / layout.expert_tensor;
  for (int64_t rank = 0; rank < layout.world(); ++rank) {
    const Results& r = ranks[static_cast<size_t>(rank)];
    const Mesh mesh = layout.mesh(rank);
    const int64_t first = mesh.coordinate(Axis::kExpert) * local;
    const int64_t column = mesh.coordinate(Axis::kExpertTensor) * width;
    y.push_back(r.y.to(at::kFloat));
    dx.push_back(r.dx.to(at::kFloat));
    dweight.push_back(r.dweight);
    if (r.dup.defined()) dup.narrow(0, first, local).narrow(1, column, width).add_(r.dup);
    if (r.ddown.defined()) ddown.narrow(0, first, local).narrow(2, column, width).add_(r.ddown);
  }
  compare("y", at::cat(y), expected.y);
  compare("the gradient of x", at::cat(dx), expected.dx);
  compare("the gradient of the weights", at::cat(dweight), expected.dweight);
  compare("the gradient of the up projection", dup, expected.dup);
  compare("the gradient of the down projection", ddown, expected.ddown);
}

}  // namespace

std::vector<std::string> dispatcher_differences(const DispatcherCase& test,
                                                const DispatcherLayout& layout,
                                                const MakeDispatcher& make,
                                                const DispatcherLimits& limits) {
  const LayerValues values(test);
  std::vector<Results> ranks(static_cast<size_t>(layout.world()));
  std::vector<std::string> wrong;
  std::mutex mutex;
  try {
    ThreadWorld({.world = layout.world(),
                 .ranks_per_node = layout.ranks_per_node,
                 .timeout_seconds = limits.timeout_seconds})
        .run([&](int64_t rank, ThreadComm& comm) {
          std::vector<std::string> own;
          const auto dispatcher = make();
          const Problems refused = dispatcher->check_layout(
              {test.experts, test.index[0].size(1), test.hidden, test.capacity > 0},
              layout.mesh(rank));
          if (!refused.empty()) throw Error(refused);
          LayerRank run(test, layout, values, rank, comm, *dispatcher, own);
          ranks[static_cast<size_t>(rank)] = run.run(limits.traffic);
          const std::lock_guard<std::mutex> lock(mutex);
          wrong.insert(wrong.end(), own.begin(), own.end());
        });
  } catch (const std::exception& error) {
    wrong.push_back(fmt::format("{}, {}: {}", layout.name, test.name, error.what()));
    return wrong;
  }
  if (!limits.results) return wrong;
  Comparison compare(test, layout, limits.error, wrong);
  compare_all(test, layout, ranks, one_process(test, values), compare);
  return wrong;
}

}  // namespace keyseat::test
