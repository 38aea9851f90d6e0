#include "gloo.h"

#include <fmt/format.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "gloo_group.h"

namespace keyseat_comm_gloo {

using keyseat::Code;
using keyseat::CommChannel;
using keyseat::Error;
using keyseat::Problem;
using keyseat::Problems;
using keyseat::Rendezvous;

namespace {

// Death and stall are found by the signs of life of the ranks long before this.
constexpr double kTimeouts = 10;

}  // namespace

struct Device {
  std::shared_ptr<::gloo::transport::Device> gloo;
};

keyseat::OptionSchema Gloo::options() {
  return {keyseat::Option("interface", keyseat::OptionType::kString)
              .optional()
              .level(keyseat::OptionLevel::kTuning)
              .scope(keyseat::OptionScope::kPerRank)
              .doc("Network interface, such as \"eth0\". If unset: the loopback interface where "
                   "all ranks are on one host, else the one of the host's name."),
          keyseat::Option("threads", keyseat::OptionType::kInt)
              .defaults_to(int64_t{2})
              .range(1, 64)
              .unit("threads")
              .level(keyseat::OptionLevel::kTuning)
              .doc("Collectives of one group that can be in progress at a time.")};
}

Gloo::Gloo(const keyseat::Options& options, const keyseat::PluginHost& /*host*/)
    : interface_(options.has("interface") ? options.get_string("interface") : ""),
      threads_(options.get_int("threads")) {}

Gloo::~Gloo() {
  if (!aborted_) return;
  for (auto& [key, group] : groups_) {
    if (group != nullptr) group->leak();
  }
}

Problems Gloo::validate(const Rendezvous& rendezvous) const {
  Problems problems;
  if (rendezvous.world == 1) {
    problems.push_back({Code::kC4Combination,
                        {},
                        "comm/gloo connects ranks, but this is a world of one",
                        "",
                        "Leave comm.plugin unset, or launch more ranks."});
  }
  if (!rendezvous.device.is_cpu()) {
    problems.push_back({Code::kC4Combination,
                        {},
                        "comm/gloo moves CPU tensors, but run.device is \"cuda\"",
                        "",
                        "Choose comm/nccl."});
  }
  return problems;
}

void Gloo::connect(const Rendezvous& rendezvous) {
  Problems problems = validate(rendezvous);
  if (!problems.empty()) throw Error(std::move(problems));
  rendezvous_ = rendezvous;
  device_ = std::make_shared<Device>();
  try {
    if (!interface_.empty()) {
      device_->gloo = c10d::ProcessGroupGloo::createDeviceForInterface(interface_);
    } else if (rendezvous.hosts == 1) {
      device_->gloo = c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1");
    } else {
      device_->gloo = c10d::ProcessGroupGloo::createDefaultDevice();
    }
  } catch (const std::exception& error) {
    throw Error(Problem{Code::kR2Communication,
                        {},
                        "comm/gloo cannot use the network interface",
                        error.what(),
                        "Name one with comm.options.interface; `ip link` lists them."});
  }
}

keyseat::CommGroup& Gloo::group(const std::vector<int64_t>& ranks, CommChannel channel) {
  if (device_ == nullptr) {
    throw Error(
        Problem{Code::kR4Contract, {}, "comm/gloo: group() was called before connect()", "", ""});
  }
  auto& found = groups_[{ranks, channel}];
  if (found != nullptr) return *found;
  const auto own = std::find(ranks.begin(), ranks.end(), rendezvous_.rank) - ranks.begin();
  const std::string name =
      fmt::format("gloo/{}/{}", static_cast<int>(channel), fmt::join(ranks, ","));
  auto store = c10::make_intrusive<c10d::PrefixStore>(
      name, c10::intrusive_ptr<c10d::Store>::reclaim_copy(rendezvous_.store));
  auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::milliseconds(
      static_cast<int64_t>(rendezvous_.timeout_seconds * 1000 * kTimeouts)));
  options->devices.push_back(device_->gloo);
  options->threads = static_cast<int>(threads_);
  auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(
      std::move(store), static_cast<int>(own), static_cast<int>(ranks.size()), std::move(options));
  found = std::make_unique<GlooGroup>(std::move(group), own, static_cast<int64_t>(ranks.size()));
  return *found;
}

}  // namespace keyseat_comm_gloo
