// Hugging Face weights in and out of a chain: names, expert layouts, tied copies.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "keyseat/chain.h"
#include "keyseat/safetensors.h"

namespace keyseat::checkpoint {

// Receives / gives one whole parameter, fp32, in Keyseat's shape (ParamSpec::shape).
using WriteParam = std::function<void(int unit, int param, const at::Tensor& value)>;
using ReadParam = std::function<at::Tensor(int unit, int param)>;

struct WeightReport {
  std::vector<std::string> missing;     // names the chain needs and the file lacks
  std::vector<std::string> unexpected;  // names of the file that no parameter took
  std::vector<std::string> mis_shaped;  // "name: file [2, 3], model [3, 2]"
  int64_t loaded = 0;                   // parameters written
  bool clean() const { return missing.empty() && unexpected.empty() && mis_shaped.empty(); }
  std::string text() const;  // one line per finding, at most 20 of each kind
};

// Reads every parameter that the file has. Expert layouts are found out by name and shape; where
// gate_up and down of a layer are both square the declared layout decides. Nothing is written for
// missing or mis-shaped ones.
WeightReport load_hf_weights(const Chain& chain, const SafetensorsReader& file,
                             const WriteParam& write);

// The chain's parameters as a checkpoint holds them: in chain order, tied copies once, experts in
// ParamSpec::checkpoint_layout, or as `like` holds them. `read` may give anything of the
// parameter's shape: masters, gradients; what it leaves undefined is left out.
std::vector<std::pair<std::string, at::Tensor>> to_hf_tensors(
    const Chain& chain, const ReadParam& read, const SafetensorsReader* like = nullptr);

// The layouts in which `file` holds this chain's experts, by parameter: (unit, param) -> layout;
// empty for other parameters.
CheckpointLayout stored_layout(const SafetensorsReader& file, const UnitSpec& unit,
                               const ParamSpec& param);

}  // namespace keyseat::checkpoint
