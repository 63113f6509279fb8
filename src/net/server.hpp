// An HTTP server on a Unix socket or on TCP, there with TLS where it is asked for: asynchronous, on
// the caller's io_context and in its thread. Every request carries who sent it: from the kernel on
// a Unix socket, an address on TCP. The handler answers at once or later through its Responder, and
// may learn when the peer has gone: an allocation lives as long as its connection.
//
// It decides nothing about paths and permissions: the handler does. It refuses requests that are no
// HTTP, too large or too slow, gives each user (on TCP: each address) a turn (turns.hpp), and ends
// the connection of a client that does not read its answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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
  // Instead of answer(): the header of an answer without an end, and then its parts. Parts that are
  // the same for many are kept once. False: nobody is there to read it, or not quickly enough.
  virtual void stream(Response head) { answer(std::move(head)); }
  virtual bool push(std::shared_ptr<const std::string> part) { return part == nullptr; }
  // After the last part.
  virtual void end_stream() {}
  // In the loop's thread, soon.
  virtual void post(std::function<void()> task) { task(); }
};

// The one way to answer a request. Copies answer the same request; the first answer counts. A
// request whose Responders are all gone without an answer gets status 500. They may be dropped in
// any thread, and used in the loop's alone.
class Responder {
 public:
  explicit Responder(std::shared_ptr<Exchange> exchange);

  // Does nothing when the peer has gone.
  void operator()(Response response) const;
  // Instead: an answer that goes on, part by part, until the last Responder is gone. False: its
  // reader is gone, or reads too slowly and is hung up on.
  void stream(Response head) const;
  [[nodiscard]] bool push(std::shared_ptr<const std::string> part) const;
  // Called once, from the loop, when the connection ends, also long after the answer. At once if it
  // has ended already.
  void on_close(std::function<void()> hook) const;

 private:
  struct Turn;
  std::shared_ptr<Turn> turn_;
};

// Read again when they change: a connection is made with what is in the files then. While they are
// unusable, what was read last stays in use.
struct ServerTls {
  std::string certificate = {};  // PEM, with the certificates between it and the CA
  std::string key = {};          // PEM
  std::string client_ca = {};    // PEM; where it is given a client must show a certificate of it
  // Told once each time that changed files cannot be used.
  std::function<void(const Error&)> on_trouble = {};
};

struct ServerOptions {
  std::string path = {};  // the Unix socket; empty: on TCP, see below
  unsigned mode = 0600;   // of the socket file
  std::size_t body_limit = 16UL << 20U;
  // For all users together, and for each, which on TCP is each address (of IPv6: each /64). Root
  // and our own user are not limited.
  std::size_t connections = 8192;
  std::size_t connections_per_user = 2048;
  std::size_t bytes_per_user = 32UL << 20U;  // of requests and answers kept at once
  Millis sender_patience = seconds(10);      // for a request's header, and for the rest of it
  Millis reader_patience = seconds(30);      // for a client to read some of its answer
  Millis idle_patience = minutes(2);         // on TCP, between two requests
  std::size_t stream_limit = 4UL << 20U;     // of an endless answer, so much may be unread
  std::string host = {};                     // an address, or a name of one; empty: every address
  std::uint16_t port = 0;                    // 0: whichever is free, see Server::port()
  std::optional<ServerTls> tls = {};         // on TCP alone
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
  [[nodiscard]] std::uint16_t port() const;  // 0: on a Unix socket

 private:
  friend class Session;
  struct Shared;
  explicit Server(std::shared_ptr<Shared> shared);
  std::shared_ptr<Shared> shared_;
};

}  // namespace aliquot::net
