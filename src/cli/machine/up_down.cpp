// `aliquot up` and `down`: the daemon of this machine (for root) or of this user. Both say what
// they did, and doing it twice is no mistake.
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/text.hpp"
#include "cli/console.hpp"
#include "cli/daemon_client.hpp"
#include "cli/engine_choice.hpp"
#include "cli/machine/paths.hpp"
#include "cli/own_command.hpp"
#include "cli/users.hpp"
#include "cli/view/job_text.hpp"
#include "cli/view/json_writer.hpp"
#include "sys/fd.hpp"
#include "sys/process.hpp"
#include "sys/program.hpp"
#include "sys/system_clock.hpp"

namespace aliquot::cli {
namespace {

namespace fs = std::filesystem;

constexpr Millis kPatience = seconds(20);
constexpr std::uintmax_t kLeastSpace = 64 * 1024;

struct UpOptions {
  std::string simulate;
  std::string state_dir;
  std::string config;
  bool json = false;
};

// The process that listens at the socket, as the kernel knows it.
struct Listener {
  pid_t pid = 0;
  uid_t uid = 0;
};

Listener listener_of(const DaemonClient& daemon) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(daemon.descriptor(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return {};
  return {peer.pid, peer.uid};
}

int report(const UpOptions& options, std::string_view did, const Listener& listener,
           std::string_view text) {
  if (!options.json) return print(fmt::format("{}\n", text));
  JsonWriter json;
  json.begin_object().field("did", did).field("pid", listener.pid).field("text", text);
  return print(json.end_object().text());
}

std::string last_lines(const std::string& path, std::streamoff from) {
  std::ifstream file(path);
  file.seekg(from);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  std::string text;
  const std::size_t first = lines.size() > 5 ? lines.size() - 5 : 0;
  for (auto i = first; i < lines.size(); ++i) text += "\n  " + lines[i];
  return text;
}

std::vector<std::string> command_of(const std::string& program, const UpOptions& options) {
  std::vector<std::string> command{program};
  const auto add = [&](const char* option, const std::string& value) {
    if (value.empty()) return;
    command.emplace_back(option);
    command.push_back(value);
  };
  add("--simulate", options.simulate);
  add("--state-dir", options.state_dir);
  add("--config", options.config);
  if (const char* socket = std::getenv("ALIQUOT_SOCKET"); socket != nullptr) {
    add("--socket", socket);
  }
  return command;
}

// Starts the daemon in a session of its own. It inherits none of our files; its output goes to the
// log.
Result<Pid> start(const std::vector<std::string>& command, const std::string& log) {
  const sys::Fd file(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  return sys::start_program({.file = command[0],
                             .argv = command,
                             .out = file.get(),
                             .err = file.get(),
                             .directory = "/",
                             .new_session = true});
}

// Those that the daemon was not started with.
std::string other_options(const UpOptions& options, pid_t daemon) {
  const std::string line = sys::read_proc(Pid(daemon), "cmdline").value_or("");
  const auto running = split(line, '\0');
  std::string others;
  for (const auto& [option, value] :
       {std::pair("--simulate", &options.simulate), std::pair("--state-dir", &options.state_dir),
        std::pair("--config", &options.config)}) {
    if (value->empty()) continue;
    const auto same = std::ranges::find(running, *value);
    if (same != running.end() && same != running.begin() && *std::prev(same) == option) continue;
    others += fmt::format("{}{} {}", others.empty() ? "" : " ", option, *value);
  }
  return others;
}

// What runs is of little use without one.
std::string without_gpus(const api::ClusterInfo& cluster) {
  if (!cluster.node.gpus.empty()) return "";
  return "\nit finds no GPU here: 'aliquot doctor' says why; to try it with simulated ones, "
         "'aliquot "
         "down' and 'aliquot up --simulate h200:4'";
}

// How `sbatch` becomes ours, where it is not.
std::string without_commands() {
  const auto found = find_program("sbatch");
  if (found.empty()) {
    return fmt::format(
        "\nthe commands are 'aliquot sbatch', 'aliquot squeue', …; without 'aliquot': 'aliquot "
        "shims {}'",
        ::geteuid() == 0 ? "/usr/local/bin" : "~/.local/bin");
  }
  std::error_code error;
  if (fs::equivalent(found, sys::own_program(), error)) return "";
  return fmt::format(
      "\nthe sbatch in PATH, {}, is another one: 'aliquot sbatch' is ours, or 'aliquot shims "
      "FOLDER' and that folder first in PATH",
      found);
}

int up(const UpOptions& options) {
  if (const auto no = refused_on_cluster(
          "up", {.slurm = "on a cluster, systemctl start aliquot-agent",
                 .kubernetes = "the manifests start what runs there (docs/kubernetes.md)"})) {
    return *no;
  }
  if (auto daemon = DaemonClient::connect()) {
    const auto listener = listener_of(*daemon);
    const auto whose =
        listener.uid == ::geteuid() ? "" : ", started by " + user_name(Uid(listener.uid));
    if (const auto others = other_options(options, listener.pid); !others.empty()) {
      complain(
          fmt::format("aliquotd is already running (pid {}{}), and not with {}: 'aliquot down' "
                      "first",
                      listener.pid, whose, others));
      return kFailed;
    }
    return report(options, "nothing", listener,
                  fmt::format("aliquotd is already running (pid {}{})", listener.pid, whose));
  }
  const auto program = find_beside_or_in_path("aliquotd");
  if (program.empty()) {
    complain("aliquotd is neither beside this program nor in PATH: install the whole package");
    return kFailed;
  }
  const auto log =
      (options.state_dir.empty() ? state_folder() : options.state_dir) + "/aliquotd.log";
  std::error_code error;
  fs::create_directories(fs::path(log).parent_path(), error);
  if (error) {
    complain(fmt::format("cannot make the folder of {}: {}", log, error.message()));
    return kFailed;
  }
  const auto before = fs::file_size(log, error);
  const auto from = error ? std::streamoff(0) : static_cast<std::streamoff>(before);

  const auto child = start(command_of(program, options), log);
  if (!child) {
    complain(child.error().message);
    return kFailed;
  }
  const sys::SystemClock clock;
  const auto begun = clock.mono();
  while (clock.mono() - begun < kPatience) {
    auto daemon = DaemonClient::connect();
    const auto cluster = daemon ? daemon->get<api::ClusterInfo>("/v1/cluster")
                                : Reply<api::ClusterInfo>(tl::make_unexpected(daemon.error()));
    if (cluster) {
      const auto listener = listener_of(*daemon);
      return report(
          options, "started", listener,
          fmt::format(
              "started aliquotd (pid {}) for {}{}; its log is {}{}", listener.pid,
              ::geteuid() == 0 ? "this machine" : "you alone",
              options.simulate.empty() ? "" : ", with simulated GPUs (" + options.simulate + ")",
              log, without_gpus(*cluster) + without_commands()));
    }
    int status = 0;
    if (::waitpid(child->value(), &status, WNOHANG) == child->value() && status != 0) {
      complain("aliquotd ended at once: see 'aliquot doctor' and " + log);
      if (const auto said = last_lines(log, from); !said.empty()) {
        fmt::print(stderr, "{}\n", said.substr(1));
      } else if (fs::space(fs::path(log).parent_path(), error).available < kLeastSpace) {
        fmt::print(stderr, "  it could not even say why: the disk of {} is full\n", log);
      }
      return kFailed;
    }
    ::usleep(20'000);
  }
  complain(fmt::format("aliquotd was started (pid {}) but does not answer: see {}", *child, log));
  return kFailed;
}

// A zombie does not count: in a container without an init nobody waits for it.
bool is_aliquotd(Pid pid) {
  const auto process = sys::read_process(pid);
  return process && sys::is_alive(process->ref) && sys::command_of(pid) == "aliquotd";
}

std::size_t running_jobs(DaemonClient& daemon) {
  const auto list = daemon.list("/v1/jobs?live");
  std::size_t running = 0;
  if (list) {
    for (const auto& job : list->jobs) running += is_active(job) ? 1U : 0U;
  }
  return running;
}

int down(const UpOptions& options) {
  if (const auto no = refused_on_cluster(
          "down", {.slurm = "on a cluster, systemctl stop aliquot-agent",
                   .kubernetes = "kubectl delete what the manifests made (docs/kubernetes.md)"})) {
    return *no;
  }
  auto daemon = DaemonClient::connect();
  if (!daemon) return report(options, "nothing", {}, "no daemon is running");
  const auto listener = listener_of(*daemon);
  if (::geteuid() != 0 && listener.uid != ::geteuid()) {
    complain(fmt::format("this machine's daemon is {}'s: only they and root may stop it",
                         user_name(Uid(listener.uid))));
    return kFailed;
  }
  if (!is_aliquotd(Pid(listener.pid))) {
    complain(fmt::format("what answers is not aliquotd but process {}: not stopped", listener.pid));
    return kFailed;
  }
  const auto running = running_jobs(*daemon);
  if (::kill(listener.pid, SIGTERM) != 0 && errno != ESRCH) {
    complain(fmt::format("cannot stop aliquotd (pid {}): {}", listener.pid, std::strerror(errno)));
    return kFailed;
  }
  const sys::SystemClock clock;
  const auto begun = clock.mono();
  while (::kill(listener.pid, 0) == 0 && is_aliquotd(Pid(listener.pid))) {
    if (clock.mono() - begun > kPatience) {
      complain(fmt::format("aliquotd (pid {}) does not end: see its log", listener.pid));
      return kFailed;
    }
    ::usleep(20'000);
  }
  return report(options, "stopped", listener,
                running == 0 ? fmt::format("stopped aliquotd (pid {})", listener.pid)
                             : fmt::format("stopped aliquotd (pid {}); {} running job{} on, and "
                                           "'aliquot up' takes them over again",
                                           listener.pid, running, running == 1 ? " goes" : "s go"));
}

}  // namespace

void add_up(CLI::App& command, Invocation& invocation) {
  auto& options = run_with(command, invocation, up);
  command.add_option("--simulate", options.simulate, "Simulated GPUs, e.g. h200:4");
  command.add_option("--state-dir", options.state_dir, "Where the queue is kept");
  command.add_option("--config", options.config, "The file with the settings");
  command.add_flag("--json", options.json, kJsonAbout);
}

void add_down(CLI::App& command, Invocation& invocation) {
  auto& options = run_with(command, invocation, down);
  command.add_flag("--json", options.json, kJsonAbout);
}

}  // namespace aliquot::cli
