// aliquot-kube-scheduler: reads its options, says what is wrong with them, and serves
// kube-scheduler.
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include "base/size.hpp"
#include "base/text.hpp"
#include "kube/api/api_client.hpp"
#include "kube/api/cluster_config.hpp"
#include "kube/scheduler/service.hpp"
#include "net/server.hpp"
#include "node/service.hpp"
#include "sys/host_name.hpp"
#include "sys/system_clock.hpp"

namespace aliquot::kube {
namespace {

namespace asio = boost::asio;

const node::Program kProgram{
    "aliquot-kube-scheduler", ALIQUOT_VERSION, "places pods on parts of GPUs for kube-scheduler",
    "",
    "An extender of kube-scheduler: /filter, /prioritize and /bind. Also "
    "/healthz, /readyz (all pods\n"
    "and nodes are known), /leadz (and this one binds), /metrics, and with "
    "--webhook /admit."};

struct Options {
  std::string listen = "127.0.0.1:8898";
  std::string certificate;
  std::string tls_key;
  std::string client_ca;
  std::string kubeconfig;
  std::string context;
  std::string key;
  std::string policy = "aliquot";
  std::string unit = "1G";
  std::string domain = "aliquot.dev";
  std::string lease;
  std::string identity;
  bool webhook = false;
  std::string level = "info";
};

struct Address {
  std::string host;
  std::uint16_t port = 0;
};

// `:8898`, `127.0.0.1:8898`, `[::1]:8898`.
Result<Address> parse_listen(const std::string& text) {
  const auto colon = text.rfind(':');
  const auto port =
      colon == std::string::npos ? std::nullopt : parse_digits(text.substr(colon + 1));
  if (!port || *port > 65'535) {
    return fail(Error::Code::invalid_argument, "--listen {}: write ADDRESS:PORT", quote(text));
  }
  std::string host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return Address{host, static_cast<std::uint16_t>(*port)};
}

Result<std::optional<LeaseOptions>> parse_lease(const Options& options) {
  if (options.lease.empty()) return std::nullopt;
  const auto parts = split(options.lease, '/');
  if (parts.size() != 2 || parts[0].empty() || parts[1].empty()) {
    return fail(Error::Code::invalid_argument, "--lease {}: write NAMESPACE/NAME",
                quote(options.lease));
  }
  LeaseOptions lease;
  lease.name_space = parts[0];
  lease.name = parts[1];
  // In a container every process has the same number: the time tells two of one name apart.
  lease.identity = options.identity.empty() ? fmt::format("{}_{}_{}", sys::host_name(), ::getpid(),
                                                          sys::SystemClock().wall().ms())
                                            : options.identity;
  return lease;
}

Result<net::ServerOptions> server_options(const Options& options) {
  const Address address = TRY(parse_listen(options.listen));
  net::ServerOptions server;
  server.host = address.host;
  server.port = address.port;
  // Where nodes are not kept by name all of them come with every request.
  server.body_limit = 256UL << 20U;
  server.bytes_per_user = 1UL << 30U;
  if (options.certificate.empty() != options.tls_key.empty()) {
    return fail(Error::Code::invalid_argument, "--tls-cert and --tls-key go together");
  }
  if (options.webhook && options.certificate.empty()) {
    return fail(Error::Code::invalid_argument,
                "--webhook needs --tls-cert and --tls-key: the API server asks by HTTPS only");
  }
  if (!options.client_ca.empty() && options.certificate.empty()) {
    return fail(Error::Code::invalid_argument, "--client-ca needs --tls-cert and --tls-key");
  }
  if (!options.certificate.empty()) {
    server.tls = net::ServerTls{
        .certificate = options.certificate,
        .key = options.tls_key,
        .client_ca = options.client_ca,
        .on_trouble = [](const Error& error) { spdlog::warn("TLS: {}", error.message); }};
  }
  return server;
}

Result<void> serve(const Options& options, const std::function<void()>& ready) {
  ServiceSettings settings;
  settings.state.names.domain = options.domain;
  settings.state.policy = options.policy;
  settings.state.unit = TRY(parse_size(options.unit));
  settings.lease = TRY(parse_lease(options));
  settings.webhook = options.webhook;
  auto server_settings = TRY(server_options(options));
  if (options.key.empty()) {
    return fail(Error::Code::invalid_argument,
                "--key is missing: a file with the cluster's key, which seals grants");
  }
  SealKey key = TRY(SealKey::load(options.key));
  ClusterConfig config = TRY(find_cluster_config(options.kubeconfig, options.context));
  spdlog::info("API server {}:{}", config.host, config.port);

  asio::io_context context{1};
  const sys::SystemClock clock;
  const auto api = TRY(ApiClient::create(
      context, std::move(config), {.user_agent = "aliquot-kube-scheduler/" ALIQUOT_VERSION}));
  const auto service =
      TRY(SchedulerService::create(context, *api, clock, std::move(key), std::move(settings)));
  const auto server =
      TRY(net::Server::listen(context, std::move(server_settings),
                              [&](const net::Request& request, const net::Responder& respond) {
                                service->handle(request, [respond](net::Response response) {
                                  respond(std::move(response));
                                });
                              }));
  asio::signal_set signals(context, SIGTERM, SIGINT);
  signals.async_wait([&](boost::system::error_code error, int number) {
    if (error) return;
    spdlog::info("signal {}: stopping; pods go on", number);
    service->stop([&] { context.stop(); });
  });
  service->start();
  spdlog::info("listening on port {}", server.port());
  ready();
  context.run();
  return {};
}

int run(int argc, char** argv) {
  Options options;
  const std::vector<node::ProgramOption> rows = {
      {"listen", "A:PORT", "serve here (127.0.0.1:8898); :PORT for every address", &options.listen},
      {"tls-cert", "FILE", "serve with TLS: certificate, PEM", &options.certificate},
      {"tls-key", "FILE", "and its key", &options.tls_key},
      {"client-ca", "FILE", "only for clients with a certificate of this CA", &options.client_ca},
      {"key", "FILE", "the cluster's key, which seals grants", &options.key},
      {"kubeconfig", "FILE", "where the API server is (in a pod: its service account)",
       &options.kubeconfig},
      {"context", "NAME", "of the kubeconfig (the current one)", &options.context},
      {"policy", "NAME", "how nodes and GPUs are ranked: aliquot (the default), best-fit, …",
       &options.policy},
      {"unit", "SIZE", "what one of gpu-mem is (1G)", &options.unit},
      {"domain", "NAME", "of resources and annotations (aliquot.dev)", &options.domain},
      {"lease", "NS/NAME", "of several replicas only the holder of this lease binds",
       &options.lease},
      {"identity", "NAME", "as the lease's holder; of this replica alone", &options.identity},
      {"webhook", "", "answer /admit, which makes claims (DRA) of pods' limits; with TLS",
       &options.webhook},
      {"log-level", "LEVEL", "debug, info, warn or error (info)", &options.level}};
  if (const auto status = node::read_options(argc, argv, kProgram, rows)) return *status;
  return node::run_service(kProgram.name, {.level = options.level, .foreground = true},
                           [&](const auto& ready) { return serve(options, ready); });
}

}  // namespace
}  // namespace aliquot::kube

int main(int argc, char** argv) {
  try {
    return aliquot::kube::run(argc, argv);
  } catch (const std::exception& error) {
    return aliquot::node::complain("aliquot-kube-scheduler", error.what());
  }
}
