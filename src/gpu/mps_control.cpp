// MpsControl by running nvidia-cuda-mps-control.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.hpp"
#include "gpu/mps.hpp"
#include "gpu/own_fd.hpp"

namespace aliquot::gpu {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPipeVariable = "CUDA_MPS_PIPE_DIRECTORY";
constexpr Millis kStart = seconds(15);
constexpr Millis kAnswer = seconds(1);
constexpr int kStopMs = 5'000;
// The kernel's limit of a socket's name, less the longest that the driver puts into the folder.
constexpr std::size_t kLongestFolder = 107 - std::string_view("/p/control_privileged").size();

std::string read_proc(pid_t pid, const char* name) {
  const OwnFd file(open(fmt::format("/proc/{}/{}", pid, name).c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 4096> buffer{};
  ssize_t n = 0;
  while (file && (n = read(file.get(), buffer.data(), buffer.size())) > 0) {
    text.append(buffer.data(), static_cast<std::size_t>(n));
  }
  return text;
}

bool is_ours(pid_t pid) {
  struct stat owner {};
  return pid > 1 && stat(fmt::format("/proc/{}", pid).c_str(), &owner) == 0 &&
         owner.st_uid == geteuid();
}

// By its name, which anybody can take.
bool is_mps(pid_t pid) { return read_proc(pid, "comm").starts_with("nvidia-cuda-mps"); }

// 0: it is gone.
pid_t parent_of(pid_t pid) {
  const std::string text = read_proc(pid, "stat");
  const auto name_end = text.rfind(") ");
  if (name_end == std::string::npos) return 0;
  const auto fields = split(std::string_view(text).substr(name_end + 2), ' ');
  return fields.size() < 2 ? 0 : static_cast<pid_t>(parse_digits(fields[1]).value_or(0));
}

// Every process of MPS that was started with these pipes; those of others carry the name too (each
// client does), so the program counts. Not by the pid file: in there anyone may write.
struct Found {
  pid_t pid = 0;
  bool control = false;
};
std::vector<Found> find_processes(const fs::path& pipes) {
  const std::string wanted = fmt::format("{}={}", kPipeVariable, pipes.string());
  std::vector<Found> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), closedir);
  if (!folder) return found;
  while (const dirent* entry = readdir(folder.get())) {
    const auto number = parse_digits(entry->d_name);
    if (!number) continue;
    const auto pid = static_cast<pid_t>(*number);
    if (!is_mps(pid)) continue;
    // Control daemons are ours, and servers are their children. Somebody else's program may have
    // any name, and can see to it that who reads its command line or environment waits for ever.
    const bool own = is_ours(pid);
    if (const pid_t parent = parent_of(pid); !own && (!is_ours(parent) || !is_mps(parent)))
      continue;
    const bool control = own && read_proc(pid, "cmdline").find("-mps-control") != std::string::npos;
    const std::string environment = read_proc(pid, "environ");
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
    processes_.erase(folder);
    if (!alive(folder)) {
      return fail(Error::Code::unavailable, "nvidia-cuda-mps-control ended at once");
    }
    return {};
  }

  bool alive(const fs::path& folder) override {
    auto known = processes_.find(folder);
    if (known == processes_.end()) {
      for (const Found& one : find_processes(folder / "p")) {
        if (!one.control) continue;
        OwnFd process = open_pid(one.pid);
        if (process) known = processes_.insert_or_assign(folder, std::move(process)).first;
      }
    }
    return known != processes_.end() && !ended(known->second, 0);
  }

  Result<void> limit(const fs::path& folder, Bytes each) override {
    // The server has one GPU, so it is number 0 whichever it is.
    const std::int64_t size = (each.value() + mib(1).value() - 1) / mib(1).value();
    std::string commands = fmt::format("set_default_device_pinned_mem_limit 0 {}M\n", size);
    // The default is for servers to come.
    const auto list = told(folder, "get_server_list\n");
    for (const pid_t server : numbers(list.text)) {
      commands += fmt::format("set_device_pinned_mem_limit {} 0 {}M\n", server, size);
    }
    const auto answer = list.status == 0 ? told(folder, commands) : list;
    if (answer.status == 0 && answer.text.empty()) return {};
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
    if (alive(folder)) {
      run_control(pipe(folder), {.input = "quit -t 1\n", .patience = Millis(kStopMs)});
      ended(processes_.find(folder)->second, kStopMs);
    }
    processes_.erase(folder);
    // What did not go by itself.
    for (const Found& one : find_processes(folder / "p")) {
      const OwnFd process = open_pid(one.pid);
      if (!process) continue;
      syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0);
      ended(process, 1'000);
    }
  }

 private:
  [[nodiscard]] MpsAnswer told(const fs::path& folder, const std::string& commands) const {
    return tell(pipe(folder), commands, kAnswer);
  }

  fs::path program_;
  std::vector<std::string> extra_;
  std::map<fs::path, OwnFd> processes_;
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
