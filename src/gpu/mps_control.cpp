// MpsControl by running nvidia-cuda-mps-control.
#include <signal.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/text.hpp"
#include "gpu/mps.hpp"
#include "sys/fd.hpp"
#include "sys/process.hpp"

namespace aliquot::gpu {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPipeVariable = "CUDA_MPS_PIPE_DIRECTORY";
constexpr Millis kStart = seconds(15);
constexpr Millis kAnswer = seconds(1);
constexpr Millis kStop = seconds(5);
// The kernel's limit of a socket's name, less the longest that the driver puts into the folder.
constexpr std::size_t kLongestFolder = 107 - std::string_view("/p/control_privileged").size();

bool is_ours(Pid pid) { return pid.value() > 1 && sys::owner_of(pid) == Uid(geteuid()); }

// By its name, which anybody can take.
bool is_mps(Pid pid) { return sys::command_of(pid).starts_with("nvidia-cuda-mps"); }

// Every process of MPS that was started with these pipes; those of others carry the name too (each
// client does), so the program counts. Not by the pid file: in there anyone may write.
struct Found {
  Pid pid;
  bool control = false;
};
std::vector<Found> find_processes(const fs::path& pipes) {
  const std::string wanted = fmt::format("{}={}", kPipeVariable, pipes.string());
  std::vector<Found> found;
  for (const Pid pid : sys::all_pids()) {
    const auto process = is_mps(pid) ? sys::read_process(pid) : std::nullopt;
    if (!process) continue;
    // Control daemons are ours, and servers are their children. Somebody else's program may have
    // any name, and can see to it that who reads its command line or environment waits for ever.
    const bool own = is_ours(pid);
    if (!own && (!is_ours(process->parent) || !is_mps(process->parent))) continue;
    const bool control = own && sys::read_proc(pid, "cmdline").value_or("").find("-mps-control") !=
                                    std::string::npos;
    const std::string environment = sys::read_proc(pid, "environ").value_or("");
    for (const auto variable : split(environment, '\0')) {
      if (variable == wanted) found.push_back({pid, control});
    }
  }
  return found;
}

class ExecMps final : public MpsControl {
 public:
  ExecMps(fs::path program, std::vector<std::string> extra)
      : program_(std::move(program)), extra_(std::move(extra)) {}

  Result<void> start(const fs::path& folder, const GpuId& gpu, bool all_users) override {
    if (folder.string().size() > kLongestFolder) {
      return fail(Error::Code::invalid_argument,
                  "{} is too long a path for MPS: give aliquotd a shorter --run-dir",
                  folder.string());
    }
    std::vector<std::string> arguments = {"-d"};
    if (all_users) arguments.emplace_back("--multiuser-server");
    const auto answer =
        run_control(pipe(folder), {.arguments = std::move(arguments),
                                   .environment = {"CUDA_VISIBLE_DEVICES=" + gpu.value()},
                                   .patience = kStart});
    if (answer.status != 0) {
      const std::string line = answer.text.substr(0, answer.text.find('\n'));
      return fail(Error::Code::unavailable, "nvidia-cuda-mps-control does not start: {}",
                  line.empty() ? fmt::format("status {}", answer.status) : line);
    }
    forget(folder);
    if (!alive(folder)) {
      return fail(Error::Code::unavailable, "nvidia-cuda-mps-control ended at once");
    }
    return {};
  }

  bool alive(const fs::path& folder) override {
    const auto process = control_daemon(folder);
    return process != nullptr && !sys::has_ended(*process, Millis(0));
  }

  Result<void> limit(const fs::path& folder, Bytes each) override {
    // The server has one GPU, so it is number 0 whichever it is.
    const std::int64_t size = (each.value() + mib(1).value() - 1) / mib(1).value();
    const auto done = [](const MpsAnswer& answer) {
      return answer.status == 0 && answer.text.empty();
    };
    // The default is for servers to come: one that starts in the middle of this has it already.
    auto answer = told(folder, fmt::format("set_default_device_pinned_mem_limit 0 {}M\n", size));
    if (done(answer)) {
      const auto list = told(folder, "get_server_list\n");
      std::string commands;
      for (const pid_t server : numbers(list.text)) {
        commands += fmt::format("set_device_pinned_mem_limit {} 0 {}M\n", server, size);
      }
      if (list.status == 0 && commands.empty()) return {};
      answer = list.status == 0 ? told(folder, commands) : list;
    }
    if (done(answer)) return {};
    return fail(
        Error::Code::unavailable, "nvidia-cuda-mps-control takes no limit: {}",
        answer.status < 0 ? "no answer in time" : answer.text.substr(0, answer.text.find('\n')));
  }

  Result<void> start_server(const fs::path& folder) override {
    (void)told(folder, fmt::format("start_server -uid {}\n", geteuid()));
    if (numbers(told(folder, "get_server_list\n").text).empty()) {
      return fail(Error::Code::unavailable, "no MPS server starts: see {}",
                  (folder / "l").string());
    }
    return {};
  }

  [[nodiscard]] MpsPipe pipe(const fs::path& folder) const override {
    return {program_.string(), extra_, folder.string()};
  }

  void stop(const fs::path& folder) override {
    if (const auto process = control_daemon(folder);
        process && !sys::has_ended(*process, Millis(0))) {
      run_control(pipe(folder), {.input = "quit -t 1\n", .patience = kStop});
      sys::has_ended(*process, kStop);
    }
    forget(folder);
    // What did not go by itself.
    for (const Found& one : find_processes(folder / "p")) {
      const sys::Fd process = sys::open_pid(one.pid);
      if (!process) continue;
      sys::signal_process(process.get(), SIGKILL);
      sys::has_ended(process, seconds(1));
    }
  }

 private:
  [[nodiscard]] MpsAnswer told(const fs::path& folder, const std::string& commands) const {
    return tell(pipe(folder), commands, kAnswer);
  }

  // Null: there is none.
  std::shared_ptr<const sys::Fd> control_daemon(const fs::path& folder) {
    {
      const std::lock_guard lock(mutex_);
      if (const auto known = processes_.find(folder); known != processes_.end()) {
        return known->second;
      }
    }
    for (const Found& one : find_processes(folder / "p")) {
      auto process = std::make_shared<const sys::Fd>(sys::open_pid(one.pid));
      if (!one.control || !*process) continue;
      const std::lock_guard lock(mutex_);
      processes_.insert_or_assign(folder, process);
      return process;
    }
    return nullptr;
  }
  void forget(const fs::path& folder) {
    const std::lock_guard lock(mutex_);
    processes_.erase(folder);
  }

  const fs::path program_;
  const std::vector<std::string> extra_;
  std::mutex mutex_;  // for what follows
  std::map<fs::path, std::shared_ptr<const sys::Fd>> processes_;
};

}  // namespace

Result<fs::path> find_mps_control(const std::optional<StandIn>& standin) {
  constexpr const char* kName = "nvidia-cuda-mps-control";
  std::vector<fs::path> folders;
  if (standin) {
    folders = {standin->directory};
  } else {
    const char* path = getenv("PATH");
    std::string list = path == nullptr ? "" : path;
    list += ":/usr/bin:/usr/local/bin:/usr/local/nvidia/bin";
    for (const auto folder : split(list, ':')) {
      if (folder.starts_with('/')) folders.emplace_back(folder);
    }
  }
  for (const fs::path& folder : folders) {
    if (access((folder / kName).c_str(), X_OK) == 0) return folder / kName;
  }
  return fail(Error::Code::unsupported, "nvidia-cuda-mps-control is not installed");
}

std::unique_ptr<MpsControl> open_mps(fs::path program, std::vector<std::string> extra) {
  return std::make_unique<ExecMps>(std::move(program), std::move(extra));
}

}  // namespace aliquot::gpu
