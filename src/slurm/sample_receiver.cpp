#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/text.hpp"
#include "slurm/munge.hpp"
#include "slurm/samples.hpp"

namespace aliquot::slurm {
namespace {

constexpr std::size_t kLongestDatagram = 65'536;
// What may pile up while munged is slow: thousands of nodes' samples.
constexpr int kBuffer = 4 << 20;

union Address {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;
};

// Only a numeric address narrows where we listen: a name may mean 127.0.1.1 on its own machine.
std::pair<Address, socklen_t> address_of(const std::string& text, std::uint16_t port) {
  Address address{};
  if (::inet_pton(AF_INET, text.c_str(), &address.v4.sin_addr) == 1) {
    address.v4.sin_family = AF_INET;
    address.v4.sin_port = htons(port);
    return {address, sizeof address.v4};
  }
  if (::inet_pton(AF_INET6, text.c_str(), &address.v6.sin6_addr) != 1) {
    address.v6.sin6_addr = in6addr_any;
  }
  address.v6.sin6_family = AF_INET6;
  address.v6.sin6_port = htons(port);
  return {address, sizeof address.v6};
}

// Dual: with IPv6 off in the kernel, the same for IPv4 alone.
int open_socket(std::pair<Address, socklen_t>& address, std::uint16_t port) {
  const int socket =
      ::socket(address.first.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket >= 0 || errno != EAFNOSUPPORT || address.first.any.sa_family != AF_INET6) {
    const int off = 0;
    if (socket >= 0 && address.first.any.sa_family == AF_INET6) {
      ::setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    return socket;
  }
  address = address_of("0.0.0.0", port);
  return ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

}  // namespace

Result<SampleReceiver> SampleReceiver::create(const std::string& address, std::uint16_t port,
                                              std::string munge_socket) {
  auto bound = address_of(address, port);
  const int socket = open_socket(bound, port);
  if (socket < 0) {
    return fail(Error::Code::unavailable, "cannot make a socket: {}", std::strerror(errno));
  }
  SampleReceiver receiver(sys::Fd(socket), port, std::move(munge_socket));
  if (::bind(socket, &bound.first.any, bound.second) != 0) {
    return fail(errno == EADDRINUSE ? Error::Code::already_exists : Error::Code::unavailable,
                "cannot listen on UDP port {}: {}{}", port, std::strerror(errno),
                errno == EADDRINUSE ? "; is a balancer running already?" : "");
  }
  if (::setsockopt(socket, SOL_SOCKET, SO_RCVBUFFORCE, &kBuffer, sizeof kBuffer) != 0) {
    ::setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &kBuffer, sizeof kBuffer);
  }
  socklen_t size = sizeof bound.first;
  ::getsockname(socket, &bound.first.any, &size);
  receiver.port_ = ntohs(bound.first.any.sa_family == AF_INET ? bound.first.v4.sin_port
                                                              : bound.first.v6.sin6_port);
  return receiver;
}

SampleReceiver::SampleReceiver(sys::Fd socket, std::uint16_t port, std::string munge_socket)
    : socket_(std::move(socket)),
      port_(port),
      munge_socket_(std::move(munge_socket)),
      buffer_(kLongestDatagram, '\0') {}

Result<std::optional<SampleReceiver::Sample>> SampleReceiver::receive() {
  const auto size = ::recv(socket_.get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
  if (size < 0) {
    if (errno == EAGAIN || errno == EINTR) return std::nullopt;
    return fail(Error::Code::unavailable, "cannot receive: {}", std::strerror(errno));
  }
  // Noise on the port never gets as far as munged.
  const std::string credential(buffer_.data(), static_cast<std::size_t>(size));
  if (!credential.starts_with("MUNGE:") || !is_plain_line(credential)) {
    return fail(Error::Code::invalid_argument, "a datagram of {} bytes is no munge credential",
                size);
  }
  const MungeMessage message = TRY(unmunge_text(credential, munge_socket_));
  if (message.uid != Uid(0) && message.uid != Uid(::geteuid())) {
    return fail(Error::Code::permission_denied, "a sample from uid {}, who is not root",
                message.uid);
  }
  return Sample{TRY(decode_sample(message.text)), message.encoded_s};
}

}  // namespace aliquot::slurm
