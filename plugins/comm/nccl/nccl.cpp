#include "nccl.h"

#include <fmt/format.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "nccl_group.h"
#include "nccl_work.h"

namespace keyseat_comm_nccl {

using keyseat::Code;
using keyseat::CommChannel;
using keyseat::Error;
using keyseat::Problem;
using keyseat::Problems;
using keyseat::Rendezvous;

keyseat::OptionSchema Nccl::options() { return {}; }

Nccl::Nccl(const keyseat::Options& /*options*/, const keyseat::PluginHost& /*host*/) {}

Nccl::~Nccl() = default;

Problems Nccl::validate(const Rendezvous& rendezvous) const {
  Problems problems;
  if (!rendezvous.device.is_cuda()) {
    problems.push_back({Code::kC4Combination,
                        {},
                        "comm/nccl moves CUDA tensors, but run.device is \"cpu\"",
                        "",
                        "Choose comm/shm or comm/gloo, or set run.device."});
  }
  return problems;
}

void Nccl::connect(const Rendezvous& rendezvous) {
  Problems problems = validate(rendezvous);
  if (!problems.empty()) throw Error(std::move(problems));
  rendezvous_ = rendezvous;
  connected_ = true;
}

keyseat::CommGroup& Nccl::group(const std::vector<int64_t>& ranks, CommChannel channel) {
  if (!connected_) {
    throw Error(
        Problem{Code::kR4Contract, {}, "comm/nccl: group() was called before connect()", "", ""});
  }
  auto& found = groups_[{ranks, channel}];
  if (found != nullptr) return *found;
  const auto own = std::find(ranks.begin(), ranks.end(), rendezvous_.rank) - ranks.begin();
  const std::string key =
      fmt::format("nccl/{}/{}", static_cast<int>(channel), fmt::join(ranks, ","));
  ncclUniqueId id{};
  auto* const bytes = reinterpret_cast<uint8_t*>(&id);
  if (own == 0) {
    require(ncclGetUniqueId(&id), "ncclGetUniqueId");
    if (ranks.size() > 1)
      rendezvous_.store->set(key, std::vector<uint8_t>(bytes, bytes + sizeof(id)));
  } else {
    const std::vector<uint8_t> value = rendezvous_.store->get(key);
    std::copy_n(value.begin(), std::min(value.size(), sizeof(id)), bytes);
  }
  auto made =
      std::make_unique<NcclGroup>(id, own, static_cast<int64_t>(ranks.size()), rendezvous_.device);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (aborted_) made->abort();
  found = std::move(made);
  return *found;
}

void Nccl::abort() {
  const std::lock_guard<std::mutex> lock(mutex_);
  aborted_ = true;
  for (auto& [key, group] : groups_) {
    if (group != nullptr) group->abort();
  }
}

}  // namespace keyseat_comm_nccl
