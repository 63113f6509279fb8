// A Unix socket that no program started from this process inherits. Asio's own sockets are
// inherited, and a program that inherits a connection can speak with our rights.
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/result.hpp"

namespace aliquot::net {

// The descriptor is the caller's.
inline Result<int> make_local_socket() {
  const int opened = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (opened >= 0) return opened;
  return fail(Error::Code::unavailable, "cannot make a socket: {}", std::strerror(errno));
}

}  // namespace aliquot::net
