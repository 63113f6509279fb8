#include "sys/process.hpp"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/text.hpp"
#include "sys/clock.hpp"

namespace aliquot::sys {
namespace {

// Where the kernel shows what belongs to a process: with a thread that is still there.
std::string memory_folder(Pid pid) {
  const auto process = read_process(pid);
  auto own = fmt::format("/proc/{}", pid);
  if (!process || !process->headless) return own;
  const std::unique_ptr<DIR, int (*)(DIR*)> threads(opendir((own + "/task").c_str()), closedir);
  while (const dirent* entry = threads ? readdir(threads.get()) : nullptr) {
    const auto number = parse_digits(entry->d_name);
    if (number && *number != pid.value()) return fmt::format("{}/task/{}", own, *number);
  }
  return own;
}

std::optional<std::string> read_if_there(const std::string& path) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return fd ? read_all(fd.get()) : std::nullopt;
}

std::string without_end_of_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace

std::optional<std::string> read_proc(Pid pid, std::string_view name) {
  return read_if_there(fmt::format("/proc/{}/{}", pid, name));
}

std::optional<ProcessInfo> read_process(Pid pid) {
  const auto text = read_proc(pid, "stat");
  if (!text) return std::nullopt;
  // 7 (a name with ) in it) S 1 7 7 …: the name ends at the last parenthesis.
  const auto name_end = text->rfind(')');
  if (name_end == std::string::npos || name_end + 2 > text->size()) return std::nullopt;
  const auto fields = split(std::string_view(*text).substr(name_end + 2), ' ');
  if (fields.size() < 20) return std::nullopt;
  const auto parent = parse_digits(fields[1]);
  const auto session = parse_digits(fields[3]);
  const auto threads = parse_digits(fields[17]);
  const auto start = parse_digits(fields[19]);
  if (!parent || !session || !threads || !start || fields[0].empty()) return std::nullopt;
  // What stands there is the first thread's state: the others may run on without it.
  const char state = fields[0].front();
  const bool headless = (state == 'Z' || state == 'X') && *threads > 1;
  return ProcessInfo{.ref = {pid, static_cast<std::uint64_t>(*start)},
                     .parent = Pid(static_cast<pid_t>(*parent)),
                     .session = Pid(static_cast<pid_t>(*session)),
                     .state = headless ? 'R' : state,
                     .headless = headless};
}

std::vector<Pid> all_pids() {
  std::vector<Pid> all;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), closedir);
  if (!folder) return all;
  while (const dirent* entry = readdir(folder.get())) {
    if (const auto pid = parse_digits(entry->d_name)) all.emplace_back(static_cast<pid_t>(*pid));
  }
  std::ranges::sort(all, std::ranges::greater());
  return all;
}

bool is_alive(const ProcessRef& process) {
  const auto now = read_process(process.pid);
  return now && now->ref == process && now->state != 'Z' && now->state != 'X';
}

std::optional<Uid> owner_of(Pid pid) {
  struct stat status {};
  if (stat(fmt::format("/proc/{}", pid).c_str(), &status) != 0) return std::nullopt;
  return Uid(status.st_uid);
}

bool runs_as(Pid pid, Uid uid) {
  const auto text = read_proc(pid, "status");
  if (!text) return false;
  // Uid:  real  effective  saved  file system
  constexpr std::string_view kLabel = "\nUid:\t";
  const auto begin = text->find(kLabel);
  if (begin == std::string::npos) return false;
  const auto line = std::string_view(*text).substr(begin + kLabel.size());
  const auto ids = split(line.substr(0, line.find('\n')), '\t');
  return std::ranges::all_of(
      ids, [&](std::string_view id) { return parse_digits(id) == std::int64_t{uid.value()}; });
}

std::string command_of(Pid pid) { return without_end_of_line(read_proc(pid, "comm").value_or("")); }

std::string boot_id() {
  return without_end_of_line(read_if_there("/proc/sys/kernel/random/boot_id").value_or(""));
}

std::optional<std::string> environment_of(Pid pid, std::string_view name) {
  const auto path = memory_folder(pid) + "/environ";
  auto text = read_if_there(path);
  // In the middle of an exec a process has none for a moment; a thread of the kernel never has.
  for (int tries = 0; text && text->empty() && tries < 3; ++tries) {
    const auto process = read_process(pid);
    if (!process || process->state == 'Z' || process->parent == Pid(2) || pid == Pid(2)) break;
    sleep_ms(1);
    text = read_if_there(path);
  }
  if (!text) return std::nullopt;
  for (const auto variable : split(*text, '\0')) {
    if (variable.size() > name.size() && variable.starts_with(name) &&
        variable[name.size()] == '=') {
      return std::string(variable.substr(name.size() + 1));
    }
  }
  return std::nullopt;
}

Fd open_pid(Pid pid) { return Fd(static_cast<int>(syscall(SYS_pidfd_open, pid.value(), 0))); }

Result<Fd> open_process(const ProcessRef& process) {
  Fd fd = open_pid(process.pid);
  // Looked up after the descriptor is there: from then on the pid cannot change hands unseen.
  const auto now = read_process(process.pid);
  if (!fd || !now || now->ref != process) {
    return fail(Error::Code::not_found, "process {} has ended", process.pid);
  }
  return fd;
}

bool has_ended(const Fd& process, std::optional<Millis> patience) {
  const std::int64_t until = patience ? mono_ms() + patience->value() : 0;
  pollfd wanted{process.get(), POLLIN, 0};
  while (true) {
    const auto left = std::max<std::int64_t>(until - mono_ms(), 0);
    const int ready = poll(&wanted, 1, patience ? static_cast<int>(left) : -1);
    if (ready >= 0 || errno != EINTR) return ready > 0;
  }
}

bool signal_process(int process, int signal) {
  return syscall(SYS_pidfd_send_signal, process, signal, nullptr, 0) == 0;
}

int signal_processes(const std::vector<ProcessRef>& processes, int signal) {
  int count = 0;
  for (const auto& process : processes) {
    const auto fd = open_process(process);
    if (fd && signal_process(fd->get(), signal)) ++count;
  }
  return count;
}

int wait_for_child(Pid child) {
  int status = -1;
  while (waitpid(child.value(), &status, 0) < 0) {
    if (errno != EINTR) return -1;
  }
  return status;
}

}  // namespace aliquot::sys
