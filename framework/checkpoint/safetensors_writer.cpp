#include "checkpoint/safetensors_stream.h"
#include "keyseat/safetensors.h"

namespace keyseat {

void write_safetensors(const std::string& path,
                       const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<checkpoint::PlannedTensor> plan;
  for (const auto& [name, tensor] : tensors)
    plan.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
  checkpoint::SafetensorsStream file(path, std::move(plan), metadata);
  for (const auto& [name, tensor] : tensors) file.write(tensor);
  file.finish();
}

}  // namespace keyseat
