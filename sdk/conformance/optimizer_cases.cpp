// An optimizer: an update is a function of the shard's own tensors and numbers, so that shards may
// be cut anywhere, saved and continued.
#include "keyseat/interfaces/optimizer.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>

#include "sdk/conformance/subject.h"

namespace keyseat::conformance {
namespace {

constexpr int64_t kRows = 37, kColumns = 21, kElements = kRows * kColumns;
constexpr int64_t kCut = 300;  // in the middle of a row
constexpr int kSteps = 5;
constexpr double kLr = 0.01;
// The same sums and products in another order of rounding.
constexpr double kUpdateLimit = 1e-6;

at::Tensor random(int64_t size, uint64_t seed) {
  return at::rand({size}, at::detail::createCPUGenerator(seed), at::kFloat).sub(0.5);
}

ParamSpec matrix() {
  ParamSpec spec;
  spec.name = "w";
  spec.shape = {kRows, kColumns};
  return spec;
}

// Elements [begin, end) of one parameter.
OptimizerShard shard_of(const ParamSpec& spec, int64_t begin, int64_t end, size_t states) {
  OptimizerShard shard;
  shard.spec = &spec;
  shard.name = "check." + spec.name;
  shard.begin = begin;
  shard.end = end;
  shard.master = random(spec.numel(), 1).slice(0, begin, end).clone();
  shard.grad = at::zeros({end - begin});
  for (size_t i = 0; i < states; ++i) shard.state.push_back(at::zeros({end - begin}));
  return shard;
}

void set_step(OptimizerShard& shard, int step, double grad_scale = 1) {
  shard.grad.copy_(random(shard.spec->numel(), static_cast<uint64_t>(100 + step))
                       .slice(0, shard.begin, shard.end)
                       .div(grad_scale));
  shard.grad_scale = grad_scale;
  shard.lr = kLr;
  shard.step = step;
}

// Steps `first` to `last` of these shards.
void run(Optimizer& optimizer, std::vector<OptimizerShard>& shards, int first, int last,
         double grad_scale = 1) {
  for (int step = first; step <= last; ++step) {
    for (OptimizerShard& shard : shards) set_step(shard, step, grad_scale);
    optimizer.step(shards);
  }
}

at::Tensor whole_run(Optimizer& optimizer, const ParamSpec& spec, double grad_scale = 1) {
  std::vector<OptimizerShard> shards{shard_of(spec, 0, kElements, optimizer.state_names().size())};
  run(optimizer, shards, 1, kSteps, grad_scale);
  return shards[0].master;
}

void check_cut(const Subject& subject) {
  const auto optimizer = subject.make<Optimizer>();
  if (optimizer->needs_whole_matrix()) skip("it asks for whole matrices");
  const ParamSpec spec = matrix();
  const size_t states = optimizer->state_names().size();
  std::vector<OptimizerShard> parts{shard_of(spec, kCut, kElements, states),
                                    shard_of(spec, 0, kCut, states),
                                    shard_of(spec, kCut, kCut, states)};
  run(*optimizer, parts, 1, kSteps);
  const at::Tensor whole = whole_run(*subject.make<Optimizer>(), spec);
  expect_close("the first part of a cut parameter", parts[1].master, whole.slice(0, 0, kCut),
               kUpdateLimit);
  expect_close("the second part of a cut parameter", parts[0].master,
               whole.slice(0, kCut, kElements), kUpdateLimit);
}

void check_continued(const Subject& subject) {
  const ParamSpec spec = matrix();
  const auto before = subject.make<Optimizer>();
  std::vector<OptimizerShard> shards{shard_of(spec, 0, kElements, before->state_names().size())};
  run(*before, shards, 1, 2);
  // A checkpoint of the shards is one of the optimizer: another instance goes on from them.
  std::vector<OptimizerShard> copies = shards;
  copies[0].master = shards[0].master.clone();
  copies[0].grad = shards[0].grad.clone();
  for (at::Tensor& state : copies[0].state) state = state.clone();
  run(*before, shards, 3, kSteps);
  const auto after = subject.make<Optimizer>();
  run(*after, copies, 3, kSteps);
  expect_equal("the master continued by another instance", copies[0].master, shards[0].master);
  for (size_t i = 0; i < shards[0].state.size(); ++i) {
    expect_equal("a state continued by another instance", copies[0].state[i], shards[0].state[i]);
  }
}

void check_compute_copy(const Subject& subject) {
  const auto optimizer = subject.make<Optimizer>();
  const ParamSpec spec = matrix();
  std::vector<OptimizerShard> shards{shard_of(spec, 0, kElements, optimizer->state_names().size())};
  shards[0].compute = at::zeros({kElements}, at::kBFloat16);
  run(*optimizer, shards, 1, 1);
  expect_equal("the compute copy", shards[0].compute, shards[0].master.to(at::kBFloat16));
}

void check_gradient_is_read_only(const Subject& subject) {
  const auto optimizer = subject.make<Optimizer>();
  const ParamSpec spec = matrix();
  std::vector<OptimizerShard> shards{shard_of(spec, 0, kElements, optimizer->state_names().size())};
  set_step(shards[0], 1, 0.5);
  const at::Tensor gradient = shards[0].grad.clone();
  const void* const memory = shards[0].master.data_ptr();
  optimizer->step(shards);
  expect_equal("the gradient behind the step", shards[0].grad, gradient);
  expect(shards[0].master.data_ptr() == memory, "the master was replaced, not updated in place");
  expect(shards[0].master.isfinite().all().item<bool>(), "the master is not finite");
}

// Half of the squared distance from zero has the gradient x.
void check_descends(const Subject& subject) {
  const auto optimizer = subject.make<Optimizer>();
  const ParamSpec spec = matrix();
  std::vector<OptimizerShard> shards{shard_of(spec, 0, kElements, optimizer->state_names().size())};
  const double start = shards[0].master.norm().item<double>();
  for (int step = 1; step <= 200; ++step) {
    shards[0].grad.copy_(shards[0].master);
    shards[0].lr = kLr;
    shards[0].step = step;
    optimizer->step(shards);
  }
  const double end = shards[0].master.norm().item<double>();
  expect(end < 0.5 * start,
         fmt::format("after 200 steps down a bowl the distance from its bottom is {:.3g} of the "
                     "first one, expected less than half",
                     end / start));
}

}  // namespace

void optimizer_cases(const Subject& subject, Cases& cases) {
  cases.run("names: states have distinct names, and lr is a number", [&] {
    const auto optimizer = subject.make<Optimizer>();
    const auto names = optimizer->state_names();
    expect(std::set<std::string>(names.begin(), names.end()).size() == names.size(),
           "two states have one name");
    expect(std::isfinite(optimizer->base_lr()) && optimizer->base_lr() >= 0,
           "base_lr() is negative or not finite");
  });
  cases.run("step: in place, finite, and the gradient is only read",
            [&] { check_gradient_is_read_only(subject); });
  cases.run("step: a parameter cut into shards gets the update of the whole",
            [&] { check_cut(subject); });
  cases.run("step: another instance goes on from saved shards, bit for bit",
            [&] { check_continued(subject); });
  cases.run("step: grad_scale is applied to the gradient", [&] {
    const ParamSpec spec = matrix();
    expect_close("the master of a scaled gradient",
                 whole_run(*subject.make<Optimizer>(), spec, 0.25),
                 whole_run(*subject.make<Optimizer>(), spec), kUpdateLimit);
  });
  cases.run("step: the compute copy follows the master", [&] { check_compute_copy(subject); });
  cases.run("step: it goes down a bowl", [&] { check_descends(subject); });
  cases.run("step: no shard at all is an ordinary step", [&] {
    std::vector<OptimizerShard> none;
    subject.make<Optimizer>()->step(none);
  });
}

}  // namespace keyseat::conformance
