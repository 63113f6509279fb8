// A connection's bytes, whatever carries them: a Unix socket, TCP, or TLS on it. The sessions of
// the server and the calls of the client are written against this, so that there is one of each,
// and Beast is compiled for one type. Inside src/net only: it costs Asio's headers.
//
// One read and one write at a time; what is handed in is called from the loop, never from within.
#pragma once

#include <array>
#include <boost/asio/async_result.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace aliquot::net {

using Socket = boost::asio::generic::stream_protocol::socket;

// A few buffers that are written with one call.
class Gathered {
 public:
  using value_type = boost::asio::const_buffer;

  // Only as many as there is room for: the rest is written next time.
  template <class Buffers>
  explicit Gathered(const Buffers& buffers) {
    const auto end = boost::asio::buffer_sequence_end(buffers);
    for (auto at = boost::asio::buffer_sequence_begin(buffers); at != end; ++at) {
      const boost::asio::const_buffer piece(*at);
      if (piece.size() == 0) continue;
      if (count_ == pieces_.size()) break;
      pieces_[count_++] = piece;
    }
  }
  [[nodiscard]] const value_type* begin() const { return pieces_.data(); }
  [[nodiscard]] const value_type* end() const { return pieces_.data() + count_; }

 private:
  std::array<value_type, 8> pieces_;
  std::size_t count_ = 0;
};

class Stream {
 public:
  using Done = std::function<void(boost::system::error_code, std::size_t)>;
  using Told = std::function<void(boost::system::error_code)>;
  enum class Glance { nothing, bytes, end };

  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  virtual ~Stream() = default;

  // Once, before anything else: shakes hands where that is to be done.
  virtual void open(Told done) = 0;
  virtual void read_some(boost::asio::mutable_buffer into, Done done) = 0;
  virtual void write_some(const Gathered& from, Done done) = 0;
  // When there is something to read, or the end. Any number may wait, beside one read.
  virtual void ready(Told done) = 0;
  // Without waiting.
  virtual Glance peek() = 0;
  // Whether the other side is gone, also where something of it is unread.
  [[nodiscard]] virtual bool hung_up() = 0;
  // Text to somebody who is not served, as far as that can be done without waiting.
  virtual void send_now(std::string_view text) = 0;
  // Says that nothing more comes, and waits for the other side's end: who closes while something
  // is unread makes the kernel take back what was written.
  virtual void finish(std::function<void()> done) = 0;
  // At once. What waits is told so.
  virtual void close() = 0;

  // The common name of the other side's certificate, where it showed one.
  [[nodiscard]] virtual std::string peer_name() const { return {}; }
  [[nodiscard]] virtual std::string explain(boost::system::error_code error) const {
    return error.message();
  }
};

std::shared_ptr<Stream> make_plain_stream(Socket socket);

// Whether the other side of that socket is gone, whatever is unread.
bool is_hung_up(int socket);

// The socket of a stream reads until the other side ends.
void drain(Socket& socket, std::function<void()> done);

// What Beast takes for a stream.
class StreamPort {
 public:
  using executor_type = boost::asio::io_context::executor_type;

  StreamPort(boost::asio::io_context& context, std::shared_ptr<Stream> stream)
      : context_(&context), stream_(std::move(stream)) {}

  Stream* operator->() const { return stream_.get(); }
  executor_type get_executor() { return context_->get_executor(); }

  template <class Buffers, class Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, Signature>(
        [stream = stream_](auto handler, boost::asio::mutable_buffer into) {
          stream->read_some(into, share(std::move(handler)));
        },
        token, boost::asio::mutable_buffer(*boost::asio::buffer_sequence_begin(buffers)));
  }
  template <class Buffers, class Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, Signature>(
        [stream = stream_](auto handler, const Gathered& from) {
          stream->write_some(from, share(std::move(handler)));
        },
        token, Gathered(buffers));
  }

 private:
  using Signature = void(boost::system::error_code, std::size_t);

  // Beast's can only be moved.
  template <class Handler>
  static Stream::Done share(Handler handler) {
    return [kept = std::make_shared<Handler>(std::move(handler))](
               boost::system::error_code error, std::size_t bytes) { (*kept)(error, bytes); };
  }

  boost::asio::io_context* context_;
  std::shared_ptr<Stream> stream_;
};

}  // namespace aliquot::net
