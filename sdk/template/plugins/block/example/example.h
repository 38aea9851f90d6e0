// Block `example`: a projector for vision towers with deepstack taps. m x m patches become one
// visual token: W_out gelu(W_in norm(x)) + W_skip mean(x), where x is the merged patch vector.
#pragma once

#include "keyseat/interfaces/block.h"

namespace keyseat_block_example {

class SkipProjector final : public keyseat::Block {
 public:
  static keyseat::OptionSchema options();
  SkipProjector(const keyseat::Options& options, const keyseat::PluginHost& host);

  // One merger behind the writer of every vision.tap.j, then the one that writes vision.merged.
  std::vector<std::unique_ptr<keyseat::Unit>> units() override;

 private:
  int64_t hidden_, out_hidden_, merge_, taps_;
  double init_std_;
};

}  // namespace keyseat_block_example
