#include "node/login_state.hpp"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/ioprio.h>
#include <linux/keyctl.h>
#include <linux/securebits.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "sys/fd.hpp"

namespace aliquot::node {
namespace {

// More than any kernel has.
constexpr std::size_t kCpuMaskBytes = 1024;

void stand_before_the_memory_killer() {
  const sys::Fd file(open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
  if (file) sys::write_all(file.get(), "0");
}

void schedule_as_usual() {
  const sched_param none{};
  if (sched_getscheduler(0) != SCHED_OTHER) sched_setscheduler(0, SCHED_OTHER, &none);
  setpriority(PRIO_PROCESS, 0, 0);
  syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_PRIO_VALUE(IOPRIO_CLASS_NONE, 0));
  prctl(PR_SET_TIMERSLACK, 0, 0, 0, 0);          // 0: the usual one
  std::array<unsigned char, kCpuMaskBytes> all;  // NOLINT: written before it is read
  std::memset(all.data(), 0xff, all.size());
  syscall(SYS_sched_setaffinity, 0, all.size(), all.data());
}

}  // namespace

void take_login_state() {
  stand_before_the_memory_killer();
  schedule_as_usual();
  // Where these say so, capabilities outlive the change of identity.
  prctl(PR_SET_SECUREBITS, SECUREBITS_DEFAULT, 0, 0, 0);
}

void drop_capabilities(bool is_root) {
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> sets{};
  if (is_root && syscall(SYS_capget, &header, sets.data()) != 0) return;
  for (auto& set : sets) set.inheritable = 0;
  syscall(SYS_capset, &header, sets.data());
}

// With the user's own keyring in it, as pam_keyinit has it.
void join_own_keyring() {
  if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr) < 0) return;
  syscall(SYS_keyctl, KEYCTL_LINK, KEY_SPEC_USER_KEYRING, KEY_SPEC_SESSION_KEYRING);
}

}  // namespace aliquot::node
