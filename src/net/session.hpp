// One connection of the server, and what all of its connections share. Inside src/net only: it
// costs Beast's headers, and server.cpp alone pays for them.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "net/address.hpp"
#include "net/encoding.hpp"
#include "net/headers.hpp"
#include "net/server.hpp"
#include "net/stream.hpp"
#include "net/tls.hpp"
#include "net/turns.hpp"

namespace aliquot::net {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

inline std::string error_body(std::string_view code, std::string_view why) {
  return fmt::format(R"({{"code":"{}","message":"{}"}})", code, why);
}

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
        watching_(server->context),
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
    if (closed_ || !answering_ || streaming_) return;
    answering_ = false;
    watching_.cancel();
    reply_.emplace();
    reply_->version(11);
    reply_->result(static_cast<unsigned>(response.status));
    reply_->set(http::field::content_type, response.content_type);
    for (const auto& [name, value] : response.headers) reply_->set(name, value);
    reply_->body() = std::move(response.body);
    reply_->keep_alive(keep_alive_);
    reply_->prepare_payload();
    keep(reply_->body().size());
    serializer_.emplace(*reply_);
    write_some();
  }

  void stream(Response head) override {
    if (closed_ || !answering_ || streaming_) return;
    streaming_ = true;
    keep_alive_ = false;
    std::string text = fmt::format("HTTP/1.1 {} OK\r\nContent-Type: {}\r\nConnection: close\r\n",
                                   head.status, head.content_type);
    for (const auto& [name, value] : head.headers) text += fmt::format("{}: {}\r\n", name, value);
    push(std::make_shared<const std::string>(text + "\r\n" + head.body));
  }

  // A part that is under way has been begun: what is unread is hung up on between parts, and in the
  // middle of one.
  bool push(std::shared_ptr<const std::string> part) override {
    if (closed_ || !streaming_ || ending_) return false;
    unread_ += part->size();
    if (unread_ > server_->options.stream_limit && !parts_.empty()) {
      close();
      return false;
    }
    parts_.push_back(std::move(part));
    if (parts_.size() == 1) write_part();
    return true;
  }

  void end_stream() override {
    if (!streaming_ || std::exchange(ending_, true)) return;
    if (parts_.empty()) finish();
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
    watching_.cancel();
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

  void write_part() {
    be_patient(server_->options.reader_patience);
    const std::string& text = *parts_.front();
    const asio::const_buffer rest(text.data() + part_written_, text.size() - part_written_);
    stream_->write_some(Gathered(rest),
                        [self = shared_from_this()](error_code error, std::size_t bytes) {
                          self->timer_.cancel();
                          if (error || self->closed_) return self->close();
                          self->part_was_written(bytes);
                        });
  }

  void part_was_written(std::size_t bytes) {
    part_written_ += bytes;
    unread_ -= bytes;
    if (part_written_ == parts_.front()->size()) {
      parts_.pop_front();
      part_written_ = 0;
    }
    if (!parts_.empty()) return write_part();
    if (ending_) finish();
  }

  void finish() {
    if (closed_) return;
    if (!remote_) return close();
    be_patient(server_->options.sender_patience);
    stream_->finish([self = shared_from_this()] { self->close(); });
  }

  void written() {
    serializer_.reset();
    reply_.reset();
    let_go();
    if (closed_) return;
    if (keep_alive_) return wait_for_request();
    finish();
  }

  // An idle connection of this machine costs a descriptor and no timer, and may stay for days. On
  // TCP, where nobody knows whose it is, it has its time.
  void wait_for_request() {
    if (buffer_.size() > 0) return read_request();
    buffer_.shrink_to_fit();
    if (remote_) be_patient(server_->options.idle_patience);
    stream_->ready([self = shared_from_this()](error_code error) {
      self->timer_.cancel();
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
    std::vector<HeaderLine> lines;
    for (const auto& field : message) {
      lines.emplace_back(std::string_view(field.name_string().data(), field.name_string().size()),
                         std::string_view(field.value().data(), field.value().size()));
    }
    auto headers = keep_headers(lines, message.version() >= 11);
    if (!headers) return refuse(400, headers.error().message);
    keep_alive_ = message.keep_alive();
    Request request;
    request.method = std::string(message.method_string());
    request.path = std::move(target->path);
    request.query = std::move(target->query);
    request.body = std::move(message.body());
    request.peer = peer_;
    request.headers = std::move(*headers);
    watch();
    server_->handler(std::move(request), Responder(shared_from_this()));
  }

  void refuse(int status, std::string_view why) { answer({status, error_body("", why)}); }

  // While an answer is awaited nobody reads the socket: look for its end. Bytes of a next request
  // would be reported again and again: behind them the end is looked for every second.
  void watch() {
    stream_->ready([self = shared_from_this()](error_code error) {
      if (error || self->closed_ || !self->answering_) return;
      const auto there = self->stream_->peek();
      if (there == Stream::Glance::end) return self->close();
      if (there == Stream::Glance::nothing) return self->watch();
      self->watch_by_time();
    });
  }
  void watch_by_time() {
    watching_.expires_after(std::chrono::seconds(1));
    watching_.async_wait([self = shared_from_this()](error_code error) {
      if (error || self->closed_ || !self->answering_) return;
      if (self->stream_->hung_up()) return self->close();
      self->watch_by_time();
    });
  }

  StreamPort stream_;
  asio::steady_timer timer_;
  asio::steady_timer watching_;
  std::shared_ptr<Server::Shared> server_;
  Peer peer_;
  Turns::User user_ = 0;       // whom it counts for
  std::string address_group_;  // on TCP: whose number that is
  boost::beast::flat_buffer buffer_;
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
  // Of an answer that goes on:
  std::deque<std::shared_ptr<const std::string>> parts_;
  std::size_t part_written_ = 0;  // of the first
  std::size_t unread_ = 0;        // of all
  bool streaming_ = false;
  bool ending_ = false;
};

}  // namespace aliquot::net
