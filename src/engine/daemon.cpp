#include "engine/daemon.hpp"

#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "base/text.hpp"
#include "enforce/abi.h"
#include "engine/api_server.hpp"
#include "engine/known_users.hpp"
#include "engine/stepd_executor.hpp"
#include "engine/web.hpp"
#include "net/server.hpp"
#include "node/gpu_faults.hpp"
#include "node/job_mapping.hpp"
#include "node/monitor.hpp"
#include "node/node.hpp"
#include "node/places.hpp"
#include "node/process_tree.hpp"
#include "node/service.hpp"
#include "node/share_meter.hpp"
#include "node/spawn.hpp"
#include "sys/fd.hpp"
#include "sys/folder.hpp"
#include "sys/host_name.hpp"
#include "sys/system_clock.hpp"

namespace aliquot::engine {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// A simulated machine has as many CPUs for each GPU as real ones have, whatever it runs on: else a
// laptop could not show twenty jobs sharing four GPUs.
constexpr std::int64_t kSimulatedCpusPerGpu = 16;

// For its own files, and for root's connections.
constexpr std::int64_t kOwnDescriptors = 512;

WallTime boot_time() {
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("btime ")) continue;
    return WallTime(seconds(parse_digits(line.substr(6)).value_or(0)));
  }
  return {};
}

Machine find_machine(const Settings& settings, std::vector<gpu::Device> gpus, bool simulated) {
  Machine machine;
  utsname names{};
  ::uname(&names);
  machine.name = settings.node.empty() ? sys::short_host_name() : settings.node;
  machine.os = std::string(names.sysname) + " " + names.release;
  cpu_set_t cpus;
  const std::int64_t usable =
      ::sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : ::get_nprocs();
  machine.cpus = usable;
  if (simulated) {
    machine.cpus = std::max(usable, kSimulatedCpusPerGpu * static_cast<std::int64_t>(gpus.size()));
  }
  if (settings.cpus) machine.cpus = *settings.cpus;
  struct sysinfo info {};
  ::sysinfo(&info);
  machine.memory = settings.memory.value_or(Bytes(static_cast<std::int64_t>(info.totalram)) *
                                            static_cast<std::int64_t>(info.mem_unit));
  machine.boot = boot_time();
  machine.boot_id = sys::boot_id();
  machine.gpus = std::move(gpus);
  return machine;
}

// As systemd limits a service: one job cannot take all the processes there can be.
std::int64_t usual_processes() {
  constexpr std::int64_t kPercent = 15;
  std::int64_t most = 4'194'304;  // the kernel's own
  for (const char* file : {"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"}) {
    std::int64_t number = 0;
    if (std::ifstream(file) >> number) most = std::min(most, number);
  }
  return most * kPercent / 100;
}

class Daemon {
 public:
  Daemon(const DaemonOptions& options, std::unique_ptr<node::Node> node,
         std::unique_ptr<node::Cgroups> cgroups, StepdOptions stepd)
      : options_(options),
        cgroups_(std::move(cgroups)),
        node_(std::move(node)),
        signals_(context_, SIGTERM, SIGINT),
        hangup_(context_, SIGHUP),
        due_(context_),
        sampling_(context_),
        showing_(context_),
        logs_([this](std::function<void()> task) { asio::post(context_, std::move(task)); }),
        users_([this](std::function<void()> task) { asio::post(context_, std::move(task)); },
               ask_database),
        executor_(context_, *cgroups_, node_->enforcer(), std::move(stepd)) {}

  Result<void> run(Machine machine, const std::function<void()>& ready) {
    Store store = TRY(Store::open(options_.state / "state.db"));
    engine_ = TRY(Engine::create({options_.settings, std::move(machine), clock_, executor_, users_,
                                  std::move(store), Uid(::getuid())},
                                 {.simulated = node_->devices().simulated(),
                                  .backends = node_->enforcer().backends(),
                                  .state = options_.state,
                                  .driver = node_->devices().driver_version()}));
    for (const Job* job : engine_->active()) {
      if (job->enforcement != core::kNotHeld) node_->enforcer().adopt(job->grant());
    }
    node_->enforcer().recovered();
    executor_.listen(engine_->runs(), [this] { settle(); });
    api_ = std::make_unique<ApiServer>(
        *engine_, [this] { settle_soon(); }, [this] { return reload("scontrol reconfigure"); });
    web_ = std::make_unique<Web>(*engine_, *api_, logs_);
    web_->on_watched([this] { refresh_page(); });
    auto server = TRY(net::Server::listen(
        context_, server_options(), [this](net::Request request, const net::Responder& respond) {
          web_->handle(request, respond);
        }));
    const auto remote = TRY(listen_for_pages());
    signals_.async_wait([this](error_code error, int number) {
      if (error) return;
      spdlog::info("signal {}: stopping; jobs go on", number);
      context_.stop();
    });
    reload_on_hangup();
    sigset_t hangup;
    ::sigemptyset(&hangup);
    ::sigaddset(&hangup, SIGHUP);
    ::pthread_sigmask(SIG_UNBLOCK, &hangup, nullptr);  // since main()
    (void)users_.find(Uid(::getuid()));                // who drains, and is shown
    settle();
    sample();
    ready();
    spdlog::info("listening on {}", options_.socket);
    context_.run();
    api_->stop();
    engine_->views().keep_history();
    engine_->settle();
    std::set<HolderId> active;
    for (const Job* job : engine_->active()) active.insert(holder_of(job->id));
    node_->enforcer().stop(active);
    return {};
  }

 private:
  // Descriptors are left for root, and for what the daemon itself opens.
  [[nodiscard]] std::int64_t most_connections() const {
    std::int64_t most = options_.settings.connections;
    rlimit files{};
    if (::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY) {
      const auto all = static_cast<std::int64_t>(files.rlim_cur);
      most = std::min(most, std::max(all - kOwnDescriptors, all / 2));
    }
    return most;
  }

  [[nodiscard]] net::ServerOptions server_options() const {
    const Settings& settings = options_.settings;
    net::ServerOptions server{.path = options_.socket, .mode = ::getuid() == 0 ? 0666U : 0600U};
    const std::int64_t most = most_connections();
    server.connections = static_cast<std::size_t>(most);
    server.connections_per_user =
        static_cast<std::size_t>(std::min(settings.connections_per_user, most));
    return server;
  }

  void reload_on_hangup() {
    hangup_.async_wait([this](error_code error, int) {
      if (error) return;
      (void)reload("SIGHUP");
      settle();
      reload_on_hangup();
    });
  }

  // `asked`: by whom, for the log.
  Result<Reloaded> reload(std::string_view asked) {
    const auto next = options_.reload();
    const std::string& level = next ? next->log_level : engine_->settings().log_level;
    if (const auto opened = node::reopen_log(level); !opened) {
      spdlog::error("{}", opened.error().message);
    }
    if (!next) {
      spdlog::error("{}: the settings stay as they are: {}", asked, next.error().message);
      return tl::make_unexpected(next.error());
    }
    Reloaded reloaded = engine_->reload(*next);
    spdlog::info(
        "{}: log opened anew; settings changed: {}", asked,
        reloaded.changed.empty() ? "none" : fmt::format("{}", fmt::join(reloaded.changed, ", ")));
    if (!reloaded.needs_restart.empty()) {
      spdlog::warn("{}: these need a restart: {}", asked, fmt::join(reloaded.needs_restart, ", "));
    }
    return reloaded;
  }

  // Nothing: the settings say so.
  Result<std::optional<net::Server>> listen_for_pages() {
    const show::Listen& page = options_.settings.page;
    if (page.port == 0) return std::nullopt;
    net::ServerOptions options = show::server_at(page, [](const Error& error) {
      spdlog::error("the page's certificate: {}", error.message);
    });
    options.body_limit = 64UL << 10U;
    // Those who are known come first.
    const std::int64_t most = most_connections() / 4;
    options.connections = static_cast<std::size_t>(most);
    options.connections_per_user =
        static_cast<std::size_t>(std::min(options_.settings.connections_per_user, most));
    auto server = TRY(net::Server::listen(
        context_, std::move(options), [this](net::Request request, const net::Responder& respond) {
          web_->handle_remote(std::move(request), respond);
        }));
    spdlog::info("the page is at {}", show::address_of(page));
    return server;
  }

  // While somebody watches.
  void refresh_page() {
    constexpr std::chrono::milliseconds kPause{500};
    constexpr int kBeat = 30;
    showing_.expires_after(kPause);
    showing_.async_wait([this](error_code error) {
      if (error || !web_->refresh()) return;
      if (++shown_ % kBeat == 0) web_->beat();
      refresh_page();
      if (engine_->forecast().unfinished()) settle_soon();
    });
  }

  // Once when the record fails us, and once when it is written again.
  void tell_trouble() {
    const auto& trouble = engine_->trouble();
    if (trouble && trouble->message != trouble_) {
      spdlog::error("{}; running jobs go on, requests are refused until it works again",
                    trouble->message);
    } else if (!trouble && !trouble_.empty()) {
      spdlog::info("the state database is written again");
    }
    trouble_ = trouble ? trouble->message : "";
  }

  // Several requests that came together are committed together.
  void settle_soon() {
    if (std::exchange(settling_, true)) return;
    asio::post(context_, [this] {
      settling_ = false;
      settle();
    });
  }

  void settle() {
    engine_->settle();
    tell_trouble();
    map_jobs();
    // The first job is watched from the start.
    if (resting_ && engine_->live() > 0) sample_later();
    due_.cancel();
    const auto due = engine_->next_due();
    if (!due) return;
    // In steps: the wall clock may be set meanwhile.
    const Millis wait = std::clamp(*due - clock_.wall(), Millis(1), minutes(1));
    due_.expires_after(std::chrono::milliseconds(wait.value()));
    due_.async_wait([this](error_code error) {
      if (!error) settle();
    });
  }

  // For dcgm-exporter, where the settings name a folder.
  void map_jobs() {
    const std::string& folder = engine_->settings().job_mapping;
    if (folder.empty()) return;
    auto now = engine_->views().jobs_by_gpu();
    if (now == mapped_) return;
    mapped_ = now;
    monitor_.post([this, folder, now = std::move(now)] {
      if (!mapping_) mapping_.emplace(folder);
      const auto written = mapping_->write(now);
      const std::string trouble = written ? "" : written.error().message;
      if (trouble != unmapped_ && !written) spdlog::warn("metrics.job_mapping: {}", trouble);
      unmapped_ = trouble;
      // What was not written is tried again.
      if (!written) asio::post(context_, [this] { mapped_.reset(); });
    });
  }

  void sample() {
    monitor_.post([this, running = engine_->runs().running()] {
      const auto fenced = node::fenced_by(*cgroups_, running);
      const bool marks = !cgroups_->available();
      auto views = node::look_at_gpus(node_->devices(), running, fenced, marks, {});
      std::vector<node::Escape> escapes;
      if (views) {
        const auto members = node::members_by(running, fenced, marks);
        escapes = node_->enforcer().inspect(*views, members);
        std::ranges::move(faults_.look(*views, running, members), std::back_inserter(escapes));
      }
      node_->enforcer().tick();
      Measures measures{.uses = {}, .mps_restarts = node_->enforcer().mps_restarts()};
      if (views) {
        measures.uses = meter_.look(*views, node_->enforcer().told(), clock_.mono());
      }
      asio::post(context_, [this, views = std::move(views), escapes,
                            measures = std::move(measures)]() mutable {
        sampled(std::move(views), escapes, measures);
      });
    });
  }

  void sampled(Result<std::vector<node::GpuView>> views, const std::vector<node::Escape>& escapes,
               const Measures& measures) {
    for (const node::Escape& escape : escapes) {
      spdlog::warn("job {}: {}", escape.job, make_plain(escape.what));
    }
    engine_->runs().report(escapes);
    if (!views) spdlog::warn("cannot sample the GPUs: {}", views.error().message);
    engine_->observe(views ? std::optional(std::move(*views)) : std::nullopt, measures);
    settle();
    sample_later();
  }

  void sample_later() {
    const Settings& settings = engine_->settings();
    resting_ = engine_->live() == 0 && !node_->enforcer().busy();
    Millis wait = resting_ ? settings.idle_sample_interval : settings.sample_interval;
    if (node_->enforcer().watching()) wait = std::min(wait, settings.watch_interval);
    sampling_.expires_after(std::chrono::milliseconds(wait.value()));
    sampling_.async_wait([this](error_code error) {
      if (error) return;
      resting_ = false;
      sample();
    });
  }

  const DaemonOptions& options_;
  sys::SystemClock clock_;
  std::unique_ptr<node::Cgroups> cgroups_;
  std::unique_ptr<node::Node> node_;  // freezes and thaws
  asio::io_context context_{1};
  asio::signal_set signals_;
  asio::signal_set hangup_;
  asio::steady_timer due_;
  asio::steady_timer sampling_;
  asio::steady_timer showing_;
  int shown_ = 0;
  JobLog logs_;
  KnownUsers users_;  // keeps requests
  std::string trouble_;
  bool settling_ = false;
  bool resting_ = false;  // the next sample is a long time away
  StepdExecutor executor_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<ApiServer> api_;
  std::unique_ptr<Web> web_;
  node::ShareMeter meter_;                   // the monitor's
  std::optional<node::JobMapping> mapping_;  // its, too
  std::string unmapped_;                     // its, too: why the last was not written
  std::optional<node::JobMapping::Jobs> mapped_;
  node::GpuFaults faults_;  // the monitor's
  node::Worker monitor_{"aq-monitor"};
};

}  // namespace

Result<void> run_daemon(const DaemonOptions& options, const std::function<void()>& ready) {
  const bool root = ::getuid() == 0;
  // Users walk through to their script, and see nothing on the way.
  TRY(sys::make_own_folder(options.state, root ? 0711 : 0700));
  TRY(sys::make_own_folder(options.state / "jobs", root ? 0711 : 0700));
  const sys::Fd lock = TRY(sys::lock_folder(options.state));
  ::umask(0077);
  // As we were started. What we need ourselves is none of the jobs' business.
  const auto limits = node::own_limits();
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }

  const Settings& settings = options.settings;
  std::optional<gpu::StandIn> standin;
  if (!settings.simulate.empty()) {
    standin = gpu::StandIn{options.standin, settings.simulate, options.state / "standin", root};
  }
  // The machine's own is the socket's folder as well, made already.
  if (!std::filesystem::exists(options.run)) {
    TRY(sys::make_own_folder(options.run, root ? 0711 : 0700));
  }
  // Two daemons of root with a state of their own each have groups of their own each.
  const std::string state = options.state.lexically_normal();
  const std::string groups = state == "/var/lib/aliquot"
                                 ? "aliquot"
                                 : fmt::format("aliquot-{:x}", std::hash<std::string>{}(state));
  auto cgroups = root ? node::open_cgroups(groups) : node::no_cgroups("not root");
  spdlog::info("control groups: {}", cgroups->capabilities());
  auto node = TRY(node::Node::open(
      {.run = options.run,
       .library = settings.library.empty() ? options.library.string() : settings.library,
       .standin = standin,
       .enforce = settings.enforce,
       .compute_limit = settings.compute_limit,
       .cgroups = cgroups.get()}));
  Machine machine = find_machine(settings, node->gpus(), node->devices().simulated());
  StepdOptions stepd{.jobs = options.state / "jobs",
                     .stepd = options.stepd,
                     .commands = options.commands,
                     .socket = options.socket,
                     .cluster = settings.cluster,
                     .node = machine.name,
                     .kill_wait = settings.kill_wait,
                     .standin = standin,
                     .gpus = node->gpus(),
                     .limits = limits,
                     .processes = settings.processes.value_or(usual_processes()),
                     .enforce_cpus = !node->devices().simulated() && !settings.cpus};
  if (cgroups->available() && node::has_public_place(options.run)) {
    TRY(node::publish_place(ALIQUOT_PLACE_ENGINE, "/" + groups, options.run));
  }
  Daemon daemon(options, std::move(node), std::move(cgroups), std::move(stepd));
  return daemon.run(std::move(machine), ready);
}

}  // namespace aliquot::engine
