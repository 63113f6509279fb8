// aliquot-kube-node: options, and the parts of the agent put together.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <cstdlib>
#include <limits>

#include "base/size.hpp"
#include "base/text.hpp"
#include "core/enforcement.hpp"
#include "core/policy.hpp"
#include "kube/api/api_client.hpp"
#include "kube/api/cluster_config.hpp"
#include "kube/node/agent.hpp"
#include "kube/node/install.hpp"
#include "net/server.hpp"
#include "node/node.hpp"
#include "node/service.hpp"
#include "sys/fd.hpp"
#include "sys/folder.hpp"
#include "sys/host_name.hpp"
#include "sys/system_clock.hpp"

namespace aliquot::kube {
namespace {

namespace asio = boost::asio;
namespace fs = std::filesystem;

const node::Program kProgram{
    "aliquot-kube-node", ALIQUOT_VERSION,
    "hands the GPUs of this Kubernetes node to containers, in shares, and holds them to these", "",
    "Runs as root on each node with GPUs, with the host's processes and the folders --run-dir and\n"
    "--kubelet-dir of the host in their places. Containers go on without it, and are held again\n"
    "when it is back."};

struct Words {
  std::string node = {};
  std::string run = "/run/aliquot-kube";
  std::string kubelet = "/var/lib/kubelet";
  std::string kubeconfig = {};
  std::string seal_key = "/etc/aliquot/seal/key";
  std::string domain = "aliquot.dev";
  std::string unit = "1G";
  std::string over_commit = "1";
  std::string fault_domain = "job";
  std::string escape = "kill";
  std::string simulate = {};
  std::string listen = "9735";
  std::string level = "info";
  bool nvidia = false;
  bool gpushare = false;
  bool dra = false;
  std::string cdi = "/var/run/cdi";
  std::string policy = "aliquot";
};

Result<std::uint16_t> read_port(const std::string& word) {
  const auto port = parse_digits(word);
  if (!port || *port > std::numeric_limits<std::uint16_t>::max()) {
    return fail(Error::Code::invalid_argument, "--listen: {} is no port", quote(word));
  }
  return static_cast<std::uint16_t>(*port);
}

Result<AgentOptions> read_words(const Words& words, node::EnforceSettings& enforce) {
  auto key = SealKey::load(words.seal_key);
  if (!key) return fail(key.error().code, "--seal-key: {}", key.error().message);
  const auto unit = parse_size(words.unit);
  if (!unit || *unit <= Bytes(0)) {
    return fail(Error::Code::invalid_argument, "--unit: {} is no size: 1G, 512M",
                quote(words.unit));
  }
  const auto factor = parse_decimal(words.over_commit, kWholeGpu.value());
  if (!factor || *factor < kWholeGpu.value() || *factor > 100 * kWholeGpu.value()) {
    return fail(Error::Code::invalid_argument, "--over-commit: {} is no factor from 1 to 100",
                quote(words.over_commit));
  }
  const auto domain = core::parse_fault_domain(words.fault_domain);
  if (!domain) {
    return fail(Error::Code::invalid_argument, "--fault-domain: {} is none of gpu, user, job",
                quote(words.fault_domain));
  }
  if (words.escape != "kill" && words.escape != "report") {
    return fail(Error::Code::invalid_argument, "--escape: {} is neither kill nor report",
                quote(words.escape));
  }
  if (const auto policy = core::make_policy(words.policy, core::generic_profile()); !policy) {
    return fail(policy.error().code, "--policy: {}", policy.error().message);
  }
  if (words.dra && (words.nvidia || words.gpushare)) {
    return fail(Error::Code::invalid_argument,
                "--dra hands out claims and no resources: not with --nvidia or --gpushare");
  }
  enforce.domain = *domain;
  enforce.kill_escapes = words.escape == "kill";
  const char* named = std::getenv("NODE_NAME");
  std::string node = words.node;
  if (node.empty()) node = named != nullptr ? named : sys::short_host_name();
  return AgentOptions{.reader = {.names = {.domain = words.domain},
                                 .node = std::move(node),
                                 .unit = *unit,
                                 .nvidia = words.nvidia,
                                 .key = std::move(*key)},
                      .gpushare = words.gpushare,
                      .over_commit = Compute(*factor),
                      .run = words.run,
                      .kubelet = words.kubelet,
                      .library = {},
                      .standin = {},
                      .dra = words.dra,
                      .cdi = words.cdi,
                      .policy = words.policy};
}

net::Response text_of(bool well, const char* no) {
  return {well ? 200 : 503, well ? "ok\n" : no, "text/plain"};
}

void answer(Agent& agent, const net::Request& request, const net::Responder& respond) {
  if (request.method != "GET") return respond({405, "only GET\n", "text/plain"});
  if (request.path == "/healthz") return respond(text_of(agent.alive(), "a worker is stuck\n"));
  if (request.path == "/readyz") {
    return respond(text_of(agent.ready(), "not registered with the kubelet yet\n"));
  }
  if (request.path == "/metrics") {
    return agent.metrics([respond](std::string text) {
      respond({200, std::move(text), "text/plain; version=0.0.4"});
    });
  }
  respond({404, "there is nothing under this path\n", "text/plain"});
}

Result<void> serve(const Words& words) {
  node::EnforceSettings enforce;
  AgentOptions options = TRY(read_words(words, enforce));
  const std::uint16_t port = TRY(read_port(words.listen));
  const ClusterConfig cluster = TRY(find_cluster_config(words.kubeconfig));
  constexpr mode_t kWalkThrough = 0711;  // servers of MPS run as the users that they serve
  TRY(sys::make_own_folder(options.run, kWalkThrough));
  const sys::Fd lock = TRY(sys::lock_folder(options.run));
  ::umask(0077);
  if (!words.simulate.empty()) {
    const fs::path parts =
        node::find_part({"../standin", "../lib/aliquot/standin"}, "/usr/lib/aliquot/standin");
    options.standin = gpu::StandIn{TRY(install_folder(parts, options.run / "driver")),
                                   words.simulate, options.run / "standin", true};
  }
  const fs::path library = node::find_part({"../lib/libaliquot.so", "../lib/aliquot/libaliquot.so"},
                                           "/usr/lib/aliquot/libaliquot.so");
  if (auto installed =
          install_file(library, kPreloadFile, fmt::format("{}/lib/libaliquot.so\n", kViewRoot),
                       options.run / "lib")) {
    options.library = std::move(*installed);
  } else {
    spdlog::warn("shares are held without the library: {}", installed.error().message);
  }
  const auto machine = TRY(node::Node::open({.run = options.run,
                                             .library = options.library / "libaliquot.so",
                                             .standin = options.standin,
                                             .enforce = enforce,
                                             .compute_limit = options.over_commit,
                                             .walled = true}));
  asio::io_context context(1);
  asio::signal_set signals(context, SIGTERM, SIGINT);
  signals.async_wait([&](const boost::system::error_code& error, int number) {
    if (error) return;
    spdlog::info("signal {}: stopping; containers go on", number);
    context.stop();
  });
  const sys::SystemClock clock;
  const std::string node = options.reader.node;
  auto api = TRY(ApiClient::create(
      context, cluster, {.user_agent = std::string("aliquot-kube-node/") + ALIQUOT_VERSION}));
  auto agent = TRY(Agent::create({.context = context,
                                  .api = *api,
                                  .devices = machine->devices(),
                                  .gpus = machine->gpus(),
                                  .enforcer = machine->enforcer(),
                                  .clock = clock},
                                 std::move(options)));
  std::optional<net::Server> server;
  if (port != 0) {
    net::ServerOptions listening;
    listening.port = port;
    server.emplace(TRY(net::Server::listen(
        context, listening, [&](const net::Request& request, const net::Responder& respond) {
          answer(*agent, request, respond);
        })));
  }
  agent->start();
  spdlog::info("node {}: {} GPUs", node, machine->gpus().size());
  context.run();
  return {};
}

int run(int argc, char** argv) {
  Words words;
  const auto status = node::read_options(
      argc, argv, kProgram,
      {{"node", "NAME", "this node's name in the cluster ($NODE_NAME, the host's name)",
        &words.node},
       {"run-dir", "DIR",
        "where it keeps what containers see, the same path on the host "
        "(/run/aliquot-kube)",
        &words.run},
       {"kubelet-dir", "DIR", "the kubelet's folder (/var/lib/kubelet)", &words.kubelet},
       {"kubeconfig", "FILE", "how to reach the API server (the pod's service account)",
        &words.kubeconfig},
       {"seal-key", "FILE", "the key that grants are sealed with (/etc/aliquot/seal/key)",
        &words.seal_key},
       {"domain", "NAME", "of resources and annotations (aliquot.dev)", &words.domain},
       {"unit", "SIZE", "what one of gpu-mem is (1G)", &words.unit},
       {"over-commit", "FACTOR", "compute that may be granted on a GPU (1)", &words.over_commit},
       {"nvidia", "", "serve nvidia.com/gpu as well", &words.nvidia},
       {"gpushare", "", "serve aliyun.com/gpu-mem and aliyun.com/gpu-count as well",
        &words.gpushare},
       {"dra", "", "hand out claims (DRA, Kubernetes 1.36) instead of resources", &words.dra},
       {"cdi-dir", "DIR", "with --dra: where the runtime finds CDI files (/var/run/cdi)",
        &words.cdi},
       {"policy", "NAME", "with --dra: in which order claims get GPUs (aliquot)", &words.policy},
       {"fault-domain", "WORD", "who shares an MPS server: gpu, user, or job, which has none (job)",
        &words.fault_domain},
       {"escape", "WORD", "what is over its share: kill or report (kill)", &words.escape},
       {"listen", "PORT", "for /healthz, /readyz and /metrics; 0: none (9735)", &words.listen},
       {"simulate", "GPUS", "stand-ins instead of GPUs: h200:4", &words.simulate},
       {"log-level", "LEVEL", "debug, info, warn or error (info)", &words.level}});
  if (status) return *status;
  return node::run_service(kProgram.name, {.level = words.level, .foreground = true},
                           [&](const auto&) { return serve(words); });
}

}  // namespace
}  // namespace aliquot::kube

int main(int argc, char** argv) {
  try {
    return aliquot::kube::run(argc, argv);
  } catch (const std::exception& error) {
    return aliquot::node::complain("aliquot-kube-node", error.what());
  }
}
