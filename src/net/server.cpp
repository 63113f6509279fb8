#include "net/server.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "net/listen.hpp"
#include "net/session.hpp"

namespace aliquot::net {
namespace {

// Requests that come together are handled together, and settled with one commit; between, the loop
// looks at everything else.
constexpr std::chrono::milliseconds kServing{10};

}  // namespace

struct Responder::Turn {
  explicit Turn(std::shared_ptr<Exchange> exchange_) : exchange(std::move(exchange_)) {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    if (!answered) exchange->answer({500, error_body("", "the request was dropped")});
    if (streaming) exchange->end_stream();
  }
  std::shared_ptr<Exchange> exchange;
  bool answered = false;
  bool streaming = false;
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

void Responder::stream(Response head) const {
  if (std::exchange(turn_->answered, true)) return;
  turn_->streaming = true;
  turn_->exchange->stream(std::move(head));
}

bool Responder::push(std::shared_ptr<const std::string> part) const {
  return turn_->streaming && turn_->exchange->push(std::move(part));
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
