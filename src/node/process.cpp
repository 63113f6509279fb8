#include "node/process.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>
#include <unordered_set>

#include "base/text.hpp"

#include "node/monotonic.hpp"

namespace aliquot::node {
namespace {

// Files of /proc have no size; most fit into the first read.
std::optional<std::string> read_proc(const char* path) {
  const Fd fd(open(path, O_RDONLY | O_CLOEXEC));
  if (!fd) return std::nullopt;
  std::string text;
  std::array<char, 4096> buffer;  // NOLINT: written before it is read
  while (true) {
    const ssize_t n = read(fd.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    if (n == 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(n));
  }
}

int pidfd_open(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

}  // namespace

void Fd::reset(int fd) {
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

std::optional<ProcessInfo> read_process(Pid pid) {
  const auto text = read_proc(fmt::format("/proc/{}/stat", pid.value()).c_str());
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

Result<Fd> open_process(const ProcessRef& process) {
  Fd fd(pidfd_open(process.pid.value()));
  // Looked up after the descriptor is there: from then on the pid cannot change hands unseen.
  const auto now = read_process(process.pid);
  if (!fd || !now || now->ref != process) {
    return fail(Error::Code::not_found, "process {} has ended", process.pid);
  }
  return fd;
}

bool is_alive(const ProcessRef& process) {
  const auto now = read_process(process.pid);
  return now && now->ref == process && now->state != 'Z' && now->state != 'X';
}

bool runs_as(Pid pid, Uid uid) {
  const auto text = read_proc(fmt::format("/proc/{}/status", pid.value()).c_str());
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

std::string boot_id() {
  auto text = read_proc("/proc/sys/kernel/random/boot_id").value_or("");
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

// Where the kernel shows what belongs to a process: with a thread that is still there.
static std::string memory_folder(Pid pid) {
  const auto process = read_process(pid);
  const auto own = fmt::format("/proc/{}", pid.value());
  if (!process || !process->headless) return own;
  const std::unique_ptr<DIR, int (*)(DIR*)> threads(opendir((own + "/task").c_str()), closedir);
  while (const dirent* entry = threads ? readdir(threads.get()) : nullptr) {
    const auto number = parse_digits(entry->d_name);
    if (number && *number != pid.value()) return fmt::format("{}/task/{}", own, *number);
  }
  return own;
}

std::optional<std::string> environment_of(Pid pid, std::string_view name) {
  const auto path = memory_folder(pid) + "/environ";
  auto text = read_proc(path.c_str());
  // In the middle of an exec a process has none for a moment; a thread of the kernel never has.
  for (int tries = 0; text && text->empty() && tries < 3; ++tries) {
    const auto process = read_process(pid);
    if (!process || process->state == 'Z' || process->parent == Pid(2) || pid == Pid(2)) break;
    sleep_ms(1);
    text = read_proc(path.c_str());
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

std::string make_mark(JobId job) {
  std::array<unsigned char, 8> random{};
  if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) {
    std::abort();  // a kernel without randomness is not one we run on
  }
  std::string mark = fmt::format("{}:", job);
  for (const auto byte : random) mark += fmt::format("{:02x}", byte);
  return mark;
}

// Anyone can write any mark into an environment of their own: it counts for one user's processes.
static bool is_marked(const Search& search, Pid pid) {
  if (search.mark.empty()) return false;
  if (search.marked_uid) {
    struct stat info {};
    const auto path = fmt::format("/proc/{}", pid.value());
    if (stat(path.c_str(), &info) != 0 || info.st_uid != search.marked_uid->value()) return false;
  }
  return environment_of(pid, kMarkVariable) == search.mark;
}

// The newest are the likeliest to be gone soon, with a child that is on no list: they come first,
// each is read whole before the next, and stopped at once where that is wanted.
static std::vector<ProcessRef> look_for(const Search& search, bool stop) {
  std::vector<ProcessInfo> all;
  std::unordered_set<pid_t> members;
  const pid_t self = getpid();
  stop = stop && !search.steps_only && !search.step;
  for (const Pid pid : all_pids()) {
    const auto process = read_process(pid);
    if (!process) continue;
    all.push_back(*process);
    if (process->state == 'Z' || pid.value() == self) continue;
    if ((search.ancestor && process->parent == *search.ancestor) ||
        (search.session && process->session == *search.session) || is_marked(search, pid)) {
      members.insert(pid.value());
      if (stop && pid != search.ancestor) signal_processes({process->ref}, SIGSTOP);
    }
  }
  // Children of members, until there are no more. The list is in no useful order.
  for (bool grown = true; grown;) {
    grown = false;
    for (const auto& process : all) {
      if (members.contains(process.parent.value()) && process.state != 'Z' &&
          process.ref.pid.value() != self) {
        grown |= members.insert(process.ref.pid.value()).second;
      }
    }
  }
  std::vector<ProcessRef> found;
  for (const auto& process : all) {
    if (!members.contains(process.ref.pid.value())) continue;
    if (search.ancestor && process.ref.pid == *search.ancestor) continue;
    if (search.steps_only || search.step) {
      const auto step = environment_of(process.ref.pid, "SLURM_STEP_ID");
      if (!step || (search.step && *step != std::to_string(*search.step))) continue;
    }
    found.push_back(process.ref);
  }
  return found;
}

// Parents first: a script that sees its program die of a signal goes on, until it has its own.
std::vector<ProcessRef> find_processes(const Search& search) {
  auto found = look_for(search, false);
  std::ranges::sort(found, {}, [](const ProcessRef& process) {
    return std::pair(process.start_time, process.pid);
  });
  return found;
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

// The newest pid of all. As long as it stays the same, nobody has forked.
static std::string newest_pid() {
  const auto text = read_proc("/proc/loadavg").value_or("");
  return text.substr(std::min(text.rfind(' '), text.size()));
}

// Whether there is really nobody. One look is not enough: it takes time, in which a process that is
// listed can fork and end before it is read, and its child is on no list; and a mark is out of
// sight while its process execs. So either nobody on the machine has forked meanwhile, or many
// looks agree.
static bool none_left(const Search& search) {
  constexpr int kLooks = 10;
  std::string before;
  for (int look = 0; look < kLooks; ++look) {
    if (!find_processes(search).empty()) return false;
    auto newest = newest_pid();
    if (newest == before && !newest.empty()) return true;
    before = std::move(newest);
    sleep_ms(1 + look);
  }
  return true;
}

Killed kill_tree(const Search& search, Millis patience) {
  Killed killed;
  const std::int64_t deadline = mono_ms() + patience.value();
  std::vector<ProcessRef> seen;
  for (long pause = 1;; pause = std::min(pause * 2, 20L)) {
    auto left = look_for(search, true);
    if (left.empty() && none_left(search)) return killed;
    // Stopped first, until there is nobody new: what is stopped cannot fork.
    for (int round = 0; round < 10; ++round) {
      signal_processes(left, SIGSTOP);
      auto again = look_for(search, true);
      const bool same = again.size() == left.size();
      left = std::move(again);
      if (same) break;
    }
    for (const auto& process : left) {
      if (std::ranges::find(seen, process) == seen.end()) seen.push_back(process);
    }
    signal_processes(left, SIGKILL);
    killed.count = static_cast<int>(seen.size());
    if (mono_ms() >= deadline) {
      killed.all_gone = none_left(search);
      return killed;
    }
    sleep_ms(pause);
  }
}

}  // namespace aliquot::node
