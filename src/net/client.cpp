#include "net/client.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <chrono>
#include <limits>
#include <utility>

#include "base/text.hpp"
#include "net/local_socket.hpp"

namespace aliquot::net {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

struct Client::Connection {
  asio::io_context context{1};
  asio::local::stream_protocol::socket socket{context};
  beast::flat_buffer buffer;

  // How what `start` begins has ended; what takes longer is given up and the connection closed.
  template <class Start>
  boost::system::error_code within(Millis limit, Start start) {
    std::optional<boost::system::error_code> ended;
    start([&ended](boost::system::error_code error, std::size_t) { ended = error; });
    context.restart();
    context.run_for(std::chrono::milliseconds(limit.value()));
    if (ended) return *ended;
    socket.close();
    context.restart();
    context.run();
    return asio::error::timed_out;
  }
};

Client::Client(std::unique_ptr<Connection> connection) : connection_(std::move(connection)) {}
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;
Client::~Client() = default;

Result<Client> Client::connect(const std::string& socket_path) {
  try {
    auto connection = std::make_unique<Connection>();
    const asio::local::stream_protocol::endpoint endpoint(socket_path);
    boost::system::error_code error;
    connection->socket.assign(asio::local::stream_protocol(), TRY(make_local_socket()));
    connection->socket.connect(endpoint, error);
    if (error == boost::system::errc::permission_denied) {
      return fail(Error::Code::permission_denied, "no permission to connect to {}",
                  quote(socket_path));
    }
    if (error) {
      return fail(Error::Code::unavailable, "cannot connect to {}: {}", quote(socket_path),
                  error.message());
    }
    return Client(std::move(connection));
  } catch (const std::exception& error) {  // a path too long for a socket's name
    return fail(Error::Code::invalid_argument, "cannot connect to {}: {}", quote(socket_path),
                error.what());
  }
}

Result<Response> Client::send(std::string_view method, std::string_view target,
                              std::string_view body, std::optional<Millis> patience) {
  const auto broken = [&](const boost::system::error_code& error) {
    if (error == asio::error::timed_out && patience) {
      return fail(Error::Code::unavailable, "the daemon does not answer within {} s",
                  patience->value() / 1'000);
    }
    return fail(Error::Code::unavailable, "the connection to the daemon broke: {}",
                error.message());
  };
  try {
    http::request<http::string_body> request;
    request.version(11);
    request.method_string({method.data(), method.size()});
    request.target({target.data(), target.size()});
    request.set(http::field::host, "aliquot");
    if (!body.empty()) request.set(http::field::content_type, "application/json");
    request.body() = body;
    request.prepare_payload();
    auto& socket = connection_->socket;
    boost::system::error_code error;
    if (patience) {
      error = connection_->within(
          *patience, [&](auto done) { http::async_write(socket, request, std::move(done)); });
    } else {
      http::write(socket, request, error);
    }
    // A server that refuses early answers and closes before it has read everything: the answer is
    // there to be read although writing failed.
    if (error && error != boost::system::errc::broken_pipe &&
        error != boost::system::errc::connection_reset) {
      return broken(error);
    }
    http::response_parser<http::string_body> parser;
    parser.body_limit(std::numeric_limits<std::uint64_t>::max());
    auto& buffer = connection_->buffer;
    if (patience) {
      error = connection_->within(
          *patience, [&](auto done) { http::async_read(socket, buffer, parser, std::move(done)); });
    } else {
      http::read(socket, buffer, parser, error);
    }
    if (error) return broken(error);
    auto message = parser.release();
    Response response;
    response.status = static_cast<int>(message.result_int());
    response.content_type = std::string(message[http::field::content_type]);
    response.body = std::move(message.body());
    return response;
  } catch (const std::exception& error) {
    return fail(Error::Code::internal, "cannot speak to the daemon: {}", error.what());
  }
}

int Client::descriptor() const { return connection_->socket.native_handle(); }

}  // namespace aliquot::net
