#include "slurm/plugins/spank/agent_socket.hpp"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "sys/clock.hpp"
#include "sys/fd.hpp"

namespace aliquot::spank {
namespace {

constexpr int kRetry = 20;            // ms between two tries while nobody listens
constexpr int kUnfitRetry = 500;      // while it says that it cannot
constexpr std::size_t kMost = 65536;  // of an answer

bool wait_for(int fd, short events, const StepClock& clock, long deadline) {
  pollfd poller{fd, events, 0};
  const long left = deadline - clock.now_ms();
  return poll(&poller, 1, left > 0 ? static_cast<int>(left) : 0) > 0;
}

std::string send_all(int fd, std::string_view text, const StepClock& clock, long deadline) {
  while (!text.empty()) {
    const ssize_t sent = send(fd, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      text.remove_prefix(static_cast<std::size_t>(sent));
    } else if (sent < 0 && errno != EINTR && errno != EAGAIN) {
      return strerror(errno);
    } else if (!wait_for(fd, POLLOUT, clock, deadline)) {
      return "it takes no request";
    }
  }
  return "";
}

// Until the other side closes.
std::string receive_all(int fd, std::string& text, const StepClock& clock, long deadline) {
  char buffer[4096];
  while (text.size() < kMost) {
    const ssize_t got = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (got == 0) return "";
    if (got > 0) {
      text.append(buffer, static_cast<std::size_t>(got));
    } else if (errno != EINTR && errno != EAGAIN) {
      return strerror(errno);
    } else if (!wait_for(fd, POLLIN, clock, deadline)) {
      return "no answer in time";
    }
  }
  return "its answer is too long";
}

// Connected to root's agent, or why not.
std::string connect_to(const std::string& path, sys::Fd& peer) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return "the socket's name is too long";
  memcpy(address.sun_path, path.c_str(), path.size() + 1);
  // One whose queue of callers is full says so at once: users can fill it while the agent is
  // stopped.
  peer.reset(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!peer ||
      connect(peer.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return strerror(errno);
  }
  // Whoever listens there is told whose job this is and tells what it is to preload: only root.
  ucred who{};
  socklen_t size = sizeof who;
  if (getsockopt(peer.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 || who.uid != 0) {
    return "it is not the administrator's";
  }
  return "";
}

AgentReply read_reply(int fd, const StepClock& clock, long deadline) {
  std::string text;
  const std::string error = receive_all(fd, text, clock, deadline);
  if (!error.empty()) return {0, error};
  const std::size_t body = text.find("\r\n\r\n");
  if (!text.starts_with("HTTP/1.1 ") || body == std::string::npos) return {0, "no HTTP"};
  // An agent that is killed in the middle has said half of what limits a task.
  constexpr std::string_view kLength = "\r\ncontent-length:";
  std::string head = text.substr(0, body);
  for (char& c : head) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  const std::size_t length = head.find(kLength);
  const std::size_t size = text.size() - body - 4;
  if (length == std::string::npos ||
      std::strtoull(head.c_str() + length + kLength.size(), nullptr, 10) != size) {
    return {0, "its answer is not whole"};
  }
  return {std::atoi(text.c_str() + 9), text.substr(body + 4)};
}

std::string request_text(std::string_view path, std::string_view body) {
  std::string request = "POST ";
  request.append(path).append(" HTTP/1.1\r\nHost: agent\r\nConnection: close\r\nContent-Length: ");
  return request.append(std::to_string(body.size())).append("\r\n\r\n").append(body);
}

}  // namespace

StepClock real_clock() {
  return {.now_ms = [] { return long{sys::mono_ms()}; },
          .pause_ms = [](int ms) { sys::sleep_ms(ms); }};
}

AgentReply AgentSocket::try_once(const std::string& request, long deadline) const {
  sys::Fd peer;
  std::string error = connect_to(path_, peer);
  if (error.empty()) error = send_all(peer.get(), request, clock_, deadline);
  if (!error.empty()) return {0, error};
  return read_reply(peer.get(), clock_, deadline);
}

int AgentSocket::send(std::string_view path, std::string_view body) {
  sys::Fd peer;
  if (!connect_to(path_, peer).empty()) return -1;
  if (!send_all(peer.get(), request_text(path, body), clock_, clock_.now_ms()).empty()) return -1;
  return peer.release();
}

AgentReply AgentSocket::take(int connection, int timeout_ms) {
  const sys::Fd peer(connection);
  return read_reply(peer.get(), clock_, clock_.now_ms() + timeout_ms);
}

AgentReply AgentSocket::ask(std::string_view path, std::string_view body, int timeout_ms) {
  const std::string request = request_text(path, body);
  const long deadline = clock_.now_ms() + timeout_ms;
  AgentReply unfit;
  for (;;) {
    // An agent that was killed in the middle is started again: asking twice does no harm.
    const AgentReply reply = try_once(request, deadline);
    if (reply.answers()) return reply;
    if (reply.status == AgentReply::kUnfit) unfit = reply;
    const int retry = unfit.status == 0 ? kRetry : kUnfitRetry;
    // What the agent said tells more than that there was no time for another answer.
    if (clock_.now_ms() + retry >= deadline) return unfit.status == 0 ? reply : unfit;
    clock_.pause_ms(retry);
  }
}

}  // namespace aliquot::spank
