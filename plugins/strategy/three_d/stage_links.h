// Moves what crosses the cuts from stage to stage.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "crossings.h"
#include "keyseat/interfaces/comm.h"

namespace keyseat_strategy_three_d {

// The tensors in front of chunk `cut`, or the gradients of them.
struct Message {
  bool backward = false;
  int64_t micro_batch = 0;
  int cut = 0;
  auto operator<=>(const Message&) const = default;
};

// Every stage knows the actions of its neighbours, so it takes their messages in the order in which
// they are sent, one of them asked for ahead of its use. Each direction between two ranks is a
// group of its own: on a device, where messages of a group queue up, no stage waits for its own
// send. A sent tensor is held until a message of the receiver shows that it has been taken.
class StageLinks {
 public:
  StageLinks(const keyseat::Chain& chain, const Stages& stages, const keyseat::Mesh& mesh,
             keyseat::Comm& comm, at::ScalarType compute_dtype, at::Device device);

  void begin_step(std::vector<RowSizes> rows, bool training);
  // Out of the store, to the stage that runs the other side of the cut; and from there into it.
  void send(const Message& message, keyseat::Executor& executor, keyseat::Store& store);
  void receive(const Message& message, keyseat::Executor& executor, keyseat::Store& store);
  void finish_step();

 private:
  struct Transfer {
    std::vector<at::Tensor> tensors;  // by parcel; alive until the works are done
    std::vector<std::unique_ptr<keyseat::Work>> works;
    void wait();
  };
  struct Coming {
    Message message;
    size_t sender_action;  // its index
    Transfer transfer = {};
    bool asked_for = false;
  };
  struct Sent {
    size_t receiver_action;  // by which it has been taken
    Transfer transfer;
  };
  struct Peer {
    keyseat::CommGroup *out = nullptr, *in = nullptr;
    std::deque<Coming> coming;
    std::map<Message, Transfer> arrived;
    std::map<Message, size_t> taken_by;  // messages to it: its action that takes them
    std::deque<Sent> sent;
  };
  int64_t sender_of(const Message& message) const;
  int64_t receiver_of(const Message& message) const;
  const std::vector<Parcel>& parcels(const Message& message) const {
    return crossings_[static_cast<size_t>(message.cut)].parcels(message.backward);
  }
  void ask_for(Coming& coming, Peer& peer);
  void take_next(Peer& peer);

  const keyseat::Chain& chain_;
  const Stages& stages_;
  const int64_t stage_;
  const at::Device device_;
  const std::vector<Crossing> crossings_;
  std::map<int64_t, Peer> peers_;  // by stage
  std::vector<RowSizes> rows_;     // of this step
};

}  // namespace keyseat_strategy_three_d
