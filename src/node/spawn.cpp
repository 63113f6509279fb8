#include "node/spawn.hpp"

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "node/group_paths.hpp"
#include "node/login_state.hpp"
#include "sys/fd.hpp"
#include "sys/process.hpp"

namespace aliquot::node {
namespace {

// What the child says: a failure, or that its stderr comes with this.
struct Word {
  SpawnStage stage;
  int error;
};

constexpr int kLastSignal = 64;

// What rt_sigaction takes; struct sigaction is glibc's.
struct KernelSigaction {
  void* handler;
  std::uintptr_t flags;
  void* restorer;
  std::uint64_t mask;
};
constexpr std::size_t kNumberSize = 24;

// All the child needs, made before it exists: between fork and exec nothing may allocate, because
// another thread may have held the allocator's lock.
struct Plan {
  const SpawnSpec* spec;
  std::vector<char*> argv;
  std::vector<char*> envp;
  std::string pid_variable;  // with room for the number behind =
  std::vector<gid_t> groups;
  std::vector<std::string> joins;
  bool change_identity = false;
  int channel = -1;
};

Plan make_plan(const SpawnSpec& spec) {
  Plan plan;
  plan.spec = &spec;
  const auto pointer = [](const std::string& text) { return const_cast<char*>(text.c_str()); };
  for (const auto& word : spec.argv) plan.argv.push_back(pointer(word));
  plan.argv.push_back(nullptr);
  for (const auto& variable : spec.environment) plan.envp.push_back(pointer(variable));
  if (!spec.pid_variable.empty()) {
    plan.pid_variable = spec.pid_variable + "=" + std::string(kNumberSize, '\0');
    plan.envp.push_back(nullptr);  // filled in by the child
  }
  plan.envp.push_back(nullptr);
  for (const auto gid : spec.identity.groups) plan.groups.push_back(gid.value());
  plan.joins = join_files(spec.group);
  plan.change_identity = geteuid() == 0;
  return plan;
}

[[noreturn]] void give_up(const Plan& plan, SpawnStage stage, int error) {
  const Word word{stage, error};
  static_cast<void>(send(plan.channel, &word, sizeof word, MSG_NOSIGNAL));
  _exit(127);
}

// To the child's own stderr.
void tell(const Plan& plan, std::initializer_list<const char*> parts) {
  if (plan.spec->message_prefix.empty()) return;
  std::array<iovec, 12> pieces{};
  std::size_t n = 0;
  const auto add = [&](const char* text) {
    pieces[n++] = {const_cast<char*>(text), std::strlen(text)};
  };
  add(plan.spec->message_prefix.c_str());
  for (const char* part : parts) add(part);
  add("\n");
  if (writev(STDERR_FILENO, pieces.data(), static_cast<int>(n)) < 0) return;  // nobody to tell
}

// The system call itself: glibc's sigaction refuses the two signals it keeps for its threads, and a
// program that ignores every signal it can leaves those two ignored in all its descendants.
void reset_signals() {
  const KernelSigaction action{};  // SIG_DFL, no flags, no mask
  for (int signal = 1; signal <= kLastSignal; ++signal) {
    syscall(SYS_rt_sigaction, signal, &action, nullptr, sizeof action.mask);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

// The system calls themselves: glibc's functions would try to tell threads that this process does
// not have. And then the check that there is no way back.
int take_identity(const Plan& plan) {
  const uid_t uid = plan.spec->identity.uid.value();
  const gid_t gid = plan.spec->identity.gid.value();
  if (!plan.change_identity) return uid == geteuid() ? 0 : EPERM;
  if (syscall(SYS_setgroups, plan.groups.size(), plan.groups.data()) != 0) return errno;
  if (syscall(SYS_setresgid, gid, gid, gid) != 0) return errno;
  if (syscall(SYS_setresuid, uid, uid, uid) != 0) return errno;
  uid_t real = 0;
  uid_t effective = 0;
  uid_t saved = 0;
  if (getresuid(&real, &effective, &saved) != 0) return errno;
  if (real != uid || effective != uid || saved != uid || getegid() != gid) return EPERM;
  if (uid != 0 && syscall(SYS_setresuid, -1, 0, -1) == 0) return EPERM;
  return 0;
}

// As near as we may: only who has the capability raises a hard limit.
int set_limit(const ResourceLimit& limit) {
  rlimit value{limit.soft, limit.hard};
  if (syscall(SYS_prlimit64, 0, limit.resource, &value, nullptr) == 0) return 0;
  rlimit now{};
  if (errno != EPERM || syscall(SYS_prlimit64, 0, limit.resource, nullptr, &now) != 0) return errno;
  value.rlim_max = std::min(value.rlim_max, now.rlim_max);
  value.rlim_cur = std::min(value.rlim_cur, value.rlim_max);
  return syscall(SYS_prlimit64, 0, limit.resource, &value, nullptr) == 0 ? 0 : errno;
}

// Above 2, so that filling 0, 1 and 2 overwrites none of it.
int above_stdio(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  close(fd);
  errno = error;
  return moved;
}

int open_input(const Plan& plan) {
  return std::visit(
      [](const auto& source) {
        using Source = std::decay_t<decltype(source)>;
        if constexpr (std::is_same_v<Source, Null>) {
          return open("/dev/null", O_RDONLY | O_CLOEXEC);
        } else if constexpr (std::is_same_v<Source, FromFile>) {
          return open(source.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
        } else {
          return fcntl(source.fd, F_DUPFD_CLOEXEC, 3);
        }
      },
      plan.spec->in);
}

// The folders above it, as whoever the job belongs to; without allocating.
void make_folders(const char* path) {
  std::array<char, 4097> folder{};
  const std::size_t length = std::strlen(path);
  if (length >= folder.size()) return;
  std::memcpy(folder.data(), path, length);
  for (std::size_t i = 1; i < length; ++i) {
    if (folder[i] != '/') continue;
    folder[i] = '\0';
    mkdir(folder.data(), 0777);  // that it is there already is as good
    folder[i] = '/';
  }
}

// Always at the end: stdout, stderr and our own messages may share the file.
int open_file(const ToFile& target) {
  const auto open_it = [&] {
    return open(
        target.path.c_str(),
        O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | (target.append ? 0 : O_TRUNC), 0666);
  };
  const int file = open_it();
  if (file >= 0 || errno != ENOENT) return file;
  make_folders(target.path.c_str());
  return open_it();
}

template <class Sink>
int open_output(const Sink& sink, int std_out) {
  return std::visit(
      [std_out](const auto& target) {
        using Target = std::decay_t<decltype(target)>;
        if constexpr (std::is_same_v<Target, Null>) {
          return open("/dev/null", O_WRONLY | O_CLOEXEC);
        } else if constexpr (std::is_same_v<Target, ToFile>) {
          return open_file(target);
        } else if constexpr (std::is_same_v<Target, FromFd>) {
          return fcntl(target.fd, F_DUPFD_CLOEXEC, 3);
        } else {
          return fcntl(std_out, F_DUPFD_CLOEXEC, 3);
        }
      },
      sink);
}

// A word with room for a descriptor beside it. Its parts point to each other: it stays where it is.
struct Letter {
  Letter() {
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
  }
  Letter(const Letter&) = delete;
  Letter& operator=(const Letter&) = delete;

  Word word{};
  iovec piece{&word, sizeof word};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
};

void hand_back_stderr(const Plan& plan) {
  Letter letter;
  letter.word = {SpawnStage::exec, 0};
  cmsghdr* header = CMSG_FIRSTHDR(&letter.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = STDERR_FILENO;
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  static_cast<void>(sendmsg(plan.channel, &letter.message, MSG_NOSIGNAL));
}

template <class End>
int given_fd(const End& end) {
  const auto* given = std::get_if<FromFd>(&end);
  return given == nullptr ? -1 : given->fd;
}

// Another child of ours, between its fork and its exec, may have a copy of the descriptor that the
// file was written through.
void execute(const Plan& plan) {
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 10'000'000};
  constexpr int kTries = 1000;
  for (int i = 0; i < kTries; ++i) {
    execve(plan.spec->file.c_str(), plan.argv.data(), plan.envp.data());
    if (errno != ETXTBSY) return;
    nanosleep(&kPause, nullptr);
  }
  errno = ETXTBSY;
}

// snprintf is not for here.
void put_number(char* out, long number) {
  std::array<char, kNumberSize> digits{};
  std::size_t n = 0;
  do {
    digits[n++] = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number > 0);
  while (n > 0) *out++ = digits[--n];
  *out = '\0';
}

[[noreturn]] void become(Plan& plan, pid_t parent) {
  const SpawnSpec& spec = *plan.spec;
  reset_signals();
  std::array<int, 4> kept{plan.channel, given_fd(spec.in), given_fd(spec.out), given_fd(spec.err)};
  sys::close_others(kept.data(), kept.size());
  // Out of the way of 0, 1 and 2.
  if (plan.channel <= STDERR_FILENO) plan.channel = above_stdio(plan.channel);
  if (spec.new_session && setsid() < 0) give_up(plan, SpawnStage::fork, errno);

  for (const auto& file : plan.joins) {
    const sys::Fd fd(open(file.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!fd || write(fd.get(), "0", 1) != 1) give_up(plan, SpawnStage::cgroup, errno);
  }
  for (const auto& limit : spec.limits) {
    if (const int error = set_limit(limit); error != 0) give_up(plan, SpawnStage::limits, error);
  }
  take_login_state();
  // First as root: a user whose keys are at their limit gets none of their own, and not ours.
  if (plan.change_identity) join_own_keyring();
  if (const int error = take_identity(plan); error != 0) {
    give_up(plan, SpawnStage::identity, error);
  }
  if (plan.change_identity) {
    drop_capabilities(spec.identity.uid == Uid(0));
    join_own_keyring();
  }
  umask(spec.umask);

  int directory_error = 0;
  if (chdir(spec.directory.c_str()) != 0) {
    directory_error = errno;
    if (spec.fallback_directory.empty() || chdir(spec.fallback_directory.c_str()) != 0) {
      give_up(plan, SpawnStage::directory, directory_error);
    }
  }
  const int in = above_stdio(open_input(plan));
  if (in < 0) give_up(plan, SpawnStage::std_in, errno);
  const int out = above_stdio(open_output(spec.out, -1));
  if (out < 0) give_up(plan, SpawnStage::std_out, errno);
  const int err = above_stdio(open_output(spec.err, out));
  if (err < 0) give_up(plan, SpawnStage::std_err, errno);
  if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0) {
    give_up(plan, SpawnStage::std_err, errno);
  }
  if (directory_error != 0) {
    tell(plan,
         {"couldn't chdir to `", spec.directory.c_str(), "': ", strerrordesc_np(directory_error),
          ": going to ", spec.fallback_directory.c_str(), " instead"});
  }
  hand_back_stderr(plan);
  if (syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC) != 0) {
    give_up(plan, SpawnStage::exec, errno);
  }
  if (spec.death_signal) {
    // After the change of identity, which would clear it. The parent may be gone by now.
    prctl(PR_SET_PDEATHSIG, *spec.death_signal, 0, 0, 0);
    if (getppid() != parent) _exit(127);
  }
  if (!plan.pid_variable.empty()) {
    put_number(plan.pid_variable.data() + spec.pid_variable.size() + 1, getpid());
    plan.envp[plan.envp.size() - 2] = plan.pid_variable.data();
  }
  execute(plan);
  const int error = errno;
  tell(plan, {"execve(): ", spec.file.c_str(), ": ", strerrordesc_np(error)});
  give_up(plan, SpawnStage::exec, error);
}

// Born inside the group, where the kernel and v2 allow it: moving a process costs milliseconds.
pid_t fork_into(Plan* plan) {
  const auto unified = plan->spec->group.folders.find("");
  if (unified != plan->spec->group.folders.end()) {
    const sys::Fd folder(open(unified->second.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    clone_args arguments{};
    arguments.flags = CLONE_INTO_CGROUP;
    arguments.exit_signal = SIGCHLD;
    arguments.cgroup = static_cast<__u64>(folder.get());
    if (folder) {
      auto joins = std::move(plan->joins);
      plan->joins.clear();
      const auto pid = static_cast<pid_t>(syscall(SYS_clone3, &arguments, sizeof arguments));
      if (pid >= 0) return pid;
      plan->joins = std::move(joins);
    }
  }
  return fork();
}

std::string describe(const SpawnSpec& spec, SpawnStage stage, int error) {
  const auto* why = std::strerror(error);
  const auto file = [&](const char* name, const auto& where) {
    std::string path;
    std::visit(
        [&](const auto& target) {
          if constexpr (requires { target.path; }) path = target.path;
        },
        where);
    return fmt::format("Could not open {} file {}: {}", name, path, why);
  };
  switch (stage) {
    case SpawnStage::fork:
      return fmt::format("fork: {}", why);
    case SpawnStage::cgroup:
      return fmt::format("cannot join the job's cgroup: {}", why);
    case SpawnStage::identity:
      return fmt::format("cannot become user {}: {}", spec.identity.uid, why);
    case SpawnStage::limits:
      return fmt::format("cannot set the resource limits: {}", why);
    case SpawnStage::directory:
      return fmt::format("couldn't chdir to `{}': {}", spec.directory, why);
    case SpawnStage::std_in:
      return file("stdin", spec.in);
    case SpawnStage::std_out:
      return file("stdout", spec.out);
    case SpawnStage::std_err:
      return file("stderr", spec.err);
    case SpawnStage::exec:
      return fmt::format("execve(): {}: {}", spec.file, why);
  }
  return why;
}

SpawnFailure failure(const SpawnSpec& spec, SpawnStage stage, int error) {
  return {.stage = stage, .error = error, .what = describe(spec, stage, error)};
}

}  // namespace

tl::expected<Starting, SpawnFailure> begin_spawn(const SpawnSpec& spec) {
  std::array<int, 2> pair{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()) != 0) {
    return tl::unexpected<SpawnFailure>(failure(spec, SpawnStage::fork, errno));
  }
  sys::Fd ours(pair[0]);
  const sys::Fd theirs(pair[1]);
  auto plan = make_plan(spec);
  plan.channel = theirs.get();
  const pid_t parent = getpid();

  // Blocked until the child has put its own handlers away.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = fork_into(&plan);
  const int error = errno;
  if (pid == 0) become(plan, parent);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) return tl::unexpected<SpawnFailure>(failure(spec, SpawnStage::fork, error));
  return Starting{.pid = Pid(pid), .channel = std::move(ours), .std_err = {}};
}

tl::expected<Progress, SpawnFailure> advance(Starting* starting, const SpawnSpec& spec) {
  Letter letter;
  ssize_t n = 0;
  do {
    n = recvmsg(starting->channel.get(), &letter.message, MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  if (n != static_cast<ssize_t>(sizeof letter.word)) {
    return Progress::running;  // closed by exec, or by death
  }
  if (const cmsghdr* header = CMSG_FIRSTHDR(&letter.message);
      header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    starting->std_err.reset(fd);
    return Progress::pending;
  }
  sys::wait_for_child(starting->pid);
  return tl::unexpected<SpawnFailure>(failure(spec, letter.word.stage, letter.word.error));
}

tl::expected<Pid, SpawnFailure> spawn(const SpawnSpec& spec) {
  auto starting = begin_spawn(spec);
  if (!starting) return tl::unexpected<SpawnFailure>(starting.error());
  while (true) {
    const auto progress = advance(&*starting, spec);
    if (!progress) return tl::unexpected<SpawnFailure>(progress.error());
    if (*progress == Progress::running) return starting->pid;
  }
}

}  // namespace aliquot::node
