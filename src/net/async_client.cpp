#include "net/async_client.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
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
#include <deque>
#include <optional>
#include <set>
#include <utility>

#include "base/text.hpp"
#include "net/stream.hpp"
#include "net/tls.hpp"

namespace aliquot::net {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using SteadyTime = std::chrono::steady_clock::time_point;

namespace {

// A connection to the server, in use or kept.
struct Link {
  Link(asio::io_context& context, std::shared_ptr<Stream> stream_, std::size_t& open_)
      : stream(context, std::move(stream_)), idle(context), open(open_) {
    ++open;
  }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link() {
    stream->close();
    --open;
  }

  StreamPort stream;
  beast::flat_buffer buffer;
  asio::steady_timer idle;
  bool kept = false;
  std::size_t& open;
};

// Header lines and the request's own: what ends a line would begin another request.
bool is_sendable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 && byte != 0x7f;
  });
}

bool is_sendable_word(std::string_view text) {
  return !text.empty() && is_sendable(text) && text.find(' ') == std::string_view::npos;
}

Result<void> check_sendable(const OutgoingRequest& request) {
  bool fine = is_sendable_word(request.method) && is_sendable_word(request.target) &&
              is_sendable(request.content_type);
  for (const auto& [name, value] : request.headers) {
    fine = fine && is_sendable_word(name) && is_sendable(value);
  }
  if (fine) return {};
  return fail(Error::Code::invalid_argument,
              "cannot connect: the request {} {} has bytes that no header may have",
              quote(request.method), quote(request.target));
}

void set_up_tcp(int fd) {
  // A server that has vanished without a word is found within a minute.
  const auto set = [fd](int level, int name, int value) {
    ::setsockopt(fd, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 60'000);
}

}  // namespace

struct AsyncClient::Shared : std::enable_shared_from_this<Shared> {
  Shared(asio::io_context& context_, AsyncClientOptions options_)
      : context(context_), options(std::move(options_)) {
    const bool six = options.host.find(':') != std::string::npos;
    name = fmt::format("{}{}{}:{}", six ? "[" : "", options.host, six ? "]" : "", options.port);
  }

  // A kept connection that is still good, or nothing.
  std::shared_ptr<Link> take_kept();
  void keep(std::shared_ptr<Link> link);
  void next_in_line();

  asio::io_context& context;
  AsyncClientOptions options;
  std::string name;  // host and port
  std::unique_ptr<Tls> tls;
  std::size_t open = 0;                    // connections
  std::deque<std::shared_ptr<Link>> kept;  // the one used last is the last
  std::set<std::shared_ptr<Call>> calls;   // under way
  std::deque<std::shared_ptr<Call>> line;  // those that wait for a connection
  std::size_t busy = 0;                    // of the connections for whole answers
  bool closed = false;
};

// A request on its way: in line, connecting, sending, receiving, over.
struct AsyncClient::Call : std::enable_shared_from_this<Call> {
  Call(std::shared_ptr<Shared> shared_, OutgoingRequest request_)
      : shared(std::move(shared_)),
        request(std::move(request_)),
        timer(shared->context),
        resolver(shared->context) {}

  void line_up();
  void start();
  void give_up();  // silently

  // Set by whoever makes it: one of them.
  Done done;
  std::optional<Pieces> pieces;
  bool counted = false;  // holds one of the connections for whole answers
  bool over = false;

 private:
  void connect();
  void try_next();
  void connected(Socket socket);
  void write();
  void read();
  void received();
  void broke(error_code error);

  void limit(Millis most, std::string_view what);
  void failed(Error::Code code, std::string message);
  void finish(Result<Response> result);
  void hang_up();
  void put_down();
  Response header();

  std::shared_ptr<Shared> shared;
  OutgoingRequest request;
  asio::steady_timer timer;
  std::optional<SteadyTime> whole_end;
  asio::ip::tcp::resolver resolver;
  std::vector<asio::ip::tcp::endpoint> addresses;
  std::size_t tried = 0;
  std::string why_not = "it has no address";  // of the last address
  std::optional<Socket> connecting;
  std::shared_ptr<Link> link;
  bool reused = false;
  bool retried = false;
  bool heard = false;  // something of the answer
  bool header_told = false;
  http::request<http::string_body> message;
  std::optional<http::response_parser<http::string_body>> parser;
};

std::shared_ptr<Link> AsyncClient::Shared::take_kept() {
  while (!kept.empty()) {
    auto link = std::move(kept.back());
    kept.pop_back();
    link->kept = false;
    link->idle.cancel();
    if (link->stream->peek() == Stream::Glance::nothing) return link;
  }
  return nullptr;
}

void AsyncClient::Shared::keep(std::shared_ptr<Link> link) {
  if (closed || kept.size() >= options.connections) return;
  link->kept = true;
  const auto drop = [weak = weak_from_this(), held = std::weak_ptr<Link>(link)](error_code error) {
    const auto self = weak.lock();
    const auto idle = held.lock();
    if (error || !self || !idle || !idle->kept) return;
    std::erase(self->kept, idle);
  };
  link->idle.expires_after(std::chrono::milliseconds(options.idle_limit.value()));
  link->idle.async_wait(drop);
  // The server ends it, or says what nobody asked.
  link->stream->ready(drop);
  kept.push_back(std::move(link));
}

void AsyncClient::Shared::next_in_line() {
  while (!closed && busy < options.connections && !line.empty()) {
    const auto call = std::move(line.front());
    line.pop_front();
    if (call->over) continue;
    ++busy;
    call->counted = true;
    call->start();
  }
}

void AsyncClient::Call::line_up() {
  shared->calls.insert(shared_from_this());
  const Millis whole = request.whole_limit > Millis(0) ? request.whole_limit
                       : pieces                        ? Millis(0)
                                                       : shared->options.whole_limit;
  if (whole > Millis(0)) {
    whole_end = std::chrono::steady_clock::now() + std::chrono::milliseconds(whole.value());
  }
  asio::post(shared->context, [self = shared_from_this()] {
    if (self->over) return;
    if (const auto fine = check_sendable(self->request); !fine) {
      return self->failed(fine.error().code, fine.error().message);
    }
    if (self->pieces) return self->start();
    if (self->shared->line.size() >= self->shared->options.waiting) {
      return self->failed(Error::Code::unavailable,
                          fmt::format("cannot connect to {}: {} requests wait already",
                                      self->shared->name, self->shared->line.size()));
    }
    self->limit({}, "cannot connect to {}: no connection came free in time");
    self->shared->line.push_back(self);
    self->shared->next_in_line();
  });
}

void AsyncClient::Call::start() {
  link = retried ? nullptr : shared->take_kept();
  reused = link != nullptr;
  if (reused) return write();
  connect();
}

void AsyncClient::Call::connect() {
  limit(shared->options.connect_limit, "cannot connect to {}: no answer in time");
  error_code no_address;
  const auto address = asio::ip::make_address(shared->options.host, no_address);
  addresses.clear();
  tried = 0;
  if (!no_address) {
    addresses.emplace_back(address, shared->options.port);
    return try_next();
  }
  resolver.async_resolve(shared->options.host, std::to_string(shared->options.port),
                         asio::ip::tcp::resolver::numeric_service,
                         [self = shared_from_this()](
                             error_code error, const asio::ip::tcp::resolver::results_type& found) {
                           if (self->over) return;
                           if (error) self->why_not = error.message();
                           for (const auto& one : found) self->addresses.push_back(one.endpoint());
                           self->try_next();
                         });
}

void AsyncClient::Call::try_next() {
  if (tried == addresses.size()) {
    return failed(Error::Code::unavailable,
                  fmt::format("cannot connect to {}: {}", shared->name, why_not));
  }
  const auto& address = addresses[tried++];
  const int family = address.protocol().family();
  // Not inherited by programs that are started meanwhile.
  const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
  if (fd < 0) {
    why_not = std::strerror(errno);
    return try_next();
  }
  set_up_tcp(fd);
  connecting.emplace(shared->context, asio::generic::stream_protocol(family, IPPROTO_TCP), fd);
  connecting->async_connect(asio::generic::stream_protocol::endpoint(address),
                            [self = shared_from_this()](error_code error) {
                              if (self->over) return;
                              Socket socket = std::move(*self->connecting);
                              self->connecting.reset();
                              if (!error) return self->connected(std::move(socket));
                              self->why_not = error.message();
                              self->try_next();
                            });
}

void AsyncClient::Call::connected(Socket socket) {
  std::shared_ptr<Stream> stream;
  if (shared->tls) {
    const auto& named = shared->options.tls.server_name;
    auto wrapped =
        shared->tls->wrap(std::move(socket), named.empty() ? shared->options.host : named);
    if (!wrapped) return failed(wrapped.error().code, "cannot connect: " + wrapped.error().message);
    stream = std::move(*wrapped);
  } else {
    stream = make_plain_stream(std::move(socket));
  }
  link = std::make_shared<Link>(shared->context, std::move(stream), shared->open);
  link->stream->open([self = shared_from_this()](error_code error) {
    if (self->over) return;
    if (!error) return self->write();
    self->why_not = self->link->stream->explain(error);
    self->hang_up();
    self->try_next();
  });
}

void AsyncClient::Call::write() {
  const Millis first = request.first_byte_limit > Millis(0) ? request.first_byte_limit
                                                            : shared->options.first_byte_limit;
  limit(first, "{} did not answer in time");
  try {
    message = {};
    message.version(11);
    message.method_string(request.method);
    message.target(request.target);
    message.set(http::field::host, shared->name);
    for (const auto& [name, value] : request.headers) message.set(name, value);
    if (!request.content_type.empty()) {
      message.set(http::field::content_type, request.content_type);
    }
    message.body() = request.body;
    message.prepare_payload();
    parser.emplace();
    parser->header_limit(64U << 10U);
    if (pieces) {
      parser->body_limit(boost::none);
    } else {
      parser->body_limit(shared->options.body_limit);
    }
    parser->skip(request.method == "HEAD");
  } catch (const std::exception& error) {
    return failed(Error::Code::invalid_argument,
                  fmt::format("cannot connect: the request is no HTTP: {}", error.what()));
  }
  http::async_write(link->stream, message,
                    [self = shared_from_this(), used = link](error_code error, std::size_t) {
                      if (self->over) return;
                      // A server that refuses early answers and closes before it has read
                      // everything: there may be an answer to read.
                      if (error && error != boost::system::errc::broken_pipe &&
                          error != boost::system::errc::connection_reset) {
                        return self->broke(error);
                      }
                      self->read();
                    });
}

void AsyncClient::Call::read() {
  http::async_read_some(
      link->stream, link->buffer, *parser,
      [self = shared_from_this(), used = link](error_code error, std::size_t bytes) {
        if (self->over) return;
        self->heard = self->heard || bytes > 0;
        if (error) return self->broke(error);
        self->received();
      });
}

Response AsyncClient::Call::header() {
  const auto& head = parser->get();
  Response response;
  response.status = static_cast<int>(head.result_int());
  response.content_type = std::string(head[http::field::content_type]);
  return response;
}

void AsyncClient::Call::received() {
  const auto self = shared_from_this();
  if (!parser->is_header_done()) return read();
  if (pieces) {
    limit(request.silence_limit, "{} has been silent for too long");
    if (!std::exchange(header_told, true) && pieces->on_header) pieces->on_header(header());
    const std::string piece = std::exchange(parser->get().body(), {});
    if (!over && !piece.empty()) pieces->on_piece(piece);
    if (over) return;
  } else if (!std::exchange(header_told, true)) {
    limit({}, "{} did not send the whole answer in time");
  }
  if (!parser->is_done()) return read();
  Response response = header();
  response.body = std::move(parser->get().body());
  // Bytes beyond the answer are nobody's.
  if (parser->keep_alive() && link->buffer.size() == 0) shared->keep(std::move(link));
  finish(std::move(response));
}

void AsyncClient::Call::broke(error_code error) {
  // The server may have ended a kept connection just as it was used again.
  const bool again = request.method == "GET" || request.method == "HEAD";
  if (reused && !heard && !retried && again) {
    retried = true;
    hang_up();
    return start();
  }
  if (error == http::error::body_limit) {
    return failed(Error::Code::out_of_range, fmt::format("the answer of {} is larger than {} bytes",
                                                         shared->name, shared->options.body_limit));
  }
  failed(Error::Code::unavailable,
         fmt::format("the connection to {} broke: {}", shared->name,
                     link ? link->stream->explain(error) : error.message()));
}

// From now on; 0: only the whole is limited. `what` has a place for the server's name.
void AsyncClient::Call::limit(Millis most, std::string_view what) {
  std::optional<SteadyTime> end = whole_end;
  if (most > Millis(0)) {
    const auto phase = std::chrono::steady_clock::now() + std::chrono::milliseconds(most.value());
    end = end ? std::min(*end, phase) : phase;
  }
  timer.cancel();
  if (!end) return;
  timer.expires_at(*end);
  timer.async_wait([self = shared_from_this(), what, until = *end](error_code error) {
    // Cancelled too late, and something else is limited by now.
    if (error || self->over || self->timer.expiry() != until) return;
    self->failed(Error::Code::unavailable, fmt::format(fmt::runtime(what), self->shared->name));
  });
}

void AsyncClient::Call::failed(Error::Code code, std::string text) {
  finish(tl::unexpected<Error>(Error{code, std::move(text)}));
}

void AsyncClient::Call::finish(Result<Response> result) {
  if (over) return;
  const auto self = shared_from_this();
  put_down();
  if (pieces) {
    if (!pieces->on_end) return;
    if (result) {
      pieces->on_end({});
    } else {
      pieces->on_end(tl::unexpected<Error>(std::move(result.error())));
    }
  } else if (const auto last = std::exchange(done, nullptr)) {
    last(std::move(result));
  }
}

// What reads or writes holds the connection until it has been told.
void AsyncClient::Call::hang_up() {
  if (const auto used = std::exchange(link, nullptr)) used->stream->close();
}

void AsyncClient::Call::put_down() {
  over = true;
  timer.cancel();
  resolver.cancel();
  connecting.reset();
  hang_up();
  shared->calls.erase(shared_from_this());
  if (!std::exchange(counted, false)) return;
  --shared->busy;
  asio::post(shared->context, [kept = shared] { kept->next_in_line(); });
}

void AsyncClient::Call::give_up() {
  const auto self = shared_from_this();
  if (!over) put_down();
}

void AsyncClient::Handle::cancel() {
  if (const auto call = std::exchange(call_, {}).lock()) call->give_up();
}

AsyncClient::Handle& AsyncClient::Handle::operator=(Handle&& other) noexcept {
  if (this != &other) {
    cancel();
    call_ = std::exchange(other.call_, {});
  }
  return *this;
}

Result<AsyncClient> AsyncClient::create(asio::io_context& context, AsyncClientOptions options) {
  auto shared = std::make_shared<Shared>(context, std::move(options));
  if (shared->options.use_tls) {
    const ClientTls& tls = shared->options.tls;
    shared->tls = TRY(Tls::create({.certificate = {tls.certificate_file, tls.certificate_data},
                                   .key = {tls.key_file, tls.key_data},
                                   .ca = {tls.ca_file, tls.ca_data},
                                   .verify = tls.verify}));
  }
  return AsyncClient(std::move(shared));
}

AsyncClient::AsyncClient(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
AsyncClient::AsyncClient(AsyncClient&&) noexcept = default;
AsyncClient& AsyncClient::operator=(AsyncClient&& other) noexcept {
  std::swap(shared_, other.shared_);
  return *this;
}

AsyncClient::~AsyncClient() {
  if (!shared_) return;
  shared_->closed = true;
  shared_->line.clear();
  shared_->kept.clear();
  const auto calls = shared_->calls;
  for (const auto& call : calls) call->give_up();
}

void AsyncClient::send(OutgoingRequest request, Done done) {
  const auto call = std::make_shared<Call>(shared_, std::move(request));
  call->done = std::move(done);
  call->line_up();
}

AsyncClient::Handle AsyncClient::stream(OutgoingRequest request, Pieces pieces) {
  const auto call = std::make_shared<Call>(shared_, std::move(request));
  call->pieces = std::move(pieces);
  call->line_up();
  return Handle(call);
}

std::size_t AsyncClient::connections() const { return shared_->open; }

}  // namespace aliquot::net
