// MpsControl by running nvidia-cuda-mps-control.
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/text.hpp"
#include "gpu/mps.hpp"

namespace aliquot::gpu {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPipeVariable = "CUDA_MPS_PIPE_DIRECTORY";
constexpr int kStartMs = 15'000;
constexpr int kStopMs = 5'000;
constexpr int kAnswerMs = 1'000;
// The kernel's limit of a socket's name, less the longest that the driver puts into the folder.
constexpr std::size_t kLongestFolder = 107 - std::string_view("/p/control_privileged").size();

class OwnFd {
 public:
  explicit OwnFd(int fd = -1) : fd_(fd) {}
  OwnFd(OwnFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnFd& operator=(OwnFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~OwnFd() {
    if (fd_ >= 0) close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

OwnFd open_pid(pid_t pid) { return OwnFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))); }

// Whether it ended within the time.
bool ended(const OwnFd& process, int patience_ms) {
  pollfd wanted{process.get(), POLLIN, 0};
  int ready = 0;
  do {
    ready = poll(&wanted, 1, patience_ms);
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

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
    if (!read_proc(pid, "comm").starts_with("nvidia-cuda-mps")) continue;
    struct stat owner {};
    const bool control = read_proc(pid, "cmdline").find("-mps-control") != std::string::npos;
    // Control daemons are ours; somebody else's program may have any name.
    if (stat(fmt::format("/proc/{}", pid).c_str(), &owner) != 0) continue;
    if (control && owner.st_uid != geteuid()) continue;
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
    std::vector<std::string> arguments = {"nvidia-cuda-mps-control", "-d"};
    if (all_users) arguments.emplace_back("--multiuser-server");
    const int status = run(arguments, folder, "CUDA_VISIBLE_DEVICES=" + gpu.value(), "", kStartMs);
    if (status != 0) {
      std::ifstream said(folder / "l" / "start.log");
      std::string line;
      std::getline(said, line);
      return fail(Error::Code::unavailable, "nvidia-cuda-mps-control does not start: {}",
                  line.empty() ? fmt::format("status {}", status) : line);
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
    for (const pid_t server : servers(folder)) {
      commands += fmt::format("set_device_pinned_mem_limit {} 0 {}M\n", server, size);
    }
    const std::string said = tell(folder, commands);
    if (!said.empty()) {
      return fail(Error::Code::unavailable, "nvidia-cuda-mps-control takes no limit: {}",
                  said.substr(0, said.find('\n')));
    }
    return {};
  }

  Result<void> start_server(const fs::path& folder) override {
    tell(folder, fmt::format("start_server -uid {}\n", geteuid()));
    if (servers(folder).empty()) {
      return fail(Error::Code::unavailable, "no MPS server starts: see {}",
                  (folder / "l").string());
    }
    return {};
  }

  void terminate(const fs::path& folder, const std::vector<pid_t>& clients) override {
    std::string commands;
    for (const pid_t server : servers(folder)) {
      const auto served = numbers(tell(folder, fmt::format("get_client_list {}\n", server)));
      for (const pid_t client : clients) {
        if (std::ranges::find(served, client) == served.end()) continue;
        commands += fmt::format("terminate_client {} {}\n", server, client);
      }
    }
    if (!commands.empty()) tell(folder, commands);
  }

  void stop(const fs::path& folder) override {
    if (alive(folder)) {
      run({"nvidia-cuda-mps-control"}, folder, "", "quit -t 1\n", kStopMs);
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
  // What the daemon answers to these lines.
  std::string tell(const fs::path& folder, const std::string& commands) const {
    run({"nvidia-cuda-mps-control"}, folder, "", commands, kAnswerMs);
    std::ifstream said(folder / "l" / "start.log");
    std::string text;
    for (std::string line; std::getline(said, line);) text += line + "\n";
    return text;
  }
  static std::vector<pid_t> numbers(const std::string& text) {
    std::vector<pid_t> all;
    for (const auto line : split(text, '\n')) {
      if (const auto number = parse_digits(line)) all.push_back(static_cast<pid_t>(*number));
    }
    return all;
  }
  std::vector<pid_t> servers(const fs::path& folder) const {
    return numbers(tell(folder, "get_server_list\n"));
  }

  // The exit status; what it says goes to l/start.log.
  int run(std::vector<std::string> arguments, const fs::path& folder, const std::string& variable,
          const std::string& input, int patience_ms) const {
    std::vector<std::string> environment = extra_;
    environment.push_back(fmt::format("{}={}", kPipeVariable, (folder / "p").string()));
    environment.push_back("CUDA_MPS_LOG_DIRECTORY=" + (folder / "l").string());
    environment.emplace_back("PATH=/usr/local/nvidia/bin:/usr/local/bin:/usr/bin:/bin");
    if (!variable.empty()) environment.push_back(variable);
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return -1;
    const OwnFd reading(ends[0]);
    OwnFd writing(ends[1]);
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    const std::string log = folder / "l" / "start.log";
    posix_spawn_file_actions_adddup2(&files, reading.get(), 0);
    posix_spawn_file_actions_addopen(&files, 1, log.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    posix_spawn_file_actions_addclosefrom_np(&files, 3);
    sigset_t none;
    sigset_t all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(
        &attributes,
        static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID));
    const auto pointers = [](std::vector<std::string>& words) {
      std::vector<char*> list;
      list.reserve(words.size() + 1);
      for (auto& word : words) list.push_back(word.data());
      list.push_back(nullptr);
      return list;
    };
    pid_t child = 0;
    const int error = posix_spawn(&child, program_.c_str(), &files, &attributes,
                                  pointers(arguments).data(), pointers(environment).data());
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    if (error != 0) return -1;
    // A few bytes: they fit into the pipe, read or not.
    [[maybe_unused]] const auto n = write(writing.get(), input.data(), input.size());
    writing = OwnFd();
    const OwnFd process = open_pid(child);
    if (!process || !ended(process, patience_ms)) kill(child, SIGKILL);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
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
