#include "node/notify.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "base/text.hpp"
#include "sys/fd.hpp"

namespace aliquot::node {
namespace {

std::string take_variable(const char* name) {
  const char* value = std::getenv(name);
  std::string text = value == nullptr ? "" : value;
  ::unsetenv(name);
  return text;
}

}  // namespace

Notifier Notifier::from_environment() {
  Notifier notifier;
  notifier.socket_ = take_variable("NOTIFY_SOCKET");
  const auto usec = parse_digits(take_variable("WATCHDOG_USEC"));
  const std::string pid = take_variable("WATCHDOG_PID");
  const bool ours = pid.empty() || pid == std::to_string(::getpid());
  if (usec && *usec > 0 && ours && !notifier.socket_.empty()) {
    notifier.every_ = Millis(std::max<std::int64_t>(1, *usec / 3'000));
  }
  return notifier;
}

void Notifier::send(std::string_view line) const {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_.empty() || socket_.size() >= sizeof address.sun_path) return;
  std::memcpy(address.sun_path, socket_.data(), socket_.size());
  if (socket_.front() == '@') address.sun_path[0] = '\0';  // a name without a file
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
  const sys::Fd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return;
  // One that is lost is made good by the next.
  [[maybe_unused]] const auto sent = ::sendto(fd.get(), line.data(), line.size(), MSG_NOSIGNAL,
                                              reinterpret_cast<const sockaddr*>(&address), size);
}

}  // namespace aliquot::node
