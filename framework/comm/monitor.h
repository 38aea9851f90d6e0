// The thread that exchanges signs of life with the other ranks, so that a dead or stalled rank is
// found and named within run.timeout_s, whatever the communicator does.
//
// Rank 0 hears all ranks and judges (comm/watch.h); the others hear rank 0. Signs of life go over
// connections of their own. Once there is a verdict, the waits of collectives throw it (R2). Where
// the process does not end by that within a moment, this thread ends it.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "comm/activity.h"
#include "comm/line_socket.h"
#include "comm/watch.h"
#include "keyseat/status.h"

namespace keyseat::comm {

struct MonitorSettings {
  int64_t rank = 0, world = 2;
  double timeout_seconds = 300;
  std::string host;  // of rank 0
};

// What rank 0 tells the others before they can connect.
struct MonitorAddress {
  int port = 0;
  std::string key;  // that a peer has to know
};

class KEYSEAT_API Monitor {
 public:
  // Rank 0 listens and gives its address to `publish`; the others get it from `look_up` and
  // connect. Error (R2).
  Monitor(MonitorSettings settings, const std::function<void(const MonitorAddress&)>& publish,
          const std::function<MonitorAddress()>& look_up);
  // Says goodbye and waits for that of the others; in a process that failed, says so.
  ~Monitor();
  Monitor(const Monitor&) = delete;

  Activity& activity() { return activity_; }
  // For comparison with those of the other ranks.
  void report_call(const CallRecord& record);
  // Called on the thread of this monitor when the verdict is there.
  void on_verdict(std::function<void()> function);

  // Throws the verdict where there is one.
  void check() const;
  // The same, after up to `seconds` of waiting for one.
  void check_soon(double seconds) const;

 private:
  struct Peer {
    LineSocket socket;
    int64_t rank = -1;  // -1: has not said who it is
  };
  void run();
  void loop_once();
  void wait_for_events();
  void accept_peers();
  void read_peers();
  void read_peer(Peer& peer);
  void take_line(Peer& peer, const std::string& line);
  void take_hello(Peer& peer, const std::string& line);
  void send_beat();
  void send_calls();
  void judge();
  void announce(Verdict verdict);
  void end_process_when_due();
  void say_goodbye();
  bool may_leave() const;
  void wake();

  MonitorSettings settings_;
  double interval_, limit_, grace_;
  MonitorAddress address_;
  int listener_ = -1, wake_ = -1;
  std::vector<std::unique_ptr<Peer>> peers_;  // rank 0: all others; else rank 0
  Watch watch_;
  CallCheck call_check_;
  Activity activity_;
  double last_loop_ = 0, last_beat_ = 0, end_at_ = -1, leave_at_ = -1;

  mutable std::mutex mutex_;
  std::vector<CallRecord> calls_;  // not sent yet
  std::function<void()> on_verdict_;
  std::optional<Verdict> verdict_;
  std::atomic<bool> has_verdict_{false};
  std::atomic<bool> closing_{false}, failing_{false}, closed_{false};
  bool goodbye_sent_ = false;
  int uncaught_ = 0;  // exceptions in flight at construction
  std::thread thread_;
};

// True once a verdict names another rank: the error that ends this process is not its own.
KEYSEAT_API bool lost_a_peer();
void note_lost_peer();  // the same before there is a monitor: another rank did not come
// True once there is any verdict: threads of communicators may never end, so leave by _exit.
KEYSEAT_API bool job_is_over();

}  // namespace keyseat::comm
