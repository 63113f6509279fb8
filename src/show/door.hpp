// Who comes in by TCP, where the kernel does not say who asks: by which name the machine was
// called, and with which token. A page of somebody else's that a browser on this machine has open
// can have it ask us, under a name that leads to this machine: so only names that are ours are
// answered.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/toml_reader.hpp"
#include "net/http.hpp"
#include "net/server.hpp"

namespace aliquot::show {

// Where pages are served; off unless a setting says so.
struct Listen {
  std::string host = "127.0.0.1";
  std::int64_t port = 0;         // 0: nowhere
  std::string certificate = {};  // PEM; needed beyond this machine
  std::string key = {};
  std::vector<std::string> names = {};  // others by which browsers call this machine
  friend bool operator==(const Listen&, const Listen&) = default;
};

// `127.0.0.1`, `::1`, `localhost`: nobody on another machine gets there.
bool is_loopback(std::string_view host);
// What is missing, or makes no sense.
Result<void> check_listen(const Listen& listen);
// A settings file's table of it.
TomlReader listen_into(Listen& listen);
// A server that listens there; trouble is told of a certificate that cannot be read anew.
net::ServerOptions server_at(const Listen& listen, std::function<void(const Error&)> trouble);
// `http://127.0.0.1:9834/`
std::string address_of(const Listen& listen);

// Whether the request calls us by a name of ours, or by an address.
bool calls_us(const net::Request& request, const Listen& listen);
// Of `Authorization: Bearer …`; empty: there is none.
std::string_view token_of(const net::Request& request);

}  // namespace aliquot::show
