// A blocking HTTP client on a Unix socket, for the commands. One connection, any number of
// requests.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "base/time.hpp"
#include "net/http.hpp"

namespace aliquot::net {

class Client {
 public:
  // Error::Code::unavailable when nobody listens there.
  static Result<Client> connect(const std::string& socket_path);
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;
  ~Client();

  // Waits as long as the server takes, or so long at most: then the connection is closed. `target`
  // is path and query, encoded.
  Result<Response> send(std::string_view method, std::string_view target,
                        std::string_view body = {}, std::optional<Millis> patience = std::nullopt);

  // The socket, to poll for the server's going away while a job runs.
  [[nodiscard]] int descriptor() const;

 private:
  struct Connection;
  explicit Client(std::unique_ptr<Connection> connection);
  std::unique_ptr<Connection> connection_;
};

}  // namespace aliquot::net
