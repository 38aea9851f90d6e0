#include "comm/line_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

namespace keyseat::comm {
namespace {

constexpr size_t kMostUnread = 1 << 24;  // bytes without a line break: no peer of ours

Error failed(const std::string& what, const std::string& why) {
  return Error(Problem{Code::kR2Communication, {}, what, why, ""});
}

// One address; -1 where it does not answer.
int connect_once(const addrinfo& address, int milliseconds) {
  const int descriptor =
      socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return -1;
  int error = connect(descriptor, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd event{descriptor, POLLOUT, 0};
    socklen_t size = sizeof(error);
    const bool ready = poll(&event, 1, milliseconds) == 1;
    if (!ready || getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
      error = ETIMEDOUT;
    }
  }
  if (error == 0) return descriptor;
  ::close(descriptor);
  errno = error;
  return -1;
}

}  // namespace

LineSocket::LineSocket(int descriptor) : descriptor_(descriptor) {
  const int on = 1;
  setsockopt(descriptor_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  fcntl(descriptor_, F_SETFL, fcntl(descriptor_, F_GETFL) | O_NONBLOCK);
}

LineSocket::~LineSocket() { close(); }

LineSocket::LineSocket(LineSocket&& other) noexcept { *this = std::move(other); }

LineSocket& LineSocket::operator=(LineSocket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(unsent_, other.unsent_);
  std::swap(received_, other.received_);
  return *this;
}

void LineSocket::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

void LineSocket::send(const std::string& line) {
  unsent_ += line;
  unsent_ += '\n';
  flush();
}

void LineSocket::flush() {
  while (open() && !unsent_.empty()) {
    const ssize_t sent = ::send(descriptor_, unsent_.data(), unsent_.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      unsent_.erase(0, static_cast<size_t>(sent));
    } else if (errno != EINTR) {
      return;  // full, or broken: then receive() closes it
    }
  }
}

std::vector<std::string> LineSocket::receive() {
  char buffer[16384];
  while (open()) {
    const ssize_t got = recv(descriptor_, buffer, sizeof(buffer), 0);
    if (got > 0) {
      received_.append(buffer, static_cast<size_t>(got));
      if (received_.size() > kMostUnread) close();
    } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
      close();
    } else if (errno == EAGAIN) {
      break;
    }
  }
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t end = received_.find('\n'); end != std::string::npos;
       end = received_.find('\n', begin)) {
    lines.push_back(received_.substr(begin, end - begin));
    begin = end + 1;
  }
  received_.erase(0, begin);
  return lines;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

int listen_on(bool loopback_only, int& port) {
  const int family = loopback_only ? AF_INET : AF_INET6;
  int descriptor = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_storage storage{};
  auto* const address = reinterpret_cast<sockaddr*>(&storage);
  socklen_t size = 0;
  if (descriptor >= 0 && !loopback_only) {
    const int off = 0;  // IPv4 too
    setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    reinterpret_cast<sockaddr_in6*>(address)->sin6_family = AF_INET6;
    size = sizeof(sockaddr_in6);
  } else {
    if (descriptor < 0) descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    auto* const in = reinterpret_cast<sockaddr_in*>(address);
    in->sin_family = AF_INET;
    in->sin_addr.s_addr = htonl(loopback_only ? INADDR_LOOPBACK : INADDR_ANY);
    size = sizeof(sockaddr_in);
  }
  if (bind(descriptor, address, size) != 0 || listen(descriptor, SOMAXCONN) != 0 ||
      getsockname(descriptor, address, &size) != 0) {
    const int error = errno;
    if (descriptor >= 0) ::close(descriptor);
    throw failed("rank 0 cannot listen for the signs of life of the other ranks",
                 std::strerror(error));
  }
  port = ntohs(storage.ss_family == AF_INET ? reinterpret_cast<sockaddr_in*>(address)->sin_port
                                            : reinterpret_cast<sockaddr_in6*>(address)->sin6_port);
  return descriptor;
}

LineSocket connect_to(const std::string& host, int port, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::string why;
  do {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (error != 0) why = gai_strerror(error);
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, &freeaddrinfo);
    for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
      const int descriptor = connect_once(*address, /*milliseconds=*/2000);
      if (descriptor >= 0) return LineSocket(descriptor);
      why = std::strerror(errno);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  } while (std::chrono::steady_clock::now() < end);
  throw failed(fmt::format("cannot reach rank 0 at {} port {}", host, port), why);
}

}  // namespace keyseat::comm
