#include "node/stepd/voice.hpp"

#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "sys/clock.hpp"
#include "sys/fd.hpp"

namespace aliquot::node {
namespace {

// A speaker that cannot finish for so long gives up.
constexpr unsigned kSpeakSeconds = 60;

[[noreturn]] void speak(const sys::Identity& user, int std_err, int done, const std::string& line) {
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
  sys::write_all(0, line);  // on a full disk there is nobody to tell
  _exit(0);
}

}  // namespace

void Voice::say(const std::string& line) {
  sys::Pipe pipe = sys::make_pipe();
  if (!std_err_ || !pipe) return;
  // Not our child, but our parent's: we wait for our children.
  const auto pid = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  if (pid == 0) speak(user_, std_err_.get(), pipe.write.get(), line);
  if (pid > 0) speaking_.push_back(std::move(pipe.read));
}

void Voice::finish(Millis patience) {
  const std::int64_t until = sys::mono_ms() + patience.value();
  for (const sys::Fd& one : speaking_) {
    pollfd ended{one.get(), POLLIN, 0};
    while (true) {
      const std::int64_t left = until - sys::mono_ms();
      if (left <= 0) return;
      if (poll(&ended, 1, static_cast<int>(left)) >= 0 || errno != EINTR) break;
    }
  }
  speaking_.clear();
}

}  // namespace aliquot::node
