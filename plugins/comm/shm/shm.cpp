#include "shm.h"

#include <fmt/format.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace keyseat_comm_shm {

using keyseat::Code;
using keyseat::Error;
using keyseat::Problem;
using keyseat::Problems;
using keyseat::Rendezvous;

namespace {

constexpr double kSmallestRing = 65536, kLargestRing = 1 << 30;
constexpr size_t kMessageShare = 4;  // rings of messages are smaller by this

std::vector<uint8_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

keyseat::OptionSchema Shm::options() {
  return {keyseat::Option("ring_bytes", keyseat::OptionType::kSize)
              .defaults_to(int64_t{1} << 20)
              .range(kSmallestRing, kLargestRing)
              .unit("bytes")
              .level(keyseat::OptionLevel::kTuning)
              .doc("Shared memory from each rank to each other one; a quarter more for messages. "
                   "What does not fit waits until the receiver takes it.")};
}

Problems Shm::validate(const keyseat::Options& options) {
  const int64_t ring = options.get_int("ring_bytes");
  if (ring % static_cast<int64_t>(kLine * kMessageShare) == 0) return {};
  return {options.problem(Code::kC3Value, "ring_bytes",
                          fmt::format("{} is no multiple of {}", ring, kLine * kMessageShare),
                          "rings consist of whole cache lines")};
}

Shm::Shm(const keyseat::Options& options, const keyseat::PluginHost& /*host*/)
    : ring_bytes_(static_cast<size_t>(options.get_int("ring_bytes"))) {}

Problems Shm::validate(const Rendezvous& rendezvous) const {
  Problems problems;
  const auto refuse = [&](std::string what, std::string why, std::string remedy) {
    problems.push_back(
        {Code::kC4Combination, {}, std::move(what), std::move(why), std::move(remedy)});
  };
  if (rendezvous.world == 1) {
    refuse("comm/shm connects ranks, but this is a world of one", "",
           "Leave comm.plugin unset, or launch more ranks.");
  }
  if (rendezvous.hosts > 1) {
    refuse(fmt::format("comm/shm serves one host, but the {} ranks are on {}", rendezvous.world,
                       rendezvous.hosts),
           "hosts share no memory", "Choose comm/gloo.");
  }
  if (!rendezvous.device.is_cpu()) {
    refuse("comm/shm moves CPU tensors, but run.device is \"cuda\"", "", "Choose comm/nccl.");
  }
  return problems;
}

void Shm::connect(const Rendezvous& rendezvous) {
  Problems problems = validate(rendezvous);
  if (!problems.empty()) throw Error(std::move(problems));
  rank_ = rendezvous.rank;
  Segment::Shape shape;
  shape.world = rendezvous.world;
  shape.ring_bytes[kCollectives] = ring_bytes_;
  shape.ring_bytes[kMessages] = ring_bytes_ / kMessageShare;
  c10d::Store& store = *rendezvous.store;
  std::string address;
  const auto mine =
      rank_ == 0 ? std::make_unique<Segment>(Segment::create(shape, address)) : nullptr;
  if (mine != nullptr) {
    store.set("shm/address", bytes(address));
  } else {
    const std::vector<uint8_t> value = store.get("shm/address");
    address.assign(value.begin(), value.end());
  }
  Segment segment = mine != nullptr ? std::move(*mine) : Segment::open(shape, address);
  // The first rank keeps it open until all have mapped it.
  if (store.add("shm/mapped", 1) == rendezvous.world) store.set("shm/complete", bytes("1"));
  store.wait({"shm/complete"});
  segment.close_descriptor();
  engine_ = std::make_shared<Engine>(std::move(segment), rank_, rendezvous.world);
}

keyseat::CommGroup& Shm::group(const std::vector<int64_t>& ranks,
                               keyseat::CommChannel /*channel*/) {
  if (engine_ == nullptr) {
    throw Error(
        Problem{Code::kR4Contract, {}, "comm/shm: group() was called before connect()", "", ""});
  }
  auto& found = groups_[ranks];
  if (found == nullptr) {
    const auto own = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
    found = std::make_unique<ShmGroup>(engine_, ranks, own);
  }
  return *found;
}

}  // namespace keyseat_comm_shm
