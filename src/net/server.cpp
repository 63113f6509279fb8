#include "net/server.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "net/encoding.hpp"
#include "net/local_socket.hpp"
#include "net/turns.hpp"

namespace aliquot::net {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Local = asio::local::stream_protocol;
using boost::system::error_code;

namespace {

// Requests that come together are handled together, and settled with one commit; between, the loop
// looks at everything else.
constexpr std::chrono::milliseconds kServing{10};

std::string error_body(std::string_view code, std::string_view why) {
  return fmt::format(R"({{"code":"{}","message":"{}"}})", code, why);
}

}  // namespace

struct Server::Shared : std::enable_shared_from_this<Shared> {
  Shared(asio::io_context& context_, ServerOptions options_, Handler handler_)
      : context(context_),
        options(std::move(options_)),
        handler(std::move(handler_)),
        acceptor(context_),
        pause(context_),
        turns(options.bytes_per_user) {}

  void accept();
  // Somebody may have a turn.
  void serve_soon();
  void serve();

  asio::io_context& context;
  ServerOptions options;
  Handler handler;
  Local::acceptor acceptor;
  asio::steady_timer pause;
  Turns turns;
  bool serving = false;
  std::set<Session*> sessions;
  std::map<uid_t, std::size_t> per_user;
  bool closed = false;
  dev_t device = 0;  // of the socket file we made
  ino_t inode = 0;
};

// One connection: reads a request, waits for its answer, writes it, and again.
class Session final : public Exchange, public std::enable_shared_from_this<Session> {
 public:
  Session(Local::socket socket, std::shared_ptr<Server::Shared> server)
      : socket_(std::move(socket)), timer_(server->context), server_(std::move(server)) {
    server_->sessions.insert(this);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() override {
    server_->sessions.erase(this);
    if (!counted_) return;
    let_go();
    const auto mine = server_->per_user.find(peer_.uid);
    if (--mine->second == 0) server_->per_user.erase(mine);
  }

  void start() {
    ucred credentials{};
    socklen_t size = sizeof credentials;
    if (::getsockopt(socket_.native_handle(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
      return close();
    }
    peer_ = {credentials.uid, credentials.gid, credentials.pid};
    counted_ = true;
    const std::size_t mine = ++server_->per_user[peer_.uid];
    const bool ours = peer_.uid == 0 || peer_.uid == ::geteuid();
    if (!ours && mine > server_->options.connections_per_user) {
      return turn_away("you have too many connections to the daemon; try again later");
    }
    if (!ours && server_->sessions.size() > server_->options.connections) {
      return turn_away("the daemon has too many connections; try again later");
    }
    wait_for_request();
  }

  void answer(Response response) override {
    if (closed_ || !answering_) return;
    answering_ = false;
    reply_.emplace();
    reply_->version(11);
    reply_->result(static_cast<unsigned>(response.status));
    reply_->set(http::field::content_type, response.content_type);
    reply_->body() = std::move(response.body);
    reply_->keep_alive(keep_alive_);
    reply_->prepare_payload();
    keep(reply_->body().size());
    serializer_.emplace(*reply_);
    write_some();
  }

  void on_close(std::function<void()> hook) override {
    if (closed_) {
      asio::post(server_->context, std::move(hook));
    } else {
      hooks_.push_back(std::move(hook));
    }
  }

  void close() {
    if (std::exchange(closed_, true)) return;
    error_code ignored;
    timer_.cancel();
    socket_.shutdown(Local::socket::shutdown_both, ignored);
    socket_.close(ignored);
    for (auto& hook : std::exchange(hooks_, {})) hook();
  }

 private:
  // Said without waiting for a request.
  void turn_away(std::string_view why) {
    const std::string body = error_body("EAGAIN", why);
    const std::string text = fmt::format(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
        "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
        body.size(), body);
    [[maybe_unused]] const auto sent =
        ::send(socket_.native_handle(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    close();
  }

  // Bytes of the request or the answer that is here.
  void keep(std::size_t bytes) {
    kept_ += bytes;
    server_->turns.keep(peer_.uid, bytes);
  }
  void let_go() {
    server_->turns.drop(peer_.uid, std::exchange(kept_, 0));
    server_->serve_soon();
  }

  void be_patient(Millis patience) {
    timer_.expires_after(std::chrono::milliseconds(patience.value()));
    timer_.async_wait([self = shared_from_this()](error_code error) {
      if (!error) self->close();
    });
  }

  // Piece by piece: as long as the reader takes some of it, there is time.
  void write_some() {
    be_patient(server_->options.reader_patience);
    http::async_write_some(socket_, *serializer_,
                           [self = shared_from_this()](error_code error, std::size_t) {
                             self->timer_.cancel();
                             if (error) self->close();
                             if (!error && !self->serializer_->is_done()) {
                               return self->write_some();
                             }
                             self->written();
                           });
  }

  void written() {
    serializer_.reset();
    reply_.reset();
    let_go();
    if (closed_) return;
    if (!keep_alive_) return close();
    wait_for_request();
  }

  // An idle connection costs a descriptor and no timer, and may stay for days.
  void wait_for_request() {
    if (buffer_.size() > 0) return read_request();
    buffer_.shrink_to_fit();
    socket_.async_wait(Local::socket::wait_read, [self = shared_from_this()](error_code error) {
      if (error) return self->close();
      self->read_request();
    });
  }

  void read_request() {
    // Beast reads as much as there is room for: a job with its environment comes in one go.
    buffer_.reserve(16U << 10U);
    parser_.emplace();
    // They are kept before it is the user's turn: with all a user's connections, 32 MiB.
    parser_->header_limit(16U << 10U);
    parser_->body_limit(server_->options.body_limit);
    be_patient(server_->options.sender_patience);
    http::async_read_header(socket_, buffer_, *parser_,
                            [self = shared_from_this()](error_code error, std::size_t) {
                              self->timer_.cancel();
                              self->announce(error);
                            });
  }

  // Its size is known: the rest is read when it is this user's turn.
  void announce(error_code error) {
    if (closed_) return;
    if (error) return handle(error);
    if (parser_->is_done()) return line_up();
    const std::size_t size =
        parser_->content_length() ? *parser_->content_length() : server_->options.body_limit;
    server_->turns.receive(peer_.uid, size, [self = shared_from_this(), size] {
      self->kept_ += size;
      self->read_rest();
    });
    server_->serve_soon();
  }

  void read_rest() {
    if (closed_) return let_go();
    be_patient(server_->options.sender_patience);
    http::async_read(socket_, buffer_, *parser_,
                     [self = shared_from_this()](error_code error, std::size_t) {
                       self->timer_.cancel();
                       if (!error && !self->closed_) return self->line_up();
                       self->let_go();
                       self->handle(error);
                     });
  }

  void line_up() {
    server_->turns.handle(peer_.uid, [self = shared_from_this()] {
      self->let_go();
      self->handle({});
    });
    server_->serve_soon();
  }

  void handle(error_code error) {
    if (closed_) return;
    if (error == http::error::end_of_stream) return close();
    answering_ = true;
    keep_alive_ = false;
    if (error) {
      // Other failures are the connection's, and nobody is there to be told.
      if (error == http::error::body_limit) {
        return refuse(413, "the request is larger than the daemon takes");
      }
      if (error == http::error::header_limit) return refuse(431, "the header is too large");
      if (error.category() == http::make_error_code(http::error::bad_method).category() &&
          error != http::error::partial_message) {
        return refuse(400, "this is no HTTP");
      }
      return close();
    }
    auto message = parser_->release();
    parser_.reset();
    auto target = parse_target({message.target().data(), message.target().size()});
    if (!target) return refuse(400, "the target is badly encoded");
    keep_alive_ = message.keep_alive();
    Request request;
    request.method = std::string(message.method_string());
    request.path = std::move(target->path);
    request.query = std::move(target->query);
    request.body = std::move(message.body());
    request.peer = peer_;
    watch();
    server_->handler(std::move(request), Responder(shared_from_this()));
  }

  void refuse(int status, std::string_view why) { answer({status, error_body("", why)}); }

  // While an answer is awaited nobody reads the socket: look for its end. Bytes of a next request
  // end the watch, since they would be reported again and again.
  void watch() {
    socket_.async_wait(Local::socket::wait_read, [self = shared_from_this()](error_code error) {
      if (error || self->closed_ || !self->answering_) return;
      char byte = 0;
      const auto got = ::recv(self->socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return self->close();
      if (got < 0) self->watch();
    });
  }

  Local::socket socket_;
  asio::steady_timer timer_;
  std::shared_ptr<Server::Shared> server_;
  Peer peer_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::optional<http::response<http::string_body>> reply_;
  std::optional<http::response_serializer<http::string_body>> serializer_;
  std::size_t kept_ = 0;
  std::vector<std::function<void()>> hooks_;
  bool counted_ = false;
  bool answering_ = false;
  bool keep_alive_ = true;
  bool closed_ = false;
};

struct Responder::Turn {
  explicit Turn(std::shared_ptr<Exchange> exchange_) : exchange(std::move(exchange_)) {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    if (!answered) exchange->answer({500, error_body("", "the request was dropped")});
  }
  std::shared_ptr<Exchange> exchange;
  bool answered = false;
};

Responder::Responder(std::shared_ptr<Exchange> exchange)
    : turn_(std::make_shared<Turn>(std::move(exchange))) {}

void Responder::operator()(Response response) const {
  if (std::exchange(turn_->answered, true)) return;
  turn_->exchange->answer(std::move(response));
}

void Responder::on_close(std::function<void()> hook) const {
  turn_->exchange->on_close(std::move(hook));
}

void Server::Shared::serve_soon() {
  if (closed || std::exchange(serving, true)) return;
  asio::post(context, [self = shared_from_this()] {
    self->serving = false;
    if (!self->closed) self->serve();
  });
}

void Server::Shared::serve() {
  const auto until = std::chrono::steady_clock::now() + kServing;
  while (auto work = turns.next()) {
    (*work)();
    if (std::chrono::steady_clock::now() >= until) return serve_soon();
  }
}

// By hand: what Asio accepts would be open in the programs that other threads start meanwhile.
void Server::Shared::accept() {
  acceptor.async_wait(Local::acceptor::wait_read, [self = shared_from_this()](error_code error) {
    if (self->closed || error == asio::error::operation_aborted) return;
    const int accepted =
        ::accept4(self->acceptor.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    const int failure = accepted < 0 ? errno : 0;
    if (accepted >= 0) {
      Local::socket socket(self->context, Local(), accepted);
      std::make_shared<Session>(std::move(socket), self)->start();
    }
    // Nobody there after all, or gone again.
    if (failure == 0 || failure == EAGAIN || failure == ECONNABORTED || failure == EINTR) {
      return self->accept();
    }
    // Out of descriptors: those who wait in the backlog wait a little longer.
    self->pause.expires_after(std::chrono::milliseconds(100));
    self->pause.async_wait([self](error_code) {
      if (!self->closed) self->accept();
    });
  });
}

namespace {

// Makes way for our socket: only a socket that nobody answers is removed.
Result<void> clear_place(asio::io_context& context, const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return {};
    return fail(Error::Code::unavailable, "cannot look at {}: {}", quote(path),
                std::strerror(errno));
  }
  if (!S_ISSOCK(status.st_mode)) {
    return fail(Error::Code::failed_state, "{} is there and is no socket: remove it", quote(path));
  }
  Local::socket probe(context, Local(), TRY(make_local_socket()));
  error_code error;
  probe.connect(Local::endpoint(path), error);
  if (error != boost::system::errc::connection_refused) {
    return fail(Error::Code::already_exists, "another daemon listens on {}", quote(path));
  }
  if (::unlink(path.c_str()) != 0) {
    return fail(Error::Code::permission_denied, "cannot remove the stale socket {}: {}",
                quote(path), std::strerror(errno));
  }
  return {};
}

}  // namespace

Result<Server> Server::listen(asio::io_context& context, ServerOptions options, Handler handler) {
  try {
    TRY(clear_place(context, options.path));
    auto shared = std::make_shared<Shared>(context, std::move(options), std::move(handler));
    const std::string& path = shared->options.path;
    error_code error;
    shared->acceptor.assign(Local(), TRY(make_local_socket()), error);
    // Who hangs up between the word and the accept must not keep the loop waiting.
    if (!error) shared->acceptor.non_blocking(true, error);
    // The mode is right from the first moment on.
    const mode_t mask = ::umask(static_cast<mode_t>(~shared->options.mode & 0777U));
    if (!error) shared->acceptor.bind(Local::endpoint(path), error);
    ::umask(mask);
    if (!error) shared->acceptor.listen(4096, error);
    if (error) {
      return fail(Error::Code::unavailable, "cannot listen on {}: {}", quote(path),
                  error.message());
    }
    struct stat status {};
    if (::lstat(path.c_str(), &status) == 0) {
      shared->device = status.st_dev;
      shared->inode = status.st_ino;
    }
    shared->accept();
    return Server(std::move(shared));
  } catch (const std::exception& error) {  // a path too long for a socket's name
    return fail(Error::Code::invalid_argument, "cannot listen on the socket: {}", error.what());
  }
}

Server::Server(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
Server::Server(Server&&) noexcept = default;
Server& Server::operator=(Server&&) noexcept = default;

Server::~Server() {
  if (!shared_) return;
  shared_->closed = true;
  const std::string& path = shared_->options.path;
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0 && status.st_dev == shared_->device &&
      status.st_ino == shared_->inode) {
    ::unlink(path.c_str());
  }
  error_code ignored;
  shared_->acceptor.close(ignored);
  shared_->pause.cancel();
  // Those in line hold their sessions, which hold us.
  const Turns in_line = std::exchange(shared_->turns, Turns(0));
  const std::set<Session*> open = shared_->sessions;
  for (Session* session : open) session->shared_from_this()->close();
}

std::size_t Server::connections() const { return shared_->sessions.size(); }

}  // namespace aliquot::net
