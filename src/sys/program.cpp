#include "sys/program.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <system_error>
#include <thread>

#include "base/text.hpp"
#include "sys/clock.hpp"
#include "sys/fd.hpp"
#include "sys/file.hpp"
#include "sys/process.hpp"

namespace aliquot::sys {
namespace {

constexpr Millis kKillPatience(500);

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> list;
  list.reserve(words.size() + 1);
  // They are char* for history's sake: nobody writes to them.
  for (const auto& word : words) list.push_back(const_cast<char*>(word.c_str()));
  list.push_back(nullptr);
  return list;
}

// What the kernel does in the child before it is the program.
class SpawnOrders {
 public:
  explicit SpawnOrders(const Program& program) {
    posix_spawn_file_actions_init(&files_);
    posix_spawnattr_init(&attributes_);
    int target = 0;
    for (int fd : {program.in, program.out, program.err}) {
      if (fd >= 0 && fd <= STDERR_FILENO) fd = copy_above(fd);
      if (fd < 0) {
        posix_spawn_file_actions_addopen(&files_, target, "/dev/null",
                                         target == STDIN_FILENO ? O_RDONLY : O_WRONLY, 0);
      } else {
        posix_spawn_file_actions_adddup2(&files_, fd, target);
      }
      ++target;
    }
    posix_spawn_file_actions_addclosefrom_np(&files_, STDERR_FILENO + 1);
    if (!program.directory.empty()) {
      posix_spawn_file_actions_addchdir_np(&files_, program.directory.c_str());
    }
    sigset_t none;
    sigset_t all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setflags(&attributes_,
                             static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                                (program.new_session ? POSIX_SPAWN_SETSID : 0)));
  }
  SpawnOrders(const SpawnOrders&) = delete;
  SpawnOrders& operator=(const SpawnOrders&) = delete;
  ~SpawnOrders() {
    posix_spawn_file_actions_destroy(&files_);
    posix_spawnattr_destroy(&attributes_);
  }

  [[nodiscard]] const posix_spawn_file_actions_t* files() const { return &files_; }
  [[nodiscard]] const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  // Out of the way of 0, 1 and 2, which are filled one after the other.
  int copy_above(int fd) {
    copies_.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    return copies_.back().get();
  }

  std::vector<Fd> copies_;
  posix_spawn_file_actions_t files_{};
  posix_spawnattr_t attributes_{};
};

std::string written_to(const Fd& file) {
  if (lseek(file.get(), 0, SEEK_SET) != 0) return "";
  return read_all(file.get()).value_or("");
}

}  // namespace

std::filesystem::path own_program() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error);
}

std::string find_in_path(std::string_view name, std::string_view path, int access) {
  for (const auto folder : split(path, ':')) {
    const auto candidate = fmt::format("{}/{}", folder.empty() ? "." : folder, name);
    struct stat info {};
    if (::stat(candidate.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
        ::access(candidate.c_str(), access) == 0) {
      return candidate;
    }
  }
  return {};
}

Result<Pid> start_program(const Program& program) {
  const SpawnOrders orders(program);
  const auto argv = pointers(program.argv);
  const auto own = program.environment ? pointers(*program.environment) : std::vector<char*>();
  pid_t child = -1;
  const int error = posix_spawnp(&child, program.file.c_str(), orders.files(), orders.attributes(),
                                 argv.data(), program.environment ? own.data() : environ);
  if (error != 0) return system_error(error, "cannot run", program.file);
  return Pid(child);
}

Ended run_program(Program program, Streams streams, std::string_view input,
                  std::optional<Millis> patience) {
  // Files in memory, not pipes: they take any amount, and have an end whoever keeps them open.
  const Fd out(memfd_create("out", MFD_CLOEXEC));
  const Fd err(memfd_create("err", MFD_CLOEXEC));
  Pipe in = make_pipe();
  if (!out || !err || !in) return {};
  program.in = in.read.get();
  program.out = out.get();
  program.err = streams == Streams::together ? out.get() : err.get();
  const auto child = start_program(program);
  if (!child) return {.err = child.error().message};
  write_all(in.write.get(), input);  // we can read it ourselves until here: no SIGPIPE
  in = {};
  int status = -1;
  if (const Fd process = open_pid(*child); process && has_ended(process, patience)) {
    status = wait_for_child(*child);
  } else {
    kill(child->value(), SIGKILL);
    const std::int64_t until = mono_ms() + kKillPatience.value();
    while (waitpid(child->value(), &status, WNOHANG) == 0) {
      if (mono_ms() >= until) {
        wait_in_background(*child);
        return {};
      }
      sleep_ms(1);
    }
  }
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, written_to(out), written_to(err)};
}

void wait_in_background(Pid child) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for others
  try {
    std::thread([child] { wait_for_child(child); }).detach();
  } catch (const std::system_error&) {
    // No thread is to be had: it stays on the list of processes.
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace aliquot::sys
