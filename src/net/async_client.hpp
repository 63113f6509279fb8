// An asynchronous HTTP client of one server, with TLS where it is asked for, on the caller's
// io_context and in its thread. It keeps connections open for the next request, gives every request
// its time, and hands over a long answer piece by piece as it comes.
//
// It follows no redirections, keeps no cookies and speaks HTTP/1.1 alone. Statuses are the caller's
// to judge: an error is a connection, a time limit or an answer that is no HTTP. A request that
// failed may have been carried out, unless the message begins with "cannot connect".
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "net/http.hpp"

namespace boost::asio {
class io_context;
}

namespace aliquot::net {

// Files are read again when they change. Of a file and data of the same, the data counts.
struct ClientTls {
  std::string ca_file = {};  // PEM; neither file nor data: the system's
  std::string ca_data = {};
  std::string certificate_file = {};  // to show to a server that asks
  std::string certificate_data = {};
  std::string key_file = {};
  std::string key_data = {};
  std::string server_name = {};  // what the server's certificate must name; empty: the host
  bool verify = true;            // false: whoever answers there is believed
};

struct AsyncClientOptions {
  std::string host = {};  // a name or an address
  std::uint16_t port = 0;
  bool use_tls = false;
  ClientTls tls = {};
  std::size_t connections = 16;  // at once, for whole answers; others wait
  std::size_t waiting = 10'000;  // requests in line; more are refused
  std::size_t body_limit = 256UL << 20U;
  Millis connect_limit = seconds(10);  // until a connection is there, with TLS
  Millis first_byte_limit = seconds(60);
  Millis whole_limit = seconds(120);  // from send() on, for whole answers
  Millis idle_limit = seconds(60);    // how long a connection is kept for the next request
};

struct OutgoingRequest {
  std::string method = "GET";
  std::string target = {};  // path and query, encoded
  std::string body = {};
  std::string content_type = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
  // Of this request; 0: as in the options. For pieces the whole has no limit unless it is given
  // here.
  Millis first_byte_limit = {};
  Millis whole_limit = {};
  Millis silence_limit = {};  // between two pieces; 0: none
};

class AsyncClient {
 public:
  struct Call;
  // A request under way. Destroyed: it is given up, and nothing is called any more.
  class Handle {
   public:
    Handle() = default;
    explicit Handle(std::weak_ptr<Call> call) : call_(std::move(call)) {}
    Handle(Handle&& other) noexcept : call_(std::move(other.call_)) { other.call_.reset(); }
    Handle& operator=(Handle&& other) noexcept;
    ~Handle() { cancel(); }
    void cancel();

   private:
    std::weak_ptr<Call> call_;
  };

  using Done = std::function<void(Result<Response>)>;
  // For an answer in pieces. The header comes first: content type and status, without a body.
  struct Pieces {
    std::function<void(const Response&)> on_header;
    std::function<void(std::string_view)> on_piece;
    std::function<void(Result<void>)> on_end;  // an error: it broke off
  };

  // Fails where the TLS files or data are unusable, or this build has no TLS.
  static Result<AsyncClient> create(boost::asio::io_context& context, AsyncClientOptions options);
  AsyncClient(AsyncClient&&) noexcept;
  AsyncClient& operator=(AsyncClient&&) noexcept;
  // Gives up every request; nothing is called any more.
  ~AsyncClient();

  // `done` is called once, later, from the loop.
  void send(OutgoingRequest request, Done done);
  // On a connection of its own, at once.
  [[nodiscard]] Handle stream(OutgoingRequest request, Pieces pieces);

  // Open to the server: in use or kept.
  [[nodiscard]] std::size_t connections() const;

 private:
  struct Shared;
  explicit AsyncClient(std::shared_ptr<Shared> shared);
  std::shared_ptr<Shared> shared_;
};

}  // namespace aliquot::net
