// Help for tests: a TCP server that says byte by byte what a test wants, also what is no HTTP.
#pragma once

#include <fcntl.h>
#include <sys/socket.h>

#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "net/listen.hpp"
#include "sys/fd.hpp"

namespace aliquot::test {

// Says what it is told to whoever connects, byte by byte as it is.
class RawServer {
 public:
  using Serve = std::function<void(int)>;
  // One after the other, each connection with its own.
  explicit RawServer(std::vector<Serve> serve) : place_(*net::listen_tcp("127.0.0.1", 0)) {
    thread_ = std::thread([this, serve = std::move(serve)] {
      const int flags = ::fcntl(place_.socket.get(), F_GETFL);
      ::fcntl(place_.socket.get(), F_SETFL, flags & ~O_NONBLOCK);
      for (const auto& one : serve) {
        const sys::Fd peer(::accept(place_.socket.get(), nullptr, nullptr));
        if (!peer) return;
        one(peer.get());
      }
    });
  }
  ~RawServer() {
    ::shutdown(place_.socket.get(), SHUT_RDWR);
    thread_.join();
  }
  [[nodiscard]] std::uint16_t port() const { return place_.port; }

  static std::string read_header(int fd) {
    std::string text;
    char byte = 0;
    while (text.find("\r\n\r\n") == std::string::npos && ::recv(fd, &byte, 1, 0) == 1) text += byte;
    return text;
  }
  static void say(int fd, std::string_view text) {
    [[maybe_unused]] const auto sent = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
  }
  static void wait_for_end(int fd) {
    char byte = 0;
    while (::recv(fd, &byte, 1, 0) > 0) continue;
  }

 private:
  net::TcpPlace place_;
  std::thread thread_;
};

}  // namespace aliquot::test
