#include "node/stepd/voice.hpp"

#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "node/monotonic.hpp"

namespace aliquot::node {
namespace {

// A speaker that cannot finish for so long gives up.
constexpr unsigned kSpeakSeconds = 60;

[[noreturn]] void speak(const Identity& user, int std_err, int done, const std::string& line) {
  prctl(PR_SET_NAME, "aliquot-say", 0, 0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  alarm(kSpeakSeconds);
  // Counted among the user's processes, and nothing of ours in it.
  if (geteuid() == 0) {
    const gid_t gid = user.gid.value();
    const uid_t uid = user.uid.value();
    if (syscall(SYS_setgroups, 0, nullptr) != 0 || syscall(SYS_setresgid, gid, gid, gid) != 0 ||
        syscall(SYS_setresuid, uid, uid, uid) != 0) {
      _exit(1);
    }
  }
  if (dup2(std_err, 0) < 0 || dup2(done, 1) < 0) _exit(1);
  close_range(2, ~0U, 0);
  const char* text = line.data();
  std::size_t left = line.size();
  while (left > 0) {
    const ssize_t n = write(0, text, left);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;  // full disk: nobody to tell
    text += n;
    left -= static_cast<std::size_t>(n);
  }
  _exit(0);
}

}  // namespace

void Voice::say(const std::string& line) {
  std::array<int, 2> ends{};
  if (!std_err_ || pipe2(ends.data(), O_CLOEXEC) != 0) return;
  Fd ours(ends[0]);
  const Fd theirs(ends[1]);
  // Not our child, but our parent's: we wait for our children.
  const auto pid = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  if (pid == 0) speak(user_, std_err_.get(), theirs.get(), line);
  if (pid > 0) speaking_.push_back(std::move(ours));
}

void Voice::finish(Millis patience) {
  const std::int64_t until = mono_ms() + patience.value();
  for (const Fd& one : speaking_) {
    pollfd ended{one.get(), POLLIN, 0};
    while (true) {
      const std::int64_t left = until - mono_ms();
      if (left <= 0) return;
      if (poll(&ended, 1, static_cast<int>(left)) >= 0 || errno != EINTR) break;
    }
  }
  speaking_.clear();
}

}  // namespace aliquot::node
