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
#include "keyseat/status.h"

namespace keyseat {

struct Version {
  std::string name;
  TensorSpec spec;           // the writer's; for batch and derived tensors the first reader's
  int writer = -1;           // unit; -1: batch or derived
  int derived = -1;          // index into Chain::derived(), or -1
  std::vector<int> readers;  // units, ascending
  bool needs_grad = false;   // something trainable in or before its writer, and differentiable
};

struct ChainUnit {
  std::string block;  // name of its block in the config
  std::string name;   // "decoder.layers.3"
  std::unique_ptr<Unit> unit;
  std::vector<int> reads;  // versions, in spec order
  std::vector<int> writes;
  std::vector<std::string> param_names;  // global: "decoder.layers.3.q_proj"
  bool trainable = false;                // has parameters and its block is not frozen
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
  // Problems (C4): a read without a writer, dims that disagree, an unknown anchor, an unknown block
  // in `freeze`, equal names. `freeze`: names of blocks.
  static Chain build(std::vector<NamedBlock> blocks, const std::vector<std::string>& freeze,
                     Problems& problems);

  const std::vector<ChainUnit>& units() const { return units_; }
  const std::vector<Version>& versions() const { return versions_; }
  const std::vector<DerivedSpec>& derived() const { return derived_; }
  const std::vector<NamedBlock>& blocks() const { return blocks_; }
  const InputSpec& input() const { return input_; }
  int size() const { return static_cast<int>(units_.size()); }
  // Versions written before and read at or after `cut` (0..size()): what has to cross a pipeline
  // boundary there.
  std::vector<int> live_at(int cut) const;
  int64_t parameter_count() const;  // tied groups once
  int64_t trainable_count() const;

 private:
  std::vector<NamedBlock> blocks_;
  std::vector<ChainUnit> units_;
  std::vector<Version> versions_;
  std::vector<DerivedSpec> derived_;
  InputSpec input_;
};

}  // namespace keyseat
