// Who is at the other end of a TCP connection, for people and for counting.
#pragma once

#include <sys/socket.h>

#include <string>

namespace aliquot::net {

struct PeerAddress {
  std::string text;   // `10.0.0.7`, `fd00::7`
  std::string group;  // what is counted as one: an address of IPv4, a /64 of IPv6
};
PeerAddress peer_address(const sockaddr_storage& address);

}  // namespace aliquot::net
