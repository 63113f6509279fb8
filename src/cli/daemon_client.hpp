// The commands' way to the daemon: where it listens, and requests with typed answers. A refusal is
// a value; each command decides what to say about it and how to exit.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "api/json.hpp"
#include "api/types.hpp"
#include "cli/slurm_error.hpp"
#include "net/client.hpp"

namespace aliquot::cli {

// A value, or why the daemon refused. No daemon at all is a refusal with the code kUnreachable.
template <class T>
using Reply = tl::expected<T, api::ErrorInfo>;

// Where a daemon may listen, in the order to try: $ALIQUOT_SOCKET alone if it is set; else the
// user's own, where the folder is really the user's; else the machine's.
std::vector<std::string> socket_candidates();

class DaemonClient {
 public:
  static Reply<DaemonClient> connect();

  // The body of an answer 2xx.
  Reply<std::string> send(std::string_view method, std::string_view target,
                          std::string_view body = {});

  // For printing: control characters in texts are replaced, so that none can steer a terminal.
  template <class T>
  Reply<T> get(std::string_view target) {
    auto value = get_as_is<T>(target);
    if (value) api::make_plain(*value);
    return value;
  }
  // Texts as they are: names of files can be opened.
  template <class T>
  Reply<T> get_as_is(std::string_view target) {
    return decoded<T>(send("GET", target));
  }
  // A list of jobs, which may come in pages.
  Reply<api::JobList> list(std::string_view target, bool as_is = false);
  template <class T>
  Reply<T> post(std::string_view target, std::string_view body) {
    return decoded<T>(send("POST", target, body));
  }

  // The socket, to poll for the daemon's going away.
  [[nodiscard]] int descriptor() const { return client_.descriptor(); }

 private:
  explicit DaemonClient(net::Client client) : client_(std::move(client)) {}

  template <class T>
  static Reply<T> decoded(const Reply<std::string>& body) {
    if (!body) return tl::make_unexpected(body.error());
    auto value = api::from_json<T>(*body);
    if (!value) return tl::make_unexpected(api::ErrorInfo{"", value.error().message});
    return std::move(*value);
  }

  net::Client client_;
};

// Connects and asks this one question.
template <class T>
Reply<T> ask(std::string_view target) {
  auto daemon = DaemonClient::connect();
  if (!daemon) return tl::make_unexpected(daemon.error());
  return daemon->get<T>(target);
}

}  // namespace aliquot::cli
