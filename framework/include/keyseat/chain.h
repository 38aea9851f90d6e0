// The chain: the units of all blocks in order, over versioned named tensors.
//
// Each write makes a new version of a name; a read binds, when the chain is built, to the latest
// earlier version. needs_grad of every version is decided here, never from tensors.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "keyseat/export.h"
#include "keyseat/interfaces/block.h"
#include "keyseat/mesh.h"
#include "keyseat/status.h"

namespace keyseat {

struct Version {
  std::string name;
  TensorSpec spec;           // the writer's; for batch and derived tensors the first reader's
  int writer = -1;           // unit; -1: batch or derived
  int derived = -1;          // index into Chain::derived(), or -1
  std::vector<int> readers;  // units, ascending; of a batch tensor also those that read it through
                             // a derived one
  bool needs_grad = false;   // something trainable in or before its writer, and differentiable
};

// A parameter by its place: the unit in the chain, the ParamSpec in the unit.
struct ParamRef {
  int unit = -1;
  int param = -1;
  bool operator==(const ParamRef&) const = default;
};

struct ChainUnit {
  std::string block;  // name of its block in the config
  std::string name;   // "decoder.layers.3"; of a conversion "vision.convert.vision.merged"
  std::unique_ptr<Unit> unit;
  std::vector<int> reads;  // versions, in spec order
  std::vector<int> writes;
  std::vector<std::string> param_names;  // global: "decoder.layers.3.q_proj"
  std::vector<ParamRef> owners;  // per parameter: itself, or the first unit's of its tie group
  bool trainable = false;        // has parameters and its block is not frozen
  bool runs_backward = false;  // trainable, or a read needs grad; and some write is differentiable
};

struct NamedBlock {
  std::string name;
  std::string plugin;  // "block/qwen3_moe", for messages
  std::shared_ptr<Block> block;
  SourcePosition where;
};

class KEYSEAT_API Chain {
 public:
  // Problems (C4, all at once): a read without a writer, dims or dtypes of writer and reader that
  // disagree, an unknown or ambiguous anchor, equal names, tie groups that differ in shape or are
  // half frozen, InputSpecs that contradict, an unknown block in `freeze` (names of blocks). The
  // chain is usable only where there are none.
  // `mesh`: where a reader wants another layout than the writer gives, and the mesh tells them
  // apart, a conversion unit "convert.NAME" (a second one of a block: "convert.NAME.2") stands
  // directly behind the writer, and such readers are bound to its version. C4 where there is none:
  // the batch, derived tensors, tensors without rows.
  static Chain build(std::vector<NamedBlock> blocks, const std::vector<std::string>& freeze,
                     Problems& problems, const Mesh& mesh = {});

  const std::vector<ChainUnit>& units() const { return units_; }
  const std::vector<Version>& versions() const { return versions_; }
  const std::vector<DerivedSpec>& derived() const { return derived_; }
  // Versions (of batch tensors) that derived tensor `index` is made from, in the order of its spec.
  const std::vector<int>& derived_reads(int index) const { return derived_reads_.at(index); }
  const std::vector<NamedBlock>& blocks() const { return blocks_; }
  const InputSpec& input() const { return input_; }
  int size() const { return static_cast<int>(units_.size()); }
  // Versions written before and read at or after `cut` (0..size()): what has to cross a pipeline
  // boundary there.
  std::vector<int> live_at(int cut) const;
  // How many times its forward work a unit runs in training: forward, weight gradients where it is
  // trained, input gradients where something before it is.
  double passes(int unit) const;
  int64_t parameter_count() const;  // tied groups once
  int64_t trainable_count() const;

 private:
  friend class ChainBuilder;
  int64_t count(bool trainable_only) const;
  std::vector<NamedBlock> blocks_;  // before the units: a block outlives its units
  std::vector<ChainUnit> units_;
  std::vector<Version> versions_;
  std::vector<DerivedSpec> derived_;
  std::vector<std::vector<int>> derived_reads_;
  InputSpec input_;
};

}  // namespace keyseat
