#include "node/last_words.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "sys/fd.hpp"

namespace aliquot::node {
namespace {

constexpr int kMostAncestors = 16;
constexpr unsigned kWriterSeconds = 10;
constexpr int kTakenMs = 500;  // what a process takes to start, on a busy machine

// The process and its ancestors, as far as they are this user's.
std::vector<sys::Fd> family(const sys::ProcessRef& process, Uid user) {
  std::vector<sys::Fd> all;
  auto next = std::optional(process);
  while (next && all.size() < kMostAncestors) {
    auto held = sys::open_process(*next);
    if (!held || !sys::runs_as(next->pid, user)) break;
    all.push_back(std::move(*held));
    const auto now = sys::read_process(next->pid);
    const auto parent = now ? sys::read_process(now->parent) : std::nullopt;
    next = parent ? std::optional(parent->ref) : std::nullopt;
  }
  return all;
}

bool goes_nowhere(int fd) {
  struct stat info {};
  return fstat(fd, &info) != 0 ||
         (S_ISCHR(info.st_mode) && info.st_rdev == makedev(1, 3));  // /dev/null
}

// Between fork and the end, in a process with threads: system calls and nothing else. What is
// written to may ask who writes, so it is the user, not us.
[[noreturn]] void write_and_end(uid_t user, gid_t group, const int* family, std::size_t count,
                                int taken, const char* text, std::size_t size) {
  for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  std::array<int, kMostAncestors + 1> kept{};
  std::copy_n(family, count, kept.begin());
  kept[count] = taken;
  sys::close_others(kept.data(), count + 1);
  std::array<int, kMostAncestors> ends{};
  for (std::size_t i = 0; i < count; ++i)
    ends[i] = static_cast<int>(syscall(SYS_pidfd_getfd, family[i], STDERR_FILENO, 0));
  if (write(taken, "", 1) != 1) _exit(1);
  if (geteuid() == 0 && (syscall(SYS_setgroups, 0, nullptr) != 0 ||
                         syscall(SYS_setresgid, group, group, group) != 0 ||
                         syscall(SYS_setresuid, user, user, user) != 0)) {
    _exit(1);
  }
  alarm(kWriterSeconds);
  int to = -1;
  for (std::size_t i = 0; i < count && to < 0; ++i)
    if (ends[i] >= 0 && !goes_nowhere(ends[i])) to = ends[i];
  if (to < 0 || dup2(to, STDERR_FILENO) < 0) _exit(1);
  close(STDIN_FILENO);
  close(STDOUT_FILENO);
  syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0);
  _exit(sys::write_all(STDERR_FILENO, {text, size}) ? 0 : 1);
}

}  // namespace

void tell_process(const sys::ProcessRef& process, Uid user, Gid group, const std::string& text) {
  const auto processes = family(process, user);
  std::array<int, kMostAncestors> numbers{};
  for (std::size_t i = 0; i < processes.size(); ++i) numbers[i] = processes[i].get();
  sys::Pipe pipe = sys::make_pipe();
  if (processes.empty() || !pipe) return;
  // Twice, so that nobody has to wait for the one that may hang.
  const pid_t child = fork();
  if (child == 0) {
    if (fork() == 0) {
      write_and_end(user.value(), group.value(), numbers.data(), processes.size(), pipe.write.get(),
                    text.data(), text.size());
    }
    _exit(0);
  }
  pipe.write.reset();
  if (child > 0) sys::wait_for_child(Pid(child));
  pollfd taken{pipe.read.get(), POLLIN, 0};
  (void)poll(&taken, 1, kTakenMs);
}

}  // namespace aliquot::node
