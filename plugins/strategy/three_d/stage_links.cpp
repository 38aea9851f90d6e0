#include "stage_links.h"

#include <set>

namespace keyseat_strategy_three_d {

using namespace keyseat;

namespace {

// The message that an action ends with, and the one that it begins with; cut 0 where there is none.
Message message_after(const Action& action, int chunks) {
  const int cut = action.backward ? action.chunk : action.chunk + 1;
  return {action.backward, action.micro_batch, cut < chunks ? cut : 0};
}

Message message_before(const Action& action, int chunks) {
  const int cut = action.backward ? action.chunk + 1 : action.chunk;
  return {action.backward, action.micro_batch, cut < chunks ? cut : 0};
}

// Pairs of stages that exchange messages, each direction once, in one order on every rank.
std::set<std::pair<int64_t, int64_t>> directions(const Pipeline& pipeline) {
  std::set<std::pair<int64_t, int64_t>> pairs;
  for (int cut = 1; cut < pipeline.chunks(); ++cut) {
    const int64_t before = pipeline.stage_of(cut - 1), behind = pipeline.stage_of(cut);
    pairs.insert({before, behind});
    pairs.insert({behind, before});
  }
  return pairs;
}

}  // namespace

void StageLinks::Transfer::wait() {
  for (const auto& work : works) work->wait();
  works.clear();
}

StageLinks::StageLinks(const Chain& chain, const Stages& stages, const Mesh& mesh, Comm& comm,
                       at::ScalarType compute_dtype, at::Device device)
    : chain_(chain),
      stages_(stages),
      stage_(mesh.coordinate(Axis::kPipeline)),
      device_(device),
      crossings_(crossings_of(chain, stages, compute_dtype)) {
  const std::vector<int64_t> ranks = mesh.group({Axis::kPipeline});
  for (const auto& [from, to] : directions(stages.pipeline())) {
    if (from != stage_ && to != stage_) continue;
    CommGroup& group =
        comm.group({ranks[static_cast<size_t>(from)], ranks[static_cast<size_t>(to)]});
    if (from == stage_) {
      peers_[to].out = &group;
    } else {
      peers_[from].in = &group;
    }
  }
}

int64_t StageLinks::sender_of(const Message& message) const {
  return stages_.pipeline().stage_of(message.backward ? message.cut : message.cut - 1);
}

int64_t StageLinks::receiver_of(const Message& message) const {
  return stages_.pipeline().stage_of(message.backward ? message.cut - 1 : message.cut);
}

void StageLinks::begin_step(std::vector<RowSizes> rows, bool training) {
  rows_ = std::move(rows);
  const int chunks = stages_.chunks();
  for (auto& [stage, peer] : peers_) {
    peer.taken_by.clear();
    const auto actions =
        stage_actions(stages_.pipeline(), static_cast<int64_t>(rows_.size()), stage, training);
    for (size_t i = 0; i < actions.size(); ++i) {
      const Message sends = message_after(actions[i], chunks);
      if (sends.cut > 0 && receiver_of(sends) == stage_ && !parcels(sends).empty())
        peer.coming.push_back({sends, i});
      peer.taken_by[message_before(actions[i], chunks)] = i;
    }
    if (!peer.coming.empty()) ask_for(peer.coming.front(), peer);
  }
}

void StageLinks::send(const Message& message, Executor& executor, Store& store) {
  if (parcels(message).empty()) return;
  Peer& peer = peers_.at(receiver_of(message));
  Sent sent{peer.taken_by.at(message), {}};
  for (const Parcel& parcel : parcels(message)) {
    std::vector<at::Tensor> tensors;
    for (int version : parcel.versions) {
      tensors.push_back(message.backward ? executor.take_gradient(store, version)
                                         : executor.take(store, version));
    }
    sent.transfer.tensors.push_back(pack(parcel, tensors));
    sent.transfer.works.push_back(peer.out->send(sent.transfer.tensors.back(), 1));
  }
  peer.sent.push_back(std::move(sent));
}

void StageLinks::receive(const Message& message, Executor& executor, Store& store) {
  if (parcels(message).empty()) return;
  Peer& peer = peers_.at(sender_of(message));
  while (!peer.arrived.contains(message)) take_next(peer);
  const Transfer transfer = std::move(peer.arrived.extract(message).mapped());
  const RowSizes& sizes = rows_[static_cast<size_t>(message.micro_batch)];
  for (size_t i = 0; i < parcels(message).size(); ++i) {
    const Parcel& parcel = parcels(message)[i];
    const auto tensors = unpack(parcel, chain_, sizes, transfer.tensors[i]);
    for (size_t j = 0; j < tensors.size(); ++j) {
      if (message.backward) {
        executor.add_gradient(store, parcel.versions[j], tensors[j]);
      } else {
        executor.put(store, parcel.versions[j], tensors[j]);
      }
    }
  }
}

void StageLinks::ask_for(Coming& coming, Peer& peer) {
  if (std::exchange(coming.asked_for, true)) return;
  const RowSizes& sizes = rows_[static_cast<size_t>(coming.message.micro_batch)];
  for (const Parcel& parcel : parcels(coming.message)) {
    coming.transfer.tensors.push_back(room_for(parcel, chain_, sizes, device_));
    coming.transfer.works.push_back(peer.in->receive(coming.transfer.tensors.back(), 0));
  }
}

void StageLinks::take_next(Peer& peer) {
  Coming coming = std::move(peer.coming.front());
  peer.coming.pop_front();
  ask_for(coming, peer);
  coming.transfer.wait();
  // The peer has got to the action that sent this, and has taken what it needed before.
  while (!peer.sent.empty() && peer.sent.front().receiver_action <= coming.sender_action) {
    peer.sent.front().transfer.wait();
    peer.sent.pop_front();
  }
  peer.arrived.emplace(coming.message, std::move(coming.transfer));
  if (!peer.coming.empty()) ask_for(peer.coming.front(), peer);
}

void StageLinks::finish_step() {
  for (auto& [stage, peer] : peers_) {
    for (Sent& sent : peer.sent) sent.transfer.wait();
    peer.sent.clear();
  }
}

}  // namespace keyseat_strategy_three_d
