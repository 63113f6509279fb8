// What aliquot-stepd does with a group: no more than its paths are needed.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <set>

#include "base/text.hpp"
#include "node/cgroup.hpp"
#include "node/cgroup_file.hpp"
#include "node/file.hpp"

namespace aliquot::node {

Result<void> write_control(const std::string& file, std::string_view value) {
  const Fd fd(open(file.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return system_error(errno, "cannot write", file);
  ssize_t n = 0;
  do {
    n = write(fd.get(), value.data(), value.size());
  } while (n < 0 && errno == EINTR);
  if (n < 0) return system_error(errno, fmt::format("cannot write '{}' to", value), file);
  return {};
}

std::optional<std::int64_t> read_number(const std::string& file, std::string_view key) {
  const auto text = read_whole(file);
  if (!text) return std::nullopt;
  for (auto line : split(*text, '\n')) {
    if (key.empty()) return parse_digits(line);
    if (line.size() > key.size() && line.starts_with(key) && line[key.size()] == ' ') {
      return parse_digits(line.substr(key.size() + 1));
    }
  }
  return std::nullopt;
}

namespace {

constexpr const char* kUnified = "";

std::vector<std::string> folders_below(const std::string& folder) {
  std::vector<std::string> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(folder.c_str()), closedir);
  if (!dir) return found;
  while (const dirent* entry = readdir(dir.get())) {
    if (entry->d_type == DT_DIR && entry->d_name[0] != '.') {
      found.push_back(folder + "/" + entry->d_name);
    }
  }
  return found;
}

void collect(const std::string& folder, std::set<pid_t>* pids) {
  if (const auto text = read_whole(folder + "/cgroup.procs")) {
    for (const auto line : split(*text, '\n')) {
      // 0: a process of another pid namespace.
      if (const auto pid = parse_digits(line); pid && *pid > 0) {
        pids->insert(static_cast<pid_t>(*pid));
      }
    }
  }
  for (const auto& below : folders_below(folder)) collect(below, pids);
}

const std::string* folder_of(const GroupPaths& paths, const char* controller) {
  const auto found = paths.folders.find(controller);
  return found == paths.folders.end() ? nullptr : &found->second;
}

std::int64_t mono_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

}  // namespace

std::vector<std::string> join_files(const GroupPaths& paths) {
  std::set<std::string> files;
  for (const auto& [controller, folder] : paths.folders) {
    // A thread that moves itself by "tasks" is spared the wait for a grace period, some 10 ms, that
    // moving a whole process costs. v2 has no such file for this; there clone3 does it.
    files.insert(folder + (controller == kUnified ? "/cgroup.procs" : "/tasks"));
  }
  return {files.begin(), files.end()};
}

Result<void> join_group(const GroupPaths& paths) {
  for (const auto& [controller, folder] : paths.folders) {
    TRY(write_control(folder + "/cgroup.procs", "0"));
  }
  return {};
}

std::vector<Pid> group_processes(const GroupPaths& paths) {
  std::set<pid_t> pids;
  // Every hierarchy holds the same processes, unless someone moved one: look at all of them.
  for (const auto& [controller, folder] : paths.folders) collect(folder, &pids);
  std::vector<Pid> found;
  found.reserve(pids.size());
  for (const auto pid : pids) found.emplace_back(pid);
  return found;
}

Result<void> freeze_group(const GroupPaths& paths, bool frozen) {
  if (const auto* folder = folder_of(paths, kUnified)) {
    return write_control(*folder + "/cgroup.freeze", frozen ? "1" : "0");
  }
  if (const auto* folder = folder_of(paths, "freezer")) {
    return write_control(*folder + "/freezer.state", frozen ? "FROZEN" : "THAWED");
  }
  return fail(Error::Code::unsupported, "no freezer here");
}

GroupUsage group_usage(const GroupPaths& paths) {
  GroupUsage usage;
  const auto millis = [](std::optional<std::int64_t> value, std::int64_t per_ms,
                         std::int64_t factor) -> std::optional<Millis> {
    if (!value) return std::nullopt;
    return Millis(*value * factor / per_ms);
  };
  const auto bytes = [](std::optional<std::int64_t> value) -> std::optional<Bytes> {
    if (!value) return std::nullopt;
    return Bytes(*value);
  };
  if (const auto* folder = folder_of(paths, kUnified)) {
    usage.user_cpu = millis(read_number(*folder + "/cpu.stat", "user_usec"), 1000, 1);
    usage.system_cpu = millis(read_number(*folder + "/cpu.stat", "system_usec"), 1000, 1);
    usage.memory_peak = bytes(read_number(*folder + "/memory.peak", ""));
    usage.oom_kills = read_number(*folder + "/memory.events", "oom_kill").value_or(0);
    return usage;
  }
  if (const auto* folder = folder_of(paths, "cpuacct")) {
    const std::int64_t ticks = sysconf(_SC_CLK_TCK);
    usage.user_cpu = millis(read_number(*folder + "/cpuacct.stat", "user"), ticks, 1000);
    usage.system_cpu = millis(read_number(*folder + "/cpuacct.stat", "system"), ticks, 1000);
  }
  if (const auto* folder = folder_of(paths, "memory")) {
    usage.memory_peak = bytes(read_number(*folder + "/memory.max_usage_in_bytes", ""));
    usage.oom_kills = read_number(*folder + "/memory.oom_control", "oom_kill").value_or(0);
  }
  return usage;
}

Killed kill_group(const GroupPaths& paths, Millis patience) {
  Killed killed;
  if (paths.empty()) return killed;
  const std::int64_t deadline = mono_ms() + patience.value();
  std::set<pid_t> seen;
  for (long pause = 1;; pause = std::min(pause * 2, 20L)) {
    auto left = group_processes(paths);
    std::erase(left, Pid(getpid()));
    if (left.empty()) break;
    const bool at_once =
        folder_of(paths, kUnified) != nullptr &&
        write_control(*folder_of(paths, kUnified) + "/cgroup.kill", "1").has_value();
    if (!at_once) {
      // Frozen, nobody forks and no pid changes hands while we go through them.
      const bool frozen = freeze_group(paths, true).has_value();
      left = group_processes(paths);
      for (const auto pid : left) {
        if (pid.value() != getpid()) kill(pid.value(), SIGKILL);
      }
      if (frozen) static_cast<void>(freeze_group(paths, false));
    }
    for (const auto pid : left) seen.insert(pid.value());
    if (mono_ms() >= deadline) {
      killed.all_gone = group_processes(paths).empty();
      break;
    }
    const timespec time{0, pause * 1'000'000};
    nanosleep(&time, nullptr);
  }
  killed.count = static_cast<int>(seen.size());
  return killed;
}

}  // namespace aliquot::node
