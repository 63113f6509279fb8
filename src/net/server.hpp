// An HTTP server on a Unix socket: asynchronous, on the caller's io_context and in its thread.
// Every request carries who sent it, from the kernel. The handler answers at once or later through
// its Responder, and may learn when the peer has gone: an allocation lives as long as its
// connection.
//
// It decides nothing about paths and permissions: that is the handler's. What is no HTTP, too large
// or too slow is refused here, users have their turns (turns.hpp), and who does not read an answer
// is hung up on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "base/time.hpp"
#include "net/http.hpp"

namespace boost::asio {
class io_context;
}

namespace aliquot::net {

class Session;

// The connection a request came by. Session is one; tests have their own.
class Exchange {
 public:
  Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  virtual ~Exchange() = default;

  virtual void answer(Response response) = 0;
  virtual void on_close(std::function<void()> hook) = 0;
};

// The one way to answer a request. Copies answer the same request; the first answer counts. A
// request whose Responders are all gone without an answer gets status 500.
class Responder {
 public:
  explicit Responder(std::shared_ptr<Exchange> exchange);

  // Does nothing when the peer has gone.
  void operator()(Response response) const;
  // Called once, from the loop, when the connection ends, also long after the answer. At once if it
  // has ended already.
  void on_close(std::function<void()> hook) const;

 private:
  struct Turn;
  std::shared_ptr<Turn> turn_;
};

struct ServerOptions {
  std::string path;
  unsigned mode = 0600;  // of the socket file
  std::size_t body_limit = 16UL << 20U;
  // Root and the one who listens always get in; of the others so many, together and each.
  std::size_t connections = 8192;
  std::size_t connections_per_user = 2048;
  std::size_t bytes_per_user = 32UL << 20U;  // of requests and answers kept at once
  Millis sender_patience = seconds(10);      // for a request's header, and for the rest of it
  Millis reader_patience = seconds(30);      // with a reader of an answer who takes nothing of it
};

class Server {
 public:
  using Handler = std::function<void(Request, Responder)>;

  // Listens from now on. already_exists when somebody answers there; a stale socket is replaced,
  // anything else in that place is refused.
  static Result<Server> listen(boost::asio::io_context& context, ServerOptions options,
                               Handler handler);
  Server(Server&&) noexcept;
  Server& operator=(Server&&) noexcept;
  // Ends every connection and removes the socket file.
  ~Server();

  [[nodiscard]] std::size_t connections() const;

 private:
  friend class Session;
  struct Shared;
  explicit Server(std::shared_ptr<Shared> shared);
  std::shared_ptr<Shared> shared_;
};

}  // namespace aliquot::net
