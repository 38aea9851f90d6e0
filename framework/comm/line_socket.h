// TCP connections that carry lines of text and never block.
#pragma once

#include <string>
#include <vector>

#include "keyseat/status.h"

namespace keyseat::comm {

// Owns a connected socket.
class LineSocket {
 public:
  LineSocket() = default;
  explicit LineSocket(int descriptor);
  ~LineSocket();
  LineSocket(LineSocket&& other) noexcept;
  LineSocket& operator=(LineSocket&& other) noexcept;

  bool open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  bool has_unsent() const { return !unsent_.empty(); }
  // Queues a line and sends what the connection takes.
  void send(const std::string& line);
  void flush();
  // Lines that have arrived whole. The connection is closed at its end or on an error.
  std::vector<std::string> receive();
  void close();

 private:
  int descriptor_ = -1;
  std::string unsent_, received_;
};

// Listens on a free port, on the loopback interface only or on all. Error (R2).
int listen_on(bool loopback_only, int& port);

// Connects within `seconds`. Error (R2).
LineSocket connect_to(const std::string& host, int port, double seconds);

bool is_loopback(const std::string& host);

}  // namespace keyseat::comm
