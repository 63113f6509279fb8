// aliquot-agent: reads its options and settings, says what is wrong with them, and serves the node.
//
// The loop answers requests; one worker is the agent's, since it waits for slurmctld and for MPS;
// another asks the driver, which takes its time, too. systemd is told that all three go on.
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <utility>

#include "base/text.hpp"
#include "core/watchdog.hpp"
#include "enforce/abi.h"
#include "net/server.hpp"
#include "node/folder.hpp"
#include "node/node.hpp"
#include "node/notify.hpp"
#include "node/places.hpp"
#include "node/service.hpp"
#include "node/worker.hpp"
#include "slurm/agent/agent.hpp"
#include "slurm/endpoint.hpp"
#include "slurm/node_conf.hpp"
#include "slurm/samples.hpp"
#include "slurm/settings.hpp"
#include "slurm/setup_files.hpp"

namespace aliquot::slurm {
namespace {

namespace asio = boost::asio;
namespace fs = std::filesystem;
using boost::system::error_code;

constexpr auto kSampleEvery = std::chrono::milliseconds(1000);
// While there are shares to watch.
constexpr auto kWatchEvery = std::chrono::milliseconds(core::kWatchInterval.value());
// To the balancer; a little less, so that every fourth look is one.
constexpr Millis kReportEvery = Millis(950);
constexpr auto kLookEvery = std::chrono::milliseconds(250);
// Where there is no GPU: the driver may come after us.
constexpr auto kSeekEvery = std::chrono::seconds(3);
// A worker that has been busy for so long with one thing is busy for ever: slurmctld and the driver
// may take their time, but not as much.
constexpr Millis kHung = seconds(90);

const node::Program kProgram{
    "aliquot-agent", ALIQUOT_VERSION,
    R"(aliquot-agent - holds the Slurm jobs of this node to their shares of its GPUs

usage: aliquot-agent [option…]

  --config FILE       read the settings from here (/etc/aliquot/slurm.toml)
  --foreground        stay in the foreground, log to stderr
  --log FILE          log to this file (in the background: /var/log/aliquot-agent.log)
  --log-level LEVEL   debug, info, warn or error (info)
  --help, --version

Runs as root beside slurmd. Jobs go on without it, and are held again when it is back.
)"};

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  const std::string host = name.data();
  return host.substr(0, host.find('.'));
}

class Daemon {
 public:
  Daemon(Agent& agent, node::Node& machine, SampleSender* sender, NodeGpus node,
         const node::Notifier& notifier)
      : agent_(agent),
        machine_(machine),
        sender_(sender),
        node_(std::move(node)),
        notifier_(notifier),
        signals_(context_, SIGTERM, SIGINT),
        looking_(context_),
        sampling_(context_),
        seeking_(context_),
        beating_(context_) {}

  // Until it is told to stop. True: there are GPUs now where there were none, and all begins anew.
  Result<bool> run(const std::string& socket, const std::function<void()>& ready) {
    auto server =
        TRY(net::Server::listen(context_, {.path = socket, .mode = 0666},
                                [this](const net::Request& request, const net::Responder& respond) {
                                  handle(request, respond);
                                }));
    signals_.async_wait([this](error_code error, int number) {
      if (error) return;
      spdlog::info("signal {}: stopping; jobs go on", number);
      context_.stop();
    });
    looked_ = sampled_ = clock_.mono();
    look();
    sample();
    beat();
    if (node_.devices.empty()) seek();
    ready();
    notifier_.ready();
    spdlog::info("listening on {}", socket);
    context_.run();
    return found_;
  }

 private:
  void handle(const net::Request& request, const net::Responder& respond) {
    const std::string what = request.method + " " + request.path;
    const bool step = what == "POST /v1/slurm/grant" || what == "POST /v1/slurm/exit";
    if (step && request.peer.uid != ::geteuid()) {
      return respond({403, "only slurmstepd may ask for a job's share\n", "text/plain"});
    }
    if (what == "GET /v1/slurm/agent") {
      return work(
          [this] {
            return net::Response{200,
                                 fmt::format("{{\"version\":\"{}\",\"node\":\"{}\",\"jobs\":{}}}",
                                             ALIQUOT_VERSION, node_.node, agent_.jobs())};
          },
          respond);
    }
    if (!step) return respond({404, "there is nothing under this path\n", "text/plain"});
    auto facts = parse_step_facts(request.body);
    if (!facts) return respond({400, facts.error().message, "text/plain"});
    const node::Pid stepd(facts->stepd > 0 ? static_cast<pid_t>(facts->stepd) : request.peer.pid);
    if (what == "POST /v1/slurm/exit") {
      return work(
          [this, facts = std::move(*facts), stepd] {
            agent_.leave(facts, stepd);
            return net::Response{200, "", "text/plain"};
          },
          respond);
    }
    work(
        [this, facts = std::move(*facts), stepd] {
          auto granted = agent_.grant(facts, stepd);
          if (granted) return net::Response{200, std::move(*granted), "text/plain"};
          spdlog::error("job {}: {}", facts.job, granted.error().message);
          // 503: not the job's fault. It is asked again, and then goes to another node.
          return net::Response{is_nodes_fault(granted.error()) ? 503 : 409, granted.error().message,
                               "text/plain"};
        },
        respond);
  }

  // On the agent's thread; the answer from the loop's.
  void work(std::function<net::Response()> task, const net::Responder& respond) {
    worker_.post([this, task = std::move(task), respond] {
      net::Response response = task();
      asio::post(context_, [respond, response = std::move(response)]() mutable {
        respond(std::move(response));
      });
    });
  }

  void look() {
    worker_.post([this] {
      agent_.look_after();
      asio::post(context_, [this] {
        looked_ = clock_.mono();
        looking_.expires_after(kLookEvery);
        looking_.async_wait([this](error_code error) {
          if (!error) look();
        });
      });
    });
  }

  void sample() {
    // A driver that takes longer than a second is not asked twice at once.
    if (!std::exchange(sampling_now_, true)) {
      worker_.post([this] {
        monitor_.post([this, running = agent_.running()] {
          auto views = agent_.look_at(machine_.devices(), running);
          if (!views) {
            spdlog::warn("cannot sample the GPUs: {}", views.error().message);
          } else {
            report(*views);
            worker_.post([this, views = std::move(*views)] { agent_.observe(views); });
          }
          asio::post(context_, [this] {
            sampling_now_ = false;
            sampled_ = clock_.mono();
          });
        });
      });
    }
    sampling_.expires_after(machine_.enforcer().watching() ? kWatchEvery : kSampleEvery);
    sampling_.async_wait([this](error_code error) {
      if (!error) sample();
    });
  }

  void seek() {
    monitor_.post([this] {
      const auto opened = gpu::open_devices(std::nullopt);
      const auto gpus = opened ? (*opened)->list() : Result<std::vector<gpu::Device>>();
      asio::post(context_, [this, found = opened && gpus && !gpus->empty()] {
        found_ = found;
        if (found) return context_.stop();
        seeking_.expires_after(kSeekEvery);
        seeking_.async_wait([this](error_code error) {
          if (!error) seek();
        });
      });
    });
  }

  void beat() {
    if (!notifier_.every()) return;
    const MonoTime now = clock_.mono();
    if (now - looked_ < kHung && now - sampled_ < kHung) notifier_.alive();
    beating_.expires_after(std::chrono::milliseconds(notifier_.every()->value()));
    beating_.async_wait([this](error_code error) {
      if (!error) beat();
    });
  }

  void report(const std::vector<node::GpuView>& views) {
    const MonoTime now = clock_.mono();
    if (sender_ == nullptr || now < next_report_) return;
    next_report_ = now + kReportEvery;
    NodeSample sample{NodeId(node_.node), {}};
    for (std::size_t i = 0; i < node_.devices.size(); ++i) {
      const core::Gpu& gpu = node_.devices[i].gpu;
      for (const node::GpuView& view : views) {
        if (view.sample.id != gpu.id) continue;
        sample.gpus.push_back({static_cast<std::int64_t>(i), view.sample.utilisation,
                               view.sample.memory_used, gpu.memory});
      }
    }
    sender_->send(sample);
  }

  Agent& agent_;
  node::Node& machine_;
  SampleSender* sender_;
  const NodeGpus node_;
  const node::Notifier& notifier_;
  const SystemClock clock_;
  MonoTime looked_;   // when the agent's worker was last done with a round
  MonoTime sampled_;  // and the driver's
  MonoTime next_report_;
  bool sampling_now_ = false;
  bool found_ = false;
  asio::io_context context_{1};
  asio::signal_set signals_;
  asio::steady_timer looking_;
  asio::steady_timer sampling_;
  asio::steady_timer seeking_;
  asio::steady_timer beating_;
  node::Worker worker_{"aq-agent"};
  node::Worker monitor_{"aq-monitor"};
};

bool needs_marks(const Settings& settings) {
  const auto conf = read_node_conf(settings);
  if (!conf || makes_groups(*conf, read_conf_file)) return false;
  spdlog::info(
      "Slurm makes no control groups for jobs here: whose a process is is also read from its "
      "environment");
  return true;
}

// With the GPUs that there are now. True: it is to be done again, as there are others.
Result<bool> serve_gpus(const Settings& settings, const node::Notifier& notifier,
                        const std::function<void()>& ready) {
  const fs::path run = settings.agent.run_dir;
  std::optional<gpu::StandIn> standin;
  if (!settings.agent.simulate.empty()) {
    standin = gpu::StandIn{
        node::find_part({"../standin", "../lib/aliquot/standin"}, "/usr/lib/aliquot/standin"),
        settings.agent.simulate, run / "standin", true};
  }
  const std::string name = settings.agent.node.empty() ? host_name() : settings.agent.node;
  spdlog::info("node {}", name);
  const auto machine = TRY(node::Node::open(
      {.run = run,
       .library = node::find_part({"../lib/libaliquot.so", "../lib/aliquot/libaliquot.so"},
                                  "/usr/lib/aliquot/libaliquot.so"),
       .standin = standin,
       .enforce = settings.agent.enforce,
       .compute_limit = settings.share.overcommit}));

  const std::string conf = slurm_conf_path(settings);
  auto slurm = TRY(open_client("", conf));
  spdlog::info("Slurm {}", slurm->version());
  // Slurm's groups, v1 and v2: /slurm/uid_0/job_7, /system.slice/slurmstepd.scope/job_7.
  if (node::has_public_place(run)) {
    TRY(node::publish_place(ALIQUOT_PLACE_SLURM, "/slurm", run));
  }
  SystemClock clock;
  const NodeGpus node{name, in_gres_order(machine->gpus()), settings.share};
  auto agent = TRY(Agent::create({.run = run,
                                  .node = node,
                                  .slurm = *slurm,
                                  .enforcer = machine->enforcer(),
                                  .clock = clock,
                                  .by_mark = needs_marks(settings),
                                  .standin = standin}));
  std::unique_ptr<SampleSender> sender;
  if (settings.balancer.mode != "off") {
    if (const auto endpoint = find_endpoint(settings)) {
      sender = std::make_unique<SampleSender>(*endpoint);
    } else {
      spdlog::warn("no samples for the balancer: {}", endpoint.error().message);
    }
  }
  const auto done =
      Daemon(*agent, *machine, sender.get(), node, notifier).run(settings.agent.socket, ready);
  agent->stop();
  return done;
}

Result<void> serve(const Settings& settings, const std::function<void()>& ready) {
  const auto notifier = node::Notifier::from_environment();
  TRY(node::make_own_folder(fs::path(settings.agent.socket).parent_path(), 0755));
  TRY(node::make_own_folder(settings.agent.run_dir, 0711));
  const node::Fd lock = TRY(node::lock_folder(settings.agent.run_dir));
  ::umask(0077);
  while (TRY(serve_gpus(settings, notifier, ready))) spdlog::info("there are GPUs now");
  return {};
}

int run(int argc, char** argv) {
  node::ServiceOptions options;
  if (const auto status = node::read_service_options(argc, argv, kProgram, options)) return *status;
  const auto settings = load_settings(options.config);
  if (!settings) return node::complain(kProgram.name, settings.error().message);
  if (::geteuid() != 0) {
    return node::complain(kProgram.name, "it must be root's: slurmstepd trusts nobody else");
  }
  return node::run_service(kProgram.name, options,
                           [&](const auto& ready) { return serve(*settings, ready); });
}

}  // namespace
}  // namespace aliquot::slurm

int main(int argc, char** argv) {
  try {
    return aliquot::slurm::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "aliquot-agent: {}\n", error.what());
    return 1;
  }
}
