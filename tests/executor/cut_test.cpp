// The chain cut into stages that share nothing: what crosses a boundary goes through bytes.
#include <ATen/ops/empty.h>

#include "tests/executor/proof.h"

using namespace keyseat;
using namespace keyseat::testing;

namespace {

// A tensor as a message: dtype, sizes, elements.
std::string to_bytes(const at::Tensor& tensor) {
  CHECK_FALSE(tensor.requires_grad());
  const at::Tensor dense = tensor.contiguous();
  std::string bytes;
  const auto put = [&](int64_t number) {
    bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
  };
  put(static_cast<int64_t>(dense.scalar_type()));
  put(dense.dim());
  for (const int64_t size : dense.sizes()) put(size);
  if (dense.numel() > 0) bytes.append(static_cast<const char*>(dense.data_ptr()), dense.nbytes());
  return bytes;
}

at::Tensor from_bytes(const std::string& bytes) {
  const char* next = bytes.data();
  const auto get = [&] {
    int64_t number = 0;
    std::memcpy(&number, next, sizeof(number));
    next += sizeof(number);
    return number;
  };
  const auto dtype = static_cast<at::ScalarType>(get());
  std::vector<int64_t> sizes(static_cast<size_t>(get()));
  for (int64_t& size : sizes) size = get();
  at::Tensor tensor = at::empty(sizes, dtype);
  REQUIRE(static_cast<size_t>(next - bytes.data()) + tensor.nbytes() == bytes.size());
  if (tensor.numel() > 0) std::memcpy(tensor.data_ptr(), next, tensor.nbytes());
  return tensor;
}

// Units [first, last) of the chain in a model of its own, as in a process of its own.
struct Stage {
  std::unique_ptr<SmallModel> model;
  int first = 0, last = 0;
  std::unique_ptr<Store> store = nullptr;

  Executor& executor() const { return model->executor(); }
  bool is_first() const { return first == 0; }
  bool is_last() const { return last == model->chain().size(); }
};

// Every live tensor leaves one store and enters the next one; nothing else does.
void send_forward(Stage& from, Stage& to) {
  for (const int version : from.model->chain().live_at(to.first)) {
    to.executor().put(*to.store, version,
                      from_bytes(to_bytes(from.executor().take(*from.store, version))));
  }
}

void send_backward(Stage& from, Stage& to) {
  const Chain& chain = from.model->chain();
  for (const int version : chain.live_at(from.first)) {
    if (!chain.versions()[version].needs_grad) continue;
    to.executor().add_gradient(
        *to.store, version,
        from_bytes(to_bytes(from.executor().take_gradient(*from.store, version))));
  }
}

// One step over the mixed rows; every stage has the rows, as every rank of a pipeline has.
Outcome run_stages(std::vector<Stage>& stages) {
  for (Stage& stage : stages) begin_step(*stage.model);
  const size_t rows = mixed_rows(*stages[0].model).size();
  for (size_t row = 0; row < rows; ++row) {
    for (size_t i = 0; i < stages.size(); ++i) {
      Stage& stage = stages[i];
      stage.store = stage.executor().begin(std::move(mixed_rows(*stage.model)[row]),
                                           static_cast<int64_t>(row), true);
      if (i > 0) send_forward(stages[i - 1], stage);
      stage.executor().forward(*stage.store, stage.first, stage.last);
    }
    for (size_t i = stages.size(); i-- > 0;) {
      Stage& stage = stages[i];
      stage.executor().backward(*stage.store, stage.first, stage.last);
      if (i > 0) send_backward(stage, stages[i - 1]);
    }
  }
  Outcome outcome;
  for (Stage& stage : stages) {
    collect(*stage.model, stage.first, stage.last, outcome);
    // What belongs to the other stages was never touched here.
    Outcome others;
    collect_gradients(*stage.model, 0, stage.first, others);
    collect_gradients(*stage.model, stage.last, stage.model->chain().size(), others);
    for (const auto& [name, gradient] : others.gradients) {
      CAPTURE(name);
      CHECK(gradient.abs().sum().item<float>() == 0);
    }
  }
  return outcome;
}

}  // namespace

TEST_CASE("proof: the chain cut at every boundary in turn passes live tensors only") {
  const Outcome expected = oracle();
  std::vector<Stage> stages(2);
  for (Stage& stage : stages) stage.model = std::make_unique<SmallModel>(small_blocks());
  const int units = stages[0].model->chain().size();
  REQUIRE(units == 12);
  for (int cut = 1; cut < units; ++cut) {
    CAPTURE(cut);
    stages[0].first = 0;
    stages[0].last = stages[1].first = cut;
    stages[1].last = units;
    check_bitwise(run_stages(stages), expected);
  }
}

TEST_CASE("proof: every unit is a stage of its own; what is read further on is relayed") {
  std::vector<Stage> stages;
  for (int unit = 0; stages.empty() || unit < stages[0].model->chain().size(); ++unit) {
    stages.push_back({std::make_unique<SmallModel>(small_blocks()), unit, unit + 1});
  }
  const Outcome found = run_stages(stages);
  check_all_trained(found);
  check_bitwise(found, oracle());
}

TEST_CASE(
    "proof: a stage takes those tensors of the batch that its units read, and no pixels more") {
  SmallModel model(small_blocks());
  Executor& executor = model.executor();
  const int units = model.chain().size();
  begin_step(model);
  const auto kept = [&](const std::vector<UnitRange>& ranges, const char* name) {
    const auto store = executor.begin(std::move(mixed_rows(model)[0]), 0, true, ranges);
    return executor.tensor(*store, name).defined();
  };
  CHECK(kept({}, "patches"));
  CHECK(kept({{0, 1}}, "patches"));
  CHECK(kept({{6, 8}, {0, 1}}, "patches"));
  CHECK_FALSE(kept({{1, units}}, "patches"));
  // What the tower's later blocks need is made from the grid.
  CHECK(kept({{1, 2}}, "grid_thw"));
  CHECK_FALSE(kept({{1, 2}}, "tokens"));
  CHECK_FALSE(kept({{0, units - 1}}, "labels"));
  CHECK(kept({{units - 1, units}}, "labels"));
}
