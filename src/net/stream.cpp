#include "net/stream.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <cerrno>
#include <vector>

namespace aliquot::net {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

class PlainStream final : public Stream {
 public:
  explicit PlainStream(Socket socket) : socket_(std::move(socket)) {}

  void open(Told done) override {
    asio::post(socket_.get_executor(), [done = std::move(done)] { done({}); });
  }
  void read_some(asio::mutable_buffer into, Done done) override {
    socket_.async_read_some(into, std::move(done));
  }
  void write_some(const Gathered& from, Done done) override {
    socket_.async_write_some(from, std::move(done));
  }
  void ready(Told done) override { socket_.async_wait(Socket::wait_read, std::move(done)); }

  Glance peek() override {
    char byte = 0;
    const auto got = ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got > 0) return Glance::bytes;
    return got < 0 && (errno == EAGAIN || errno == EINTR) ? Glance::nothing : Glance::end;
  }
  bool hung_up() override { return is_hung_up(socket_.native_handle()); }
  void send_now(std::string_view text) override {
    [[maybe_unused]] const auto sent =
        ::send(socket_.native_handle(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  void finish(std::function<void()> done) override {
    error_code ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
    drain(socket_, std::move(done));
  }
  void close() override {
    error_code ignored;
    socket_.shutdown(Socket::shutdown_both, ignored);
    socket_.close(ignored);
  }

 private:
  Socket socket_;
};

}  // namespace

std::shared_ptr<Stream> make_plain_stream(Socket socket) {
  return std::make_shared<PlainStream>(std::move(socket));
}

bool is_hung_up(int socket) {
  pollfd end{socket, POLLRDHUP, 0};
  return ::poll(&end, 1, 0) > 0;  // POLLHUP and POLLERR are told unasked
}

void drain(Socket& socket, std::function<void()> done) {
  // Whoever is told keeps the stream.
  auto rest = std::make_shared<std::array<char, 4096>>();
  socket.async_read_some(asio::buffer(*rest), [&socket, rest, done = std::move(done)](
                                                  error_code error, std::size_t) mutable {
    if (error) return done();
    drain(socket, std::move(done));
  });
}

}  // namespace aliquot::net
