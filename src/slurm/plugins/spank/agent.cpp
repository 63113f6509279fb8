// One request to the node agent: HTTP on a Unix socket, written by hand, because a library for it
// would be larger than all else here and would sit in every program of Slurm's.
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "slurm/plugins/spank/plugin.hpp"

namespace aliquot::spank {
namespace {

constexpr int kRetry = 20;            // ms between two tries while nobody listens
constexpr int kUnfitRetry = 500;      // while it says that it cannot
constexpr std::size_t kMost = 65536;  // of an answer

long now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

struct Socket {
  int fd = -1;
  ~Socket() {
    if (fd >= 0) close(fd);
  }
};

bool wait_for(int fd, short events, long deadline) {
  pollfd poller{fd, events, 0};
  const long left = deadline - now_ms();
  return poll(&poller, 1, left > 0 ? static_cast<int>(left) : 0) > 0;
}

std::string send_all(int fd, std::string_view text, long deadline) {
  while (!text.empty()) {
    const ssize_t sent = send(fd, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      text.remove_prefix(static_cast<std::size_t>(sent));
    } else if (sent < 0 && errno != EINTR && errno != EAGAIN) {
      return strerror(errno);
    } else if (!wait_for(fd, POLLOUT, deadline)) {
      return "it takes no request";
    }
  }
  return "";
}

// Until the other side closes.
std::string receive_all(int fd, std::string& text, long deadline) {
  char buffer[4096];
  while (text.size() < kMost) {
    const ssize_t got = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (got == 0) return "";
    if (got > 0) {
      text.append(buffer, static_cast<std::size_t>(got));
    } else if (errno != EINTR && errno != EAGAIN) {
      return strerror(errno);
    } else if (!wait_for(fd, POLLIN, deadline)) {
      return "no answer in time";
    }
  }
  return "its answer is too long";
}

// Connected to root's agent, or why not.
std::string connect_to(const std::string& path, Socket& peer) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return "the socket's name is too long";
  memcpy(address.sun_path, path.c_str(), path.size() + 1);
  peer.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (peer.fd < 0 ||
      connect(peer.fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return strerror(errno);
  }
  // Whoever listens there is told whose job this is and tells what it is to preload: only root.
  ucred who{};
  socklen_t size = sizeof who;
  if (getsockopt(peer.fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 || who.uid != 0) {
    return "it is not the administrator's";
  }
  return "";
}

Answer read_answer(int fd, long deadline) {
  std::string text;
  const std::string error = receive_all(fd, text, deadline);
  if (!error.empty()) return {0, error};
  const std::size_t body = text.find("\r\n\r\n");
  if (!text.starts_with("HTTP/1.1 ") || body == std::string::npos) return {0, "no HTTP"};
  return {std::atoi(text.c_str() + 9), text.substr(body + 4)};
}

std::string request_text(std::string_view path, std::string_view body) {
  std::string request = "POST ";
  request.append(path).append(" HTTP/1.1\r\nHost: agent\r\nConnection: close\r\nContent-Length: ");
  return request.append(std::to_string(body.size())).append("\r\n\r\n").append(body);
}

Answer try_once(const std::string& path, const std::string& request, long deadline) {
  Socket peer;
  std::string error = connect_to(path, peer);
  if (error.empty()) error = send_all(peer.fd, request, deadline);
  if (!error.empty()) return {0, error};
  return read_answer(peer.fd, deadline);
}

}  // namespace

int send_request(const std::string& socket, std::string_view path, std::string_view body) {
  Socket peer;
  if (!connect_to(socket, peer).empty()) return -1;
  if (!send_all(peer.fd, request_text(path, body), now_ms()).empty()) return -1;
  return std::exchange(peer.fd, -1);
}

Answer take_answer(int connection, int timeout_ms) {
  const Socket peer{connection};
  return read_answer(peer.fd, now_ms() + timeout_ms);
}

Answer ask_agent(const std::string& socket, std::string_view path, std::string_view body,
                 int timeout_ms) {
  const std::string request = request_text(path, body);
  const long deadline = now_ms() + timeout_ms;
  Answer unfit;
  for (;;) {
    // One that was killed in the middle is started again: asking twice does no harm.
    Answer answer = try_once(socket, request, deadline);
    if (answer.status != 0 && answer.status != kUnfit) return answer;
    if (answer.status == kUnfit) unfit = std::move(answer);
    const int retry = unfit.status == 0 ? kRetry : kUnfitRetry;
    // What it said is more than that there was no time for another answer.
    if (now_ms() + retry >= deadline) return unfit.status == 0 ? answer : unfit;
    const timespec pause{0, retry * 1000000L};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace aliquot::spank
