#include "kube/api/cluster_config.hpp"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstdlib>
#include <utility>

#include "base/text.hpp"
#include "kube/api/api.hpp"
#include "kube/api/base64.hpp"
#include "kube/api/followed_file.hpp"
#include "kube/api/yaml.hpp"

namespace aliquot::kube {

namespace fs = std::filesystem;
namespace json = boost::json;

namespace {

constexpr std::size_t kConfigLimit = 16UL << 20U;

std::string_view trim_lines(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::optional<std::uint16_t> parse_port(std::string_view text) {
  const auto number = parse_digits(text);
  if (!number || *number < 1 || *number > UINT16_MAX) return std::nullopt;
  return static_cast<std::uint16_t>(*number);
}

// `https://10.0.0.1:6443/prefix`
Result<void> read_server(std::string_view url, ClusterConfig& config) {
  const auto wrong = [url] {
    return fail(Error::Code::invalid_argument, "{} is no address of an API server", quote(url));
  };
  std::string_view rest = url;
  if (rest.starts_with("https://")) {
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
    config.use_tls = false;
  } else if (rest.find("://") != std::string_view::npos) {
    return wrong();
  }
  config.port = config.use_tls ? 443 : 80;
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view prefix = rest.substr(slash);
  while (!prefix.empty() && prefix.back() == '/') prefix.remove_suffix(1);
  config.path_prefix = std::string(prefix);
  std::string_view place = rest.substr(0, slash);
  std::string_view port;
  bool with_port = false;
  if (place.starts_with('[')) {
    const auto close = place.find(']');
    if (close == std::string_view::npos) return wrong();
    const std::string_view behind = place.substr(close + 1);
    if (!behind.empty() && behind.front() != ':') return wrong();
    with_port = !behind.empty();
    if (with_port) port = behind.substr(1);
    place = place.substr(1, close - 1);
  } else if (const auto colon = place.find(':'); colon != std::string_view::npos) {
    with_port = true;
    port = place.substr(colon + 1);
    place = place.substr(0, colon);
  }
  if (with_port) {
    const auto number = parse_port(port);
    if (!number) return wrong();
    config.port = *number;
  }
  if (place.empty() || !is_plain_line(place) || !is_plain_line(prefix) ||
      place.find_first_of(" @?#") != std::string_view::npos ||
      prefix.find_first_of(" ?#") != std::string_view::npos) {
    return wrong();
  }
  config.host = std::string(place);
  return {};
}

// The entry of this name in a list of `{name: …, KIND: {…}}`.
Result<const json::object*> find_named(const json::object& in, std::string_view list,
                                       std::string_view kind, std::string_view name) {
  const json::array* const entries = find_array(in, list);
  if (entries != nullptr) {
    for (const json::value& entry : *entries) {
      const json::object* const object = entry.if_object();
      if (object == nullptr || find_text(*object, "name") != name) continue;
      if (const json::object* const found = find_object(*object, kind)) return found;
      return fail(Error::Code::invalid_argument, "{} {} is empty", kind, quote(name));
    }
  }
  return fail(Error::Code::not_found, "there is no {} {}", kind, quote(name));
}

std::string from_folder(const fs::path& folder, std::string_view path) {
  if (path.empty()) return {};
  return (folder / fs::path(path)).string();
}

Result<std::string> read_data(const json::object& in, std::string_view key) {
  const std::string_view text = find_text(in, key);
  if (text.empty()) return std::string();
  auto data = decode_base64(text);
  if (data) return std::move(*data);
  return fail(Error::Code::invalid_argument, "{} is no base64", key);
}

Result<void> read_user(const json::object& user, const fs::path& folder, ClusterConfig& config) {
  for (const std::string_view other : {"exec", "auth-provider"}) {
    if (find_object(user, other) != nullptr) {
      return fail(Error::Code::unsupported,
                  "this user's token comes from `{}`, which is not understood here: use a token or "
                  "a client certificate",
                  other);
    }
  }
  if (!find_text(user, "username").empty()) {
    return fail(
        Error::Code::unsupported,
        "users with passwords are not understood here: use a token or a client certificate");
  }
  config.tls.certificate_data = TRY(read_data(user, "client-certificate-data"));
  config.tls.key_data = TRY(read_data(user, "client-key-data"));
  config.tls.certificate_file = from_folder(folder, find_text(user, "client-certificate"));
  config.tls.key_file = from_folder(folder, find_text(user, "client-key"));
  config.token = std::string(find_text(user, "token"));
  config.token_file = from_folder(folder, find_text(user, "tokenFile"));
  return {};
}

Result<ClusterConfig> read_config(std::string_view text, const fs::path& folder,
                                  std::string_view context_name) {
  const json::value parsed = TRY(parse_yaml(text));
  const json::object* const root = parsed.if_object();
  if (root == nullptr) return fail(Error::Code::invalid_argument, "this is no kubeconfig");
  const std::string_view name =
      context_name.empty() ? find_text(*root, "current-context") : context_name;
  if (name.empty()) {
    return fail(Error::Code::invalid_argument, "there is no current context: name one");
  }
  const json::object& context = *TRY(find_named(*root, "contexts", "context", name));
  const json::object& cluster =
      *TRY(find_named(*root, "clusters", "cluster", find_text(context, "cluster")));
  ClusterConfig config;
  TRY(read_server(find_text(cluster, "server"), config));
  if (!find_text(cluster, "proxy-url").empty()) {
    return fail(Error::Code::unsupported, "a proxy is not understood here");
  }
  config.tls.ca_data = TRY(read_data(cluster, "certificate-authority-data"));
  config.tls.ca_file = from_folder(folder, find_text(cluster, "certificate-authority"));
  config.tls.server_name = std::string(find_text(cluster, "tls-server-name"));
  const json::value* const insecure = cluster.if_contains("insecure-skip-tls-verify");
  config.tls.verify = insecure == nullptr || !insecure->is_bool() || !insecure->get_bool();
  if (const auto space = find_text(context, "namespace"); !space.empty()) {
    config.name_space = std::string(space);
  }
  if (const auto user = find_text(context, "user"); !user.empty()) {
    TRY(read_user(*TRY(find_named(*root, "users", "user", user)), folder, config));
  }
  return config;
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* const value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

Result<ClusterConfig> in_cluster_config(const Environment& environment, const fs::path& secrets) {
  const auto host = environment("KUBERNETES_SERVICE_HOST");
  const auto port = environment("KUBERNETES_SERVICE_PORT");
  if (!host || host->empty() || !port || port->empty()) {
    return fail(Error::Code::not_found,
                "not in a pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set");
  }
  ClusterConfig config;
  config.host = *host;
  const auto number = parse_port(*port);
  if (!number) {
    return fail(Error::Code::invalid_argument, "KUBERNETES_SERVICE_PORT is {}", quote(*port));
  }
  config.port = *number;
  config.token_file = secrets / "token";
  config.tls.ca_file = secrets / "ca.crt";
  TRY(read_followed(config.token_file, kConfigLimit));
  const auto space = read_followed(secrets / "namespace", 4'096);
  if (space && !trim_lines(*space).empty()) config.name_space = std::string(trim_lines(*space));
  return config;
}

Result<ClusterConfig> parse_kubeconfig(std::string_view text, const fs::path& folder,
                                       std::string_view context) {
  try {
    return read_config(text, folder, context);
  } catch (const std::exception& error) {
    return fail(Error::Code::invalid_argument, "this is no kubeconfig: {}", error.what());
  }
}

Result<ClusterConfig> read_kubeconfig(const fs::path& path, std::string_view context) {
  const std::string text = TRY(read_followed(path, kConfigLimit));
  auto config = parse_kubeconfig(text, path.parent_path(), context);
  if (!config)
    config.error().message = fmt::format("{}: {}", path.string(), config.error().message);
  return config;
}

Result<ClusterConfig> find_cluster_config(const fs::path& kubeconfig, std::string_view context,
                                          const Environment& environment) {
  if (!kubeconfig.empty()) return read_kubeconfig(kubeconfig, context);
  if (const auto named = environment("KUBECONFIG"); named && !named->empty()) {
    return read_kubeconfig(*named, context);
  }
  auto in_cluster = in_cluster_config(environment);
  if (in_cluster || in_cluster.error().code != Error::Code::not_found ||
      environment("KUBERNETES_SERVICE_HOST")) {
    return in_cluster;
  }
  const auto home = environment("HOME");
  const fs::path own = fs::path(home.value_or("/")) / ".kube" / "config";
  std::error_code ignored;
  if (fs::exists(own, ignored)) return read_kubeconfig(own, context);
  return fail(Error::Code::not_found,
              "no API server known: neither in a pod, nor $KUBECONFIG, nor {}", own.string());
}

}  // namespace aliquot::kube
