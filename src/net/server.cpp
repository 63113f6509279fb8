#include "net/server.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <cerrno>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "net/address.hpp"
#include "net/encoding.hpp"
#include "net/listen.hpp"
#include "net/stream.hpp"
#include "net/tls.hpp"
#include "net/turns.hpp"

namespace aliquot::net {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
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
  void serve_peer(int accepted, const sockaddr_storage& address);
  // The connection of a new peer; nothing: it cannot be served.
  std::shared_ptr<Stream> welcome(Socket socket);
  // What a peer is counted under.
  Turns::User number_of(const std::string& address_group);
  // Somebody may have a turn.
  void serve_soon();
  void serve();

  asio::io_context& context;
  ServerOptions options;
  Handler handler;
  asio::posix::stream_descriptor acceptor;
  std::unique_ptr<Tls> tls;
  std::uint16_t port = 0;
  asio::steady_timer pause;
  Turns turns;
  bool serving = false;
  std::set<Session*> sessions;
  std::map<Turns::User, std::size_t> per_user;
  // On TCP, of those who have a connection. They are numbered as they come.
  std::map<std::string, Turns::User> address_groups;
  Turns::User last_number = 0;
  bool closed = false;
  dev_t device = 0;  // of the socket file we made
  ino_t inode = 0;
};

// One connection: reads a request, waits for its answer, writes it, and again.
class Session final : public Exchange, public std::enable_shared_from_this<Session> {
 public:
  Session(std::shared_ptr<Stream> stream, std::shared_ptr<Server::Shared> server)
      : stream_(server->context, std::move(stream)),
        timer_(server->context),
        server_(std::move(server)) {
    server_->sessions.insert(this);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() override {
    server_->sessions.erase(this);
    if (!counted_) return;
    let_go();
    const auto mine = server_->per_user.find(user_);
    if (--mine->second > 0) return;
    server_->per_user.erase(mine);
    server_->address_groups.erase(address_group_);
  }

  // A process of this machine.
  void start(const ucred& peer) {
    peer_ = {peer.uid, peer.gid, peer.pid};
    user_ = peer.uid;
    begin(peer_.uid == 0 || peer_.uid == ::geteuid());
  }
  // Somebody on the network.
  void start(const PeerAddress& peer) {
    remote_ = true;
    peer_ = {kNoUser, kNoUser, 0, peer.text};
    address_group_ = peer.group;
    user_ = server_->number_of(peer.group);
    begin(false);
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

  void post(std::function<void()> task) override { asio::post(server_->context, std::move(task)); }

  void close() {
    if (std::exchange(closed_, true)) return;
    timer_.cancel();
    stream_->close();
    for (auto& hook : std::exchange(hooks_, {})) hook();
  }

 private:
  void begin(bool unlimited) {
    counted_ = true;
    const std::size_t mine = ++server_->per_user[user_];
    if (!unlimited && mine > server_->options.connections_per_user) {
      return turn_away("you have too many connections to the daemon; try again later");
    }
    if (!unlimited && server_->sessions.size() > server_->options.connections) {
      return turn_away("the daemon has too many connections; try again later");
    }
    if (!server_->tls) return wait_for_request();
    be_patient(server_->options.sender_patience);
    stream_->open([self = shared_from_this()](error_code error) {
      self->timer_.cancel();
      if (error || self->closed_) return self->close();
      self->peer_.name = self->stream_->peer_name();
      self->wait_for_request();
    });
  }

  // Said without waiting for a request.
  void turn_away(std::string_view why) {
    const std::string body = error_body("EAGAIN", why);
    const std::string text = fmt::format(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
        "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
        body.size(), body);
    stream_->send_now(text);
    close();
  }

  // Bytes of the request or the answer that is here.
  void keep(std::size_t bytes) {
    kept_ += bytes;
    server_->turns.keep(user_, bytes);
  }
  void let_go() {
    server_->turns.drop(user_, std::exchange(kept_, 0));
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
    http::async_write_some(stream_, *serializer_,
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
    if (keep_alive_) return wait_for_request();
    if (!remote_) return close();
    be_patient(server_->options.sender_patience);
    stream_->finish([self = shared_from_this()] { self->close(); });
  }

  // An idle connection costs a descriptor and no timer, and may stay for days.
  void wait_for_request() {
    if (buffer_.size() > 0) return read_request();
    buffer_.shrink_to_fit();
    stream_->ready([self = shared_from_this()](error_code error) {
      if (error || self->closed_) return self->close();
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
    http::async_read_header(stream_, buffer_, *parser_,
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
    server_->turns.receive(user_, size, [self = shared_from_this(), size] {
      self->kept_ += size;
      self->read_rest();
    });
    server_->serve_soon();
  }

  void read_rest() {
    if (closed_) return let_go();
    be_patient(server_->options.sender_patience);
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](error_code error, std::size_t) {
                       self->timer_.cancel();
                       if (!error && !self->closed_) return self->line_up();
                       self->let_go();
                       self->handle(error);
                     });
  }

  void line_up() {
    server_->turns.handle(user_, [self = shared_from_this()] {
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
    stream_->ready([self = shared_from_this()](error_code error) {
      if (error || self->closed_ || !self->answering_) return;
      const auto there = self->stream_->peek();
      if (there == Stream::Glance::end) return self->close();
      if (there == Stream::Glance::nothing) self->watch();
    });
  }

  StreamPort stream_;
  asio::steady_timer timer_;
  std::shared_ptr<Server::Shared> server_;
  Peer peer_;
  Turns::User user_ = 0;       // whom it counts for
  std::string address_group_;  // on TCP: whose number that is
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::optional<http::response<http::string_body>> reply_;
  std::optional<http::response_serializer<http::string_body>> serializer_;
  std::size_t kept_ = 0;
  std::vector<std::function<void()>> hooks_;
  bool remote_ = false;
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

// Whoever drops the last copy, the connection ends where all others do.
Responder::Responder(std::shared_ptr<Exchange> exchange)
    : turn_(new Turn(std::move(exchange)), [](Turn* turn) {
        auto& loop = *turn->exchange;
        loop.post([last = std::shared_ptr<Turn>(turn)] {});
      }) {}

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

Turns::User Server::Shared::number_of(const std::string& address_group) {
  const auto [at, is_new] = address_groups.try_emplace(address_group, 0);
  if (is_new) {
    do {
      ++last_number;
    } while (per_user.contains(last_number));
    at->second = last_number;
  }
  return at->second;
}

std::shared_ptr<Stream> Server::Shared::welcome(Socket socket) {
  if (!tls) return make_plain_stream(std::move(socket));
  return tls->wrap(std::move(socket), {}).value_or(nullptr);
}

// By hand: what Asio accepts would be open in the programs that other threads start meanwhile.
void Server::Shared::accept() {
  const auto wait = asio::posix::stream_descriptor::wait_read;
  acceptor.async_wait(wait, [self = shared_from_this()](error_code error) {
    if (self->closed || error == asio::error::operation_aborted) return;
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    const int accepted =
        ::accept4(self->acceptor.native_handle(), reinterpret_cast<sockaddr*>(&address), &size,
                  SOCK_CLOEXEC | SOCK_NONBLOCK);
    const int failure = accepted < 0 ? errno : 0;
    if (accepted >= 0) self->serve_peer(accepted, address);
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

void Server::Shared::serve_peer(int accepted, const sockaddr_storage& address) {
  const bool remote = address.ss_family == AF_INET || address.ss_family == AF_INET6;
  ucred credentials{};
  socklen_t size = sizeof credentials;
  const bool known =
      remote || ::getsockopt(accepted, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0;
  const int yes = 1;
  if (remote) {
    ::setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    ::setsockopt(accepted, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  }
  const asio::generic::stream_protocol protocol(remote ? address.ss_family : AF_UNIX,
                                                remote ? IPPROTO_TCP : 0);
  const auto stream = welcome(Socket(context, protocol, accepted));
  if (!stream || !known) return;
  const auto session = std::make_shared<Session>(stream, shared_from_this());
  if (!remote) return session->start(credentials);
  session->start(peer_address(address));
}

Result<Server> Server::listen(asio::io_context& context, ServerOptions options, Handler handler) {
  try {
    auto shared = std::make_shared<Shared>(context, std::move(options), std::move(handler));
    const ServerOptions& wanted = shared->options;
    if (!wanted.path.empty()) {
      auto place = TRY(listen_local(wanted.path, wanted.mode));
      shared->device = place.device;
      shared->inode = place.inode;
      shared->acceptor.assign(place.socket.release());
    } else {
      if (wanted.tls) {
        shared->tls = TRY(Tls::create({.server = true,
                                       .certificate = {.file = wanted.tls->certificate},
                                       .key = {.file = wanted.tls->key},
                                       .ca = {.file = wanted.tls->client_ca},
                                       .on_trouble = wanted.tls->on_trouble}));
      }
      auto place = TRY(listen_tcp(wanted.host, wanted.port));
      shared->port = place.port;
      shared->acceptor.assign(place.socket.release());
    }
    shared->accept();
    return Server(std::move(shared));
  } catch (const std::exception& error) {
    return fail(Error::Code::internal, "cannot listen: {}", error.what());
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
  if (!path.empty() && ::lstat(path.c_str(), &status) == 0 && status.st_dev == shared_->device &&
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
std::uint16_t Server::port() const { return shared_->port; }

}  // namespace aliquot::net
