#include "net/listen.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/text.hpp"

namespace aliquot::net {
namespace {

constexpr int kBacklog = 4096;

Result<sys::Fd> make_socket(int family) {
  // Who hangs up between the word and the accept must not keep the loop waiting.
  sys::Fd made(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (made) return made;
  return fail(Error::Code::unavailable, "cannot make a socket: {}", std::strerror(errno));
}

// Makes way for our socket: only a socket that nobody answers is removed.
Result<void> clear_place(const std::string& path, const sockaddr_un& address) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return {};
    return fail(Error::Code::unavailable, "cannot look at {}: {}", quote(path),
                std::strerror(errno));
  }
  if (!S_ISSOCK(status.st_mode)) {
    return fail(Error::Code::failed_state, "{} is there and is no socket: remove it", quote(path));
  }
  const sys::Fd probe = TRY(make_socket(AF_UNIX));
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
      errno != ECONNREFUSED) {
    return fail(Error::Code::already_exists, "another daemon listens on {}", quote(path));
  }
  if (::unlink(path.c_str()) != 0) {
    return fail(Error::Code::permission_denied, "cannot remove the stale socket {}: {}",
                quote(path), std::strerror(errno));
  }
  return {};
}

}  // namespace

Result<LocalPlace> listen_local(const std::string& path, unsigned mode) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return fail(Error::Code::invalid_argument,
                "cannot listen on {}: a socket's name has 1 to {} bytes", quote(path),
                sizeof address.sun_path - 1);
  }
  path.copy(address.sun_path, path.size());
  TRY(clear_place(path, address));
  LocalPlace place{TRY(make_socket(AF_UNIX))};
  // The mode is right from the first moment on.
  const mode_t mask = ::umask(static_cast<mode_t>(~mode & 0777U));
  const int bound =
      ::bind(place.socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const int reason = errno;
  ::umask(mask);
  if (bound != 0) {
    return fail(Error::Code::unavailable, "cannot listen on {}: {}", quote(path),
                std::strerror(reason));
  }
  if (::listen(place.socket.get(), kBacklog) != 0) {
    return fail(Error::Code::unavailable, "cannot listen on {}: {}", quote(path),
                std::strerror(errno));
  }
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0) {
    place.device = status.st_dev;
    place.inode = status.st_ino;
  }
  return place;
}

namespace {

Result<TcpPlace> listen_at(const addrinfo& at) {
  TcpPlace place{TRY(make_socket(at.ai_family))};
  const int yes = 1;
  const int no = 0;
  const int fd = place.socket.get();
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (at.ai_family == AF_INET6) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  sockaddr_storage got{};
  socklen_t size = sizeof got;
  if (::bind(fd, at.ai_addr, at.ai_addrlen) != 0 || ::listen(fd, kBacklog) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&got), &size) != 0) {
    const int reason = errno;
    return fail(reason == EADDRINUSE ? Error::Code::already_exists
                : reason == EACCES   ? Error::Code::permission_denied
                                     : Error::Code::unavailable,
                "{}", std::strerror(reason));
  }
  place.port = got.ss_family == AF_INET6
                   ? ntohs(reinterpret_cast<const sockaddr_in6*>(&got)->sin6_port)
                   : ntohs(reinterpret_cast<const sockaddr_in*>(&got)->sin_port);
  return place;
}

}  // namespace

Result<TcpPlace> listen_tcp(const std::string& host, std::uint16_t port) {
  const auto failed = [&](Error::Code code, std::string_view why) {
    return fail(code, "cannot listen on {} port {}: {}", host.empty() ? "every address" : host,
                port, why);
  };
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int answer = ::getaddrinfo(host.empty() ? nullptr : host.c_str(),
                                   std::to_string(port).c_str(), &hints, &found);
  if (answer != 0) return failed(Error::Code::invalid_argument, ::gai_strerror(answer));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, &::freeaddrinfo);
  Error last{Error::Code::unavailable, "it has no address"};
  // Where every address is meant, IPv6 first: it takes the others as well.
  for (const int family : {host.empty() ? AF_INET6 : AF_UNSPEC, AF_UNSPEC}) {
    for (const addrinfo* at = all.get(); at != nullptr; at = at->ai_next) {
      if (family != AF_UNSPEC && at->ai_family != family) continue;
      auto place = listen_at(*at);
      if (place) return place;
      last = place.error();
    }
  }
  return failed(last.code, last.message);
}

}  // namespace aliquot::net
