#include "net/address.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <array>
#include <cstring>
#include <utility>

namespace aliquot::net {

PeerAddress peer_address(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = nullptr;
  int family = address.ss_family;
  std::size_t counted = 4;
  if (family == AF_INET) {
    bytes = &reinterpret_cast<const sockaddr_in*>(&address)->sin_addr;
  } else {
    const auto& six = reinterpret_cast<const sockaddr_in6*>(&address)->sin6_addr;
    const bool mapped = IN6_IS_ADDR_V4MAPPED(&six);
    bytes = mapped ? &six.s6_addr[12] : &six.s6_addr[0];
    family = mapped ? AF_INET : AF_INET6;
    counted = mapped ? 4 : 8;
  }
  ::inet_ntop(family, bytes, text.data(), text.size());
  std::string group(static_cast<const char*>(bytes), counted);
  // All of 127.0.0.0/8 is whoever is on this machine.
  constexpr char kLoopback = 127;
  if (counted == 4 && group[0] == kLoopback) group = group.substr(0, 1);
  return {text.data(), std::move(group)};
}

}  // namespace aliquot::net
