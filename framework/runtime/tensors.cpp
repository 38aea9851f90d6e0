#include "keyseat/tensors.h"

#include "keyseat/status.h"

namespace keyseat {

Tensors::Tensors(std::initializer_list<std::pair<std::string, at::Tensor>> items) {
  for (const auto& [name, tensor] : items) set(name, tensor);
}

const at::Tensor& Tensors::at(const std::string& name) const {
  for (const auto& item : items_) {
    if (item.first == name) return item.second;
  }
  std::string present;
  for (const auto& item : items_) present += (present.empty() ? "" : ", ") + item.first;
  throw Error({Code::kR4Contract,
               {},
               fmt::format("there is no tensor \"{}\" here", name),
               fmt::format("a unit sees exactly the tensors that it declares as read: {}",
                           present.empty() ? "none" : present),
               "add the name to UnitSpec::reads"});
}

at::Tensor Tensors::get(const std::string& name) const {
  for (const auto& item : items_) {
    if (item.first == name) return item.second;
  }
  return {};
}

bool Tensors::has(const std::string& name) const {
  return std::any_of(items_.begin(), items_.end(),
                     [&](const auto& item) { return item.first == name; });
}

void Tensors::set(const std::string& name, at::Tensor tensor) {
  for (auto& item : items_) {
    if (item.first == name) {
      item.second = std::move(tensor);
      return;
    }
  }
  items_.emplace_back(name, std::move(tensor));
}

void Tensors::erase(const std::string& name) {
  std::erase_if(items_, [&](const auto& item) { return item.first == name; });
}

}  // namespace keyseat
