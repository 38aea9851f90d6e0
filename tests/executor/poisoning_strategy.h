// A strategy whose parameters can be read only between gather and release, as sharded ones.
#pragma once

#include "keyseat/interfaces/strategy.h"

namespace keyseat::testing {

// The parameters of one unit as views of one storage per dtype. Gather gives every storage fresh
// memory with the values of the masters; release takes it away and leaves NaN, in what the storages
// point to then and in what they pointed to before. All below autograd: same tensors, same
// StorageImpl, no version bump.
class ParameterWindow {
 public:
  ParameterWindow(const Chain& chain, int unit, at::ScalarType compute_dtype, Strategy& masters);

  void gather();
  void release();
  // Sinks are there only from here to hide_sinks().
  void show_sinks();
  void hide_sinks();
  bool is_open() const { return open_; }
  // Whether everything that lies outside of the window still is NaN: nobody wrote there.
  bool untouched() const;
  const Params& trained() const { return trained_; }
  const Params& untracked() const { return untracked_; }

 private:
  struct Flat {
    at::Tensor memory;  // 1-D; its StorageImpl is the one whose memory is swapped
    std::vector<int> params;
    std::vector<int64_t> begin;
  };
  struct Block {  // memory that was the storage's once
    at::DataPtr data;
    size_t bytes;
  };
  void swap_in(Flat& flat, Block block);
  Block poisoned(size_t bytes) const;

  const ChainUnit& unit_;
  int index_;
  Strategy& masters_;
  bool open_ = false, written_outside_ = false;
  std::vector<Flat> flats_;
  std::vector<Block> retired_;
  std::vector<c10::intrusive_ptr<ParamState>> states_;  // of `trained`
  Params trained_, untracked_;
};

// Masters, gradients and optimizer state are those of strategy/single.
class PoisoningStrategy final : public Strategy {
 public:
  explicit PoisoningStrategy(std::shared_ptr<Strategy> single) : single_(std::move(single)) {}

  bool gathers_for_backward = true;  // false: what has to go wrong then is tested, too
  std::vector<int> backwards;        // units whose backward was asked for, in order
  bool all_closed() const;           // every window is closed and what lies outside untouched
  int most_open() const { return most_open_; }

  MeshDegrees degrees(int64_t world) const override { return single_->degrees(world); }
  Problems validate(const StrategyFacts& facts, const Chain& chain) const override {
    return single_->validate(facts, chain);
  }
  void place(const StrategyFacts& facts, const Chain& chain, const Mesh& mesh, Comm& comm) override;
  void schedule(StepPlan plan, Executor& executor) override;
  void finish() override { single_->finish(); }
  std::vector<OptimizerShard>& shards(int64_t states) override { return single_->shards(states); }
  std::vector<NormGroup> norm_groups() override { return single_->norm_groups(); }
  void after_update() override { single_->after_update(); }
  at::Tensor read_master(int unit, int param) override { return single_->read_master(unit, param); }
  void write_master(int unit, int param, const at::Tensor& value) override {
    single_->write_master(unit, param, value);
  }
  at::Tensor read_gradient(int unit, int param) override {
    return single_->read_gradient(unit, param);
  }
  at::Tensor read_state(int unit, int param, int64_t state) override {
    return single_->read_state(unit, param, state);
  }
  void write_state(int unit, int param, int64_t state, const at::Tensor& value) override {
    single_->write_state(unit, param, state, value);
  }
  MemoryEstimate estimate(const StrategyFacts& facts, const Chain& chain,
                          const WorkloadShape& shape, int64_t states) const override {
    return single_->estimate(facts, chain, shape, states);
  }

  const Params& before_forward(int unit, bool training) override;
  void after_forward(int unit) override { windows_[unit]->release(); }
  const Params& before_backward(int unit) override;
  void after_backward(int unit) override;
  void close_all();

 private:
  void gather(int unit);
  std::shared_ptr<Strategy> single_;
  std::vector<std::unique_ptr<ParameterWindow>> windows_;
  int most_open_ = 0;
};

}  // namespace keyseat::testing
