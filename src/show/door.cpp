#include "show/door.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/text.hpp"

namespace aliquot::show {
namespace {

// As inet_pton reads it, which stops at a NUL.
bool reads(int family, std::string_view host, void* address) {
  const std::string text(host);
  return text.find('\0') == std::string::npos && ::inet_pton(family, text.c_str(), address) == 1;
}

bool is_address(std::string_view host, in_addr* v4, in6_addr* v6) {
  return reads(AF_INET, host, v4) || reads(AF_INET6, host, v6);
}

// `name:port`, `[::1]:port` without the port.
// Nothing, where something else than a port follows.
std::string_view without_port(std::string_view host) {
  std::string_view name = host.substr(0, host.find(':'));
  std::string_view rest = host.substr(name.size());
  if (host.starts_with('[')) {
    const auto end = host.find(']');
    if (end == std::string_view::npos) return {};
    name = host.substr(1, end - 1);
    rest = host.substr(end + 1);
  }
  const bool well = rest.empty() || (rest.front() == ':' && is_digits(rest.substr(1)));
  return well ? name : std::string_view();
}

}  // namespace

bool is_loopback(std::string_view host) {
  if (equals_ignoring_case(host, "localhost")) return true;
  in_addr v4{};
  in6_addr v6{};
  if (reads(AF_INET, host, &v4)) return (ntohl(v4.s_addr) >> 24U) == 127;
  return reads(AF_INET6, host, &v6) && IN6_IS_ADDR_LOOPBACK(&v6);
}

Result<void> check_listen(const Listen& listen) {
  if (listen.port == 0) return {};
  if (listen.certificate.empty() != listen.key.empty()) {
    return fail(Error::Code::invalid_argument,
                "a certificate and a key belong together: page.certificate and page.key");
  }
  if (!is_loopback(listen.host) && listen.certificate.empty()) {
    return fail(
        Error::Code::invalid_argument,
        "page.host {} is beyond this machine: that needs TLS, page.certificate and page.key",
        quote(listen.host));
  }
  return {};
}

TomlReader listen_into(Listen& listen) {
  return toml_table({{"host", text_into(listen.host)},
                     {"port", number_into(listen.port, 65'535, 0)},
                     {"certificate", text_into(listen.certificate)},
                     {"key", text_into(listen.key)},
                     {"names", [&listen](const TomlPlace& place) -> Result<void> {
                        listen.names = TRY(place.texts());
                        return {};
                      }}});
}

net::ServerOptions server_at(const Listen& listen, std::function<void(const Error&)> trouble) {
  net::ServerOptions options;
  options.host = listen.host;
  options.port = static_cast<std::uint16_t>(listen.port);
  if (!listen.certificate.empty()) {
    options.tls = net::ServerTls{
        .certificate = listen.certificate, .key = listen.key, .on_trouble = std::move(trouble)};
  }
  return options;
}

std::string address_of(const Listen& listen) {
  if (listen.port == 0) return "";
  std::string host = listen.names.empty() ? listen.host : listen.names.front();
  if (host.empty()) host = "localhost";
  if (host.find(':') != std::string::npos) host = "[" + host + "]";
  return fmt::format("{}://{}:{}/", listen.certificate.empty() ? "http" : "https", host,
                     listen.port);
}

bool calls_us(const net::Request& request, const Listen& listen) {
  const auto header = request.headers.find("host");
  if (header == request.headers.end()) return false;
  const std::string_view host = without_port(header->second);
  in_addr v4{};
  in6_addr v6{};
  if (is_loopback(host) || is_address(host, &v4, &v6)) return true;
  const auto is_it = [&](const std::string& name) { return equals_ignoring_case(name, host); };
  return is_it(listen.host) || std::ranges::any_of(listen.names, is_it);
}

std::string_view token_of(const net::Request& request) {
  const auto header = request.headers.find("authorization");
  constexpr std::string_view kScheme = "bearer ";
  if (header == request.headers.end() || header->second.size() <= kScheme.size()) return {};
  const std::string_view text = header->second;
  if (!equals_ignoring_case(text.substr(0, kScheme.size()), kScheme)) return {};
  return text.substr(kScheme.size());
}

}  // namespace aliquot::show
