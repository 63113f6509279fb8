// Sockets to listen on, made with system calls alone: Asio's own would be inherited by the programs
// that other threads start meanwhile. Who inherits a connection can speak with our rights.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "sys/fd.hpp"

namespace aliquot::net {

struct LocalPlace {
  sys::Fd socket;
  dev_t device = 0;  // of the socket file
  ino_t inode = 0;
};
// already_exists when somebody answers there; a stale socket is replaced, anything else is refused.
Result<LocalPlace> listen_local(const std::string& path, unsigned mode);

struct TcpPlace {
  sys::Fd socket;
  std::uint16_t port = 0;
};
// `host` empty: every address, of both kinds where there are both.
Result<TcpPlace> listen_tcp(const std::string& host, std::uint16_t port);

}  // namespace aliquot::net
