#include "engine/daemon.hpp"

#include <fcntl.h>
#include <grp.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/text.hpp"
#include "engine/api_server.hpp"
#include "engine/enforcer.hpp"
#include "engine/monitor.hpp"
#include "engine/stepd_executor.hpp"
#include "net/server.hpp"
#include "node/spawn.hpp"

namespace aliquot::engine {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// A simulated machine has as many CPUs for each GPU as real ones have, whatever it runs on: else a
// laptop could not show twenty jobs sharing four GPUs.
constexpr std::int64_t kSimulatedCpusPerGpu = 16;

class SystemUsers final : public Users {
 public:
  Result<User> find(Uid uid) override {
    if (const auto known = known_.find(uid); known != known_.end()) return known->second;
    const node::Identity identity = TRY(node::find_identity(uid));
    const User user{identity.user, group_name(identity.gid), identity.gid.value()};
    return known_.emplace(uid, user).first->second;
  }

 private:
  static std::string group_name(node::Gid gid);
  std::map<Uid, User> known_;
};

std::string SystemUsers::group_name(node::Gid gid) {
  std::array<char, 8192> buffer;
  group entry{};
  group* found = nullptr;
  ::getgrgid_r(gid.value(), &entry, buffer.data(), buffer.size(), &found);
  return found == nullptr ? std::to_string(gid.value()) : std::string(found->gr_name);
}

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

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
  const std::string host = names.nodename;
  machine.name = settings.node.empty() ? host.substr(0, host.find('.')) : settings.node;
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
  machine.gpus = std::move(gpus);
  return machine;
}

// The state folder is one daemon's. The lock goes with the process, however it ends.
Result<node::Fd> lock_state(const std::filesystem::path& state) {
  const std::string path = state / "lock";
  node::Fd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) {
    return fail(Error::Code::unavailable, "cannot open {}: {}", quote(path), std::strerror(errno));
  }
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return fail(Error::Code::already_exists, "another daemon (pid {}) uses the state folder {}",
                read_line(path), quote(state.string()));
  }
  const std::string pid = std::to_string(::getpid()) + "\n";
  if (::ftruncate(lock.get(), 0) != 0 ||
      ::write(lock.get(), pid.data(), pid.size()) != std::ssize(pid)) {
    return fail(Error::Code::unavailable, "cannot write {}: {}", quote(path), std::strerror(errno));
  }
  return lock;
}

Result<void> make_folder(const std::filesystem::path& path, mode_t mode) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    return fail(Error::Code::unavailable, "cannot create {}: {}", quote(path.string()),
                error.message());
  }
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    return fail(Error::Code::failed_state, "{} is no folder", quote(path.string()));
  }
  // In a folder of somebody else's all we keep there would be theirs.
  if (status.st_uid != ::getuid()) {
    return fail(Error::Code::permission_denied, "{} belongs to another user", quote(path.string()));
  }
  if (::chmod(path.c_str(), mode) != 0) {
    return fail(Error::Code::permission_denied, "cannot set the mode of {}: {}",
                quote(path.string()), std::strerror(errno));
  }
  return {};
}

// What this node can do to hold jobs to their shares.
Result<std::unique_ptr<Enforcer>> make_enforcer(const DaemonOptions& options,
                                                const gpu::Devices& devices,
                                                const std::vector<gpu::Device>& gpus,
                                                const std::optional<gpu::StandIn>& standin) {
  const Settings& settings = options.settings;
  EnforcerOptions enforcer{
      .run = options.run,
      .library = settings.library.empty() ? options.library.string() : settings.library,
      .facts = {.enabled = settings.enforce,
                .driver_version = devices.driver_version(),
                .compute_limit = settings.compute_limit,
                .kill_escapes = settings.escape == "kill"},
      .gpus = gpus,
      .mps = nullptr};
  core::EnforcementFacts& facts = enforcer.facts;
  facts.domain = core::parse_fault_domain(settings.fault_domain).value_or(core::FaultDomain::user);
  const std::string library = enforcer.library;
  if (::access(library.c_str(), R_OK) != 0) {
    facts.no_library = fmt::format("there is no {}", library);
  } else if (library.find_first_of(" :$") != std::string::npos) {
    facts.no_library = fmt::format("{} has a space, a colon or a '$' in its name", library);
  }
  if (const auto program = gpu::find_mps_control(standin)) {
    std::vector<std::string> variables;
    if (standin) {
      variables = gpu::environment(*standin);
      variables.push_back("LD_LIBRARY_PATH=" + standin->directory.string());
    }
    enforcer.mps = gpu::open_mps(*program, std::move(variables));
  } else {
    facts.no_mps = program.error().message;
  }
  if (gpus.empty()) facts.no_mps = "there is no GPU";
  std::error_code error;
  if (!std::filesystem::exists(options.run, error)) {
    TRY(make_folder(options.run, ::getuid() == 0 ? 0711 : 0700));
  }
  for (const core::Backend& backend : core::list_backends(facts)) {
    spdlog::info("enforcement: {}: {}{}", backend.name,
                 backend.used ? "" : "not used: ", backend.detail);
  }
  return Enforcer::create(std::move(enforcer));
}

class Daemon {
 public:
  Daemon(const DaemonOptions& options, std::unique_ptr<gpu::Devices> devices,
         std::unique_ptr<node::Cgroups> cgroups, std::unique_ptr<Enforcer> enforcer,
         StepdOptions stepd)
      : options_(options),
        devices_(std::move(devices)),
        cgroups_(std::move(cgroups)),
        enforcer_(std::move(enforcer)),
        signals_(context_, SIGTERM, SIGINT),
        due_(context_),
        sampling_(context_),
        executor_(context_, *cgroups_, *enforcer_, std::move(stepd)) {}

  Result<void> run(Machine machine, const std::function<void()>& ready) {
    Store store = TRY(Store::open(options_.state / "state.db"));
    engine_ = TRY(Engine::create({options_.settings, std::move(machine), clock_, executor_, users_,
                                  std::move(store), Uid(::getuid()), devices_->simulated(),
                                  enforcer_->backends()}));
    remove_stale_groups();
    for (const api::JobInfo& job : engine_->active()) enforcer_->adopt(job);
    enforcer_->recovered();
    executor_.listen(*engine_, [this] { settle(); });
    api_ = std::make_unique<ApiServer>(*engine_, [this] { settle_soon(); });
    auto server = TRY(net::Server::listen(
        context_, {.path = options_.socket, .mode = ::getuid() == 0 ? 0666U : 0600U},
        [this](net::Request request, const net::Responder& respond) {
          api_->handle(request, respond);
        }));
    signals_.async_wait([this](error_code error, int number) {
      if (error) return;
      spdlog::info("signal {}: stopping; jobs go on", number);
      context_.stop();
    });
    settle();
    sample();
    ready();
    spdlog::info("listening on {}", options_.socket);
    context_.run();
    api_->stop();
    engine_->settle();
    enforcer_->stop(engine_->active());
    return {};
  }

 private:
  // Of jobs that nobody knows any more; a group with a process in it stays.
  void remove_stale_groups() {
    const auto groups = cgroups_->jobs();
    if (!groups) return;
    const auto running = engine_->running();
    for (const JobId id : *groups) {
      if (std::ranges::find(running, id, &Engine::RunningJob::id) == running.end()) {
        (void)cgroups_->remove({id});
      }
    }
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

  void sample() {
    monitor_.post([this, running = engine_->running()] {
      auto views = look_at_gpus(*devices_, running, *cgroups_);
      std::vector<Escape> escapes;
      if (views) escapes = enforcer_->inspect(*views);
      enforcer_->tick();
      asio::post(context_, [this, views = std::move(views), escapes]() mutable {
        sampled(std::move(views), escapes);
      });
    });
  }

  void sampled(Result<std::vector<GpuView>> views, const std::vector<Escape>& escapes) {
    for (const Escape& escape : escapes) spdlog::warn("job {}: {}", escape.job, escape.what);
    engine_->report(escapes);
    if (views) {
      engine_->observe(std::move(*views));
    } else {
      spdlog::warn("cannot sample the GPUs: {}", views.error().message);
      engine_->observe_failure();
    }
    settle();
    sample_later();
  }

  void sample_later() {
    const Settings& settings = options_.settings;
    resting_ = engine_->live() == 0 && !enforcer_->busy();
    const Millis wait = resting_ ? settings.idle_sample_interval : settings.sample_interval;
    sampling_.expires_after(std::chrono::milliseconds(wait.value()));
    sampling_.async_wait([this](error_code error) {
      if (error) return;
      resting_ = false;
      sample();
    });
  }

  const DaemonOptions& options_;
  SystemClock clock_;
  SystemUsers users_;
  std::unique_ptr<gpu::Devices> devices_;
  std::unique_ptr<node::Cgroups> cgroups_;
  std::unique_ptr<Enforcer> enforcer_;
  asio::io_context context_{1};
  asio::signal_set signals_;
  asio::steady_timer due_;
  asio::steady_timer sampling_;
  bool was_busy_ = false;
  bool settling_ = false;
  bool resting_ = false;  // the next sample is a long time away
  StepdExecutor executor_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<ApiServer> api_;
  Worker monitor_{"aq-monitor"};
};

}  // namespace

Result<void> run_daemon(const DaemonOptions& options, const std::function<void()>& ready) {
  const bool root = ::getuid() == 0;
  // Users walk through to their script, and see nothing on the way.
  TRY(make_folder(options.state, root ? 0711 : 0700));
  TRY(make_folder(options.state / "jobs", root ? 0711 : 0700));
  const node::Fd lock = TRY(lock_state(options.state));
  ::umask(0077);
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
  std::unique_ptr<gpu::Devices> devices;
  if (auto opened = gpu::open_devices(standin)) {
    devices = std::move(*opened);
  } else if (standin) {
    return tl::make_unexpected(opened.error());
  } else {
    devices = gpu::no_devices(opened.error().message);
  }
  std::vector<gpu::Device> gpus = TRY(devices->list());
  spdlog::info("{}; {} GPUs{}", devices->description(), gpus.size(),
               devices->simulated() ? ", simulated" : "");
  // Two daemons of root with a state of their own each have groups of their own each.
  const std::string state = options.state.lexically_normal();
  const std::string groups = state == "/var/lib/aliquot"
                                 ? "aliquot"
                                 : fmt::format("aliquot-{:x}", std::hash<std::string>{}(state));
  auto cgroups = root ? node::open_cgroups(groups) : node::no_cgroups("not root");
  spdlog::info("control groups: {}", cgroups->capabilities());
  Machine machine = find_machine(settings, gpus, devices->simulated());
  StepdOptions stepd{.jobs = options.state / "jobs",
                     .stepd = options.stepd,
                     .commands = options.commands,
                     .socket = options.socket,
                     .cluster = settings.cluster,
                     .node = machine.name,
                     .kill_wait = settings.kill_wait,
                     .standin = standin,
                     .gpus = gpus,
                     .enforce_cpus = !devices->simulated() && !settings.cpus};
  auto enforcer = TRY(make_enforcer(options, *devices, gpus, standin));
  Daemon daemon(options, std::move(devices), std::move(cgroups), std::move(enforcer),
                std::move(stepd));
  return daemon.run(std::move(machine), ready);
}

}  // namespace aliquot::engine
