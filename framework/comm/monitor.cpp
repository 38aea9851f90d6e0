#include "comm/monitor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "comm/last_words.h"
#include "runtime/loggers.h"

namespace keyseat::comm {
namespace {

// Shares of the time-out: a rank may be silent for the first, and has the second to end by itself.
constexpr double kSilence = 0.75, kGrace = 0.15;
constexpr double kShortestBeat = 0.05, kLongestBeat = 1.0, kBeatShare = 0.05;
constexpr double kCallDelay = 0.005;  // calls are sent in batches
// What a verdict gets to reach the others before this process closes its connections.
constexpr double kLinger = 0.5;

std::atomic<bool> peer_lost{false}, verdict_known{false};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string own_name() {
  char host[256] = "unknown host";
  gethostname(host, sizeof(host) - 1);
  return fmt::format("process {} on {}", getpid(), host);
}

Problem problem_of(const Verdict& verdict) {
  return Problem{Code::kR2Communication, {}, verdict.text, verdict.detail, ""};
}

// One letter, then JSON: H hello, B beat, C call, F failed, Q goodbye, V verdict.
std::string letter_line(char letter, const std::string& json) {
  std::string line(1, letter);
  line += json;
  return line;
}

std::string beat_line(const ActivityState& state) {
  const nlohmann::json fields = {state.call, state.unit, state.waiting, state.idle_seconds};
  return letter_line('B', fields.dump());
}

std::string verdict_line(const Verdict& verdict) {
  const nlohmann::json fields = {verdict.rank, verdict.text, verdict.detail};
  return letter_line('V', fields.dump());
}

}  // namespace

bool lost_a_peer() { return peer_lost; }
void note_lost_peer() { peer_lost = true; }
bool job_is_over() { return verdict_known; }

Monitor::Monitor(MonitorSettings settings,
                 const std::function<void(const MonitorAddress&)>& publish,
                 const std::function<MonitorAddress()>& look_up)
    : settings_(std::move(settings)),
      interval_(std::clamp(kBeatShare * settings_.timeout_seconds, kShortestBeat, kLongestBeat)),
      limit_(kSilence * settings_.timeout_seconds),
      grace_(kGrace * settings_.timeout_seconds),
      watch_(settings_.world, limit_),
      uncaught_(std::uncaught_exceptions()) {
  wake_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (settings_.rank == 0) {
    std::random_device random;
    address_.key = fmt::format("{:08x}{:08x}", random(), random());
    listener_ = listen_on(is_loopback(settings_.host), address_.port);
    watch_.set_name(0, own_name());
    for (int64_t rank = 0; rank < settings_.world; ++rank) watch_.hear(rank, {}, now());
    publish(address_);
  } else {
    address_ = look_up();
    auto peer = std::make_unique<Peer>();
    peer->socket = connect_to(settings_.host, address_.port, settings_.timeout_seconds);
    peer->rank = 0;
    const nlohmann::json hello = {address_.key, settings_.rank, own_name()};
    peer->socket.send(letter_line('H', hello.dump()));
    peers_.push_back(std::move(peer));
    watch_.hear(0, {}, now());
  }
  last_loop_ = now();
  thread_ = std::thread([this] { run(); });
}

Monitor::~Monitor() {
  failing_ = std::uncaught_exceptions() > uncaught_;
  closing_ = true;
  wake();
  thread_.join();
  if (listener_ >= 0) close(listener_);
  close(wake_);
}

void Monitor::report_call(const CallRecord& record) {
  const std::lock_guard<std::mutex> lock(mutex_);
  calls_.push_back(record);
  if (calls_.size() == 1) wake();
}

void Monitor::on_verdict(std::function<void()> function) {
  const std::lock_guard<std::mutex> lock(mutex_);
  on_verdict_ = std::move(function);
}

void Monitor::check() const {
  if (!has_verdict_) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  throw Error(problem_of(*verdict_));
}

void Monitor::check_soon(double seconds) const {
  const double end = now() + seconds;
  while (!has_verdict_ && now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  check();
}

void Monitor::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof(one));
}

void Monitor::run() {
  while (!closed_) loop_once();
}

void Monitor::loop_once() {
  wait_for_events();
  // Looked at first: the calls that were made before are all sent ahead of the goodbye.
  const bool closing = closing_;
  const double time = now();
  // A process that was itself stopped blames nobody for the silence.
  if (const double gap = time - last_loop_; gap > interval_ + limit_ / 4) watch_.excuse(gap);
  last_loop_ = time;
  accept_peers();
  read_peers();
  send_calls();
  if (time - last_beat_ >= interval_) send_beat();
  judge();
  if (terminating() && has_verdict_) end_at_ = time;
  end_process_when_due();
  if (!closing) return;
  if (!goodbye_sent_) say_goodbye();
  if (has_verdict_ && !failing_) end_at_ = std::min(end_at_, time + kLinger);
  if (!may_leave()) return;
  for (auto& peer : peers_) {
    if (settings_.rank == 0 && !failing_) peer->socket.send("Q");
    peer->socket.flush();
  }
  closed_ = true;
}

void Monitor::say_goodbye() {
  goodbye_sent_ = true;
  leave_at_ = now() + kLinger;
  watch_.ended(settings_.rank);
  if (!failing_) {
    // Rank 0 hosts what the others meet at, so it goes last.
    for (auto& peer : peers_) {
      if (settings_.rank != 0) peer->socket.send("Q");
    }
    return;
  }
  verdict_known = true;
  if (settings_.rank == 0) {
    announce(watch_.failed(0));
  } else {
    for (auto& peer : peers_) peer->socket.send("F");
  }
}

// Orderly: when all have said goodbye. After a failure: when the others know, within a moment.
bool Monitor::may_leave() const {
  // All was done, and then the ranks turn out to disagree: the process ends with that.
  if (has_verdict_ && !failing_) return false;
  if (failing_) {
    const bool others_know = settings_.rank == 0 ? peers_.empty() : has_verdict_.load();
    return others_know || now() > leave_at_;
  }
  return settings_.rank == 0 ? watch_.all_ended() : watch_.has_ended(0);
}

void Monitor::wait_for_events() {
  std::vector<pollfd> events{{wake_, POLLIN, 0}};
  if (listener_ >= 0) events.push_back({listener_, POLLIN, 0});
  for (const auto& peer : peers_) {
    if (!peer->socket.open()) continue;
    const short wanted = peer->socket.has_unsent() ? POLLIN | POLLOUT : POLLIN;
    events.push_back({peer->socket.descriptor(), wanted, 0});
  }
  poll(events.data(), events.size(), static_cast<int>(interval_ * 1000));
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(wake_, &count, sizeof(count));
}

void Monitor::accept_peers() {
  while (listener_ >= 0) {
    const int descriptor = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (descriptor < 0) return;
    auto peer = std::make_unique<Peer>();
    peer->socket = LineSocket(descriptor);
    peers_.push_back(std::move(peer));
  }
}

void Monitor::read_peers() {
  for (auto& peer : peers_) read_peer(*peer);
  std::erase_if(peers_, [](const auto& peer) { return !peer->socket.open(); });
}

void Monitor::read_peer(Peer& peer) {
  peer.socket.flush();
  for (const std::string& line : peer.socket.receive()) {
    try {
      take_line(peer, line);
    } catch (const nlohmann::json::exception&) {
      logger("comm")->warn("a line that no rank sends was received and ignored");
    }
  }
  if (peer.socket.open() || peer.rank < 0 || watch_.has_ended(peer.rank)) return;
  if (!closing_ || settings_.rank == 0) announce(watch_.died(peer.rank));
  watch_.ended(peer.rank);
}

void Monitor::take_hello(Peer& peer, const std::string& line) {
  const nlohmann::json fields = nlohmann::json::parse(line.substr(1));
  const int64_t rank = fields.at(1);
  if (fields.at(0) != address_.key || rank <= 0 || rank >= settings_.world) {
    peer.socket.close();
    return;
  }
  peer.rank = rank;
  watch_.set_name(rank, fields.at(2));
  watch_.hear(rank, {}, now());
}

void Monitor::take_line(Peer& peer, const std::string& line) {
  if (line.empty()) return;
  if (line[0] == 'H' && settings_.rank == 0) return take_hello(peer, line);
  if (peer.rank < 0) return peer.socket.close();
  switch (line[0]) {
    case 'B': {
      const nlohmann::json fields = nlohmann::json::parse(line.substr(1));
      watch_.hear(peer.rank, {fields.at(0), fields.at(1), fields.at(2), fields.at(3)}, now());
      break;
    }
    case 'C':
      if (const auto record = record_of_line(line.substr(1)); record && settings_.rank == 0) {
        if (const auto mismatch = call_check_.add(*record)) announce(Watch::disagree(*mismatch));
      }
      break;
    case 'F':
      watch_.ended(peer.rank);
      announce(watch_.failed(peer.rank));
      break;
    case 'Q':
      watch_.ended(peer.rank);
      break;
    case 'V': {
      const nlohmann::json fields = nlohmann::json::parse(line.substr(1));
      announce({fields.at(0), fields.at(1), fields.at(2)});
      break;
    }
    default:
      break;
  }
}

void Monitor::send_beat() {
  last_beat_ = now();
  const ActivityState state = activity_.state();
  if (settings_.rank == 0) watch_.hear(0, state, last_beat_);
  const std::string line = beat_line(state);
  for (auto& peer : peers_) peer->socket.send(line);
}

void Monitor::send_calls() {
  std::vector<CallRecord> calls;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    calls.swap(calls_);
  }
  if (calls.empty()) return;
  for (const CallRecord& record : calls) {
    if (settings_.rank == 0) {
      if (const auto mismatch = call_check_.add(record)) announce(Watch::disagree(*mismatch));
    } else {
      for (auto& peer : peers_) peer->socket.send(letter_line('C', to_line(record)));
    }
  }
  send_beat();  // with what the rank does now
  std::this_thread::sleep_for(std::chrono::duration<double>(kCallDelay));
}

void Monitor::judge() {
  if (has_verdict_) return;
  if (auto verdict = watch_.judge(now())) announce(std::move(*verdict));
}

void Monitor::announce(Verdict verdict) {
  if (has_verdict_) return;
  if (settings_.rank == 0) {
    for (auto& peer : peers_) peer->socket.send(verdict_line(verdict));
  }
  std::function<void()> abort;
  if (verdict.rank >= 0 && verdict.rank != settings_.rank) peer_lost = true;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    verdict_ = std::move(verdict);
    abort = on_verdict_;
  }
  verdict_known = true;
  has_verdict_ = true;
  end_at_ = now() + grace_;
  if (abort) abort();
}

void Monitor::end_process_when_due() {
  if (end_at_ >= 0 && now() >= end_at_) end_process(problem_of(*verdict_), peer_lost);
}

}  // namespace keyseat::comm
