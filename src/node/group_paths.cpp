#include "node/group_paths.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <set>

#include "base/text.hpp"
#include "sys/clock.hpp"
#include "sys/fd.hpp"
#include "sys/file.hpp"

namespace aliquot::node {

Result<void> write_control(const std::string& file, std::string_view value) {
  const sys::Fd fd(open(file.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return sys::system_error(errno, "cannot write", file);
  ssize_t n = 0;
  do {
    n = write(fd.get(), value.data(), value.size());
  } while (n < 0 && errno == EINTR);
  if (n < 0) return sys::system_error(errno, fmt::format("cannot write '{}' to", value), file);
  return {};
}

std::optional<std::int64_t> read_number(const std::string& file, std::string_view key) {
  const auto text = sys::read_whole(file);
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

Result<std::vector<std::string>> folders_below(const std::string& folder) {
  std::vector<std::string> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(folder.c_str()), closedir);
  if (!dir && errno == ENOENT) return found;
  if (!dir) return sys::system_error(errno, "cannot list", folder);
  while (const dirent* entry = readdir(dir.get())) {
    if (entry->d_type == DT_DIR && entry->d_name[0] != '.') {
      found.push_back(folder + "/" + entry->d_name);
    }
  }
  return found;
}

// A group that is not there has no processes; of one that cannot be read nothing is known.
Result<void> collect(const std::string& folder, std::set<pid_t>* pids) {
  const auto text = sys::read_whole(folder + "/cgroup.procs");
  if (!text && text.error().code != Error::Code::not_found) {
    return tl::make_unexpected(text.error());
  }
  const std::string lines = text.value_or("");
  for (const auto line : split(lines, '\n')) {
    // 0: a process of another pid namespace.
    if (const auto pid = parse_digits(line); pid && *pid > 0) {
      pids->insert(static_cast<pid_t>(*pid));
    }
  }
  for (const auto& below : TRY(folders_below(folder))) TRY(collect(below, pids));
  return {};
}

const std::string* folder_of(const GroupPaths& paths, const char* controller) {
  const auto found = paths.folders.find(controller);
  return found == paths.folders.end() ? nullptr : &found->second;
}

// How long a group may take to freeze before its processes are killed all the same.
constexpr Millis kFreezePatience(200);

bool is_frozen(const GroupPaths& paths) {
  if (const auto* folder = folder_of(paths, kUnified)) {
    return read_number(*folder + "/cgroup.events", "frozen") == 1;
  }
  const auto* folder = folder_of(paths, "freezer");
  return folder == nullptr || sys::read_whole(*folder + "/freezer.state") == "FROZEN\n";
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

Result<std::vector<Pid>> group_processes(const GroupPaths& paths) {
  std::set<pid_t> pids;
  // Every hierarchy holds the same processes, unless someone moved one: look at all of them.
  for (const auto& [controller, folder] : paths.folders) TRY(collect(folder, &pids));
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

std::vector<Pid> inner_processes(const GroupPaths& paths) {
  std::set<pid_t> pids;
  for (const auto& [controller, folder] : paths.folders) {
    for (const auto& below : folders_below(folder).value_or(std::vector<std::string>{}))
      collect(below, &pids);
  }
  return {pids.begin(), pids.end()};
}

// Frozen, nobody forks and no pid changes hands while we go through them.
static void kill_frozen(const GroupPaths& paths, const std::set<Pid>& spared,
                        std::int64_t deadline) {
  const bool freezer = freeze_group(paths, true).has_value();
  // Who is in the middle of something freezes when it is done. What sleeps in the kernel never
  // does; it cannot fork either.
  const std::int64_t until = std::min(deadline, sys::mono_ms() + kFreezePatience.value());
  while (freezer && !is_frozen(paths) && sys::mono_ms() < until) sys::sleep_ms(1);
  for (const auto pid : group_processes(paths).value_or(std::vector<Pid>{})) {
    if (!spared.contains(pid)) kill(pid.value(), SIGKILL);
  }
  if (freezer) static_cast<void>(freeze_group(paths, false));
}

Killed kill_group(const GroupPaths& paths, Millis patience, const std::set<Pid>& spared) {
  Killed killed;
  if (paths.empty()) return killed;
  const std::int64_t deadline = sys::mono_ms() + patience.value();
  std::set<Pid> kept = spared;
  kept.insert(Pid(getpid()));
  std::set<Pid> seen;
  // The list of a group is made in one piece: once it is empty, nobody is left who could fork.
  for (long pause = 1;; pause = std::min(pause * 2, 20L)) {
    auto left = group_processes(paths);
    if (left) {
      std::erase_if(*left, [&](Pid pid) { return kept.contains(pid); });
      if (left->empty()) break;
      seen.insert(left->begin(), left->end());
    }
    if (sys::mono_ms() >= deadline) {
      killed.all_gone = false;
      break;
    }
    const auto* unified = folder_of(paths, kUnified);
    const bool at_once = spared.empty() && unified != nullptr &&
                         write_control(*unified + "/cgroup.kill", "1").has_value();
    if (!at_once) kill_frozen(paths, kept, deadline);
    sys::sleep_ms(pause);
  }
  killed.count = static_cast<int>(seen.size());
  return killed;
}

}  // namespace aliquot::node
