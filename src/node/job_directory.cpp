#include "node/job_directory.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/text.hpp"
#include "node/file.hpp"
#include "node/monotonic.hpp"
#include "node/stepd/files.hpp"

namespace aliquot::node {
namespace {

// Exclusive; stepd holds it only while it reads launch.json and writes stepd.pid.
Result<Fd> lock_directory(const std::filesystem::path& directory, Millis patience) {
  const auto path = directory / kLockFile;
  Fd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return system_error(errno, "cannot open", path);
  const std::int64_t deadline = mono_ms() + patience.value();
  while (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return system_error(errno, "cannot lock", path);
    if (mono_ms() >= deadline) {
      return fail(Error::Code::unavailable, "{} stays locked: a stepd that starts hangs",
                  path.string());
    }
    const timespec pause{0, 1'000'000};
    nanosleep(&pause, nullptr);
  }
  return fd;
}

}  // namespace

JobDirectory::JobDirectory(const std::filesystem::path& jobs, const Run& run)
    : path_(jobs / run_name(run)) {
  std::error_code error;
  if (run.attempt == 0 || std::filesystem::exists(path_, error)) return;
  const JobDirectory plain(jobs, Run{run.job});
  const auto launch = plain.read_launch();
  if (launch && launch->attempt == run.attempt) path_ = plain.path_;
}

Result<void> JobDirectory::write_script(std::string_view text, Uid user, Gid group) const {
  const bool root = geteuid() == 0;
  if (mkdir(path_.c_str(), 0700) != 0 && errno != EEXIST) {
    return system_error(errno, "cannot make", path_);
  }
  if (chmod(path_.c_str(), root ? 0711 : 0700) != 0) {
    return system_error(errno, "cannot change", path_);
  }
  // Nobody else may read it, and the interpreter, run by the user, must.
  TRY(write_whole(script(), text, 0500, false));
  if (!root) return {};
  auto allowed = let_run(script(), user);
  if (allowed || allowed.error().code != Error::Code::unsupported) return allowed;
  if (lchown(script().c_str(), user.value(), group.value()) != 0) {
    return system_error(errno, "cannot give away", script());
  }
  return {};
}

Result<std::string> JobDirectory::read_script() const { return read_whole(script()); }

Result<void> JobDirectory::prepare(const Launch& launch) const {
  const auto lock = TRY(lock_directory(path_, seconds(5)));
  for (const auto* file : {kLaunchFile, kExitFile, kPidFile, kControlFile}) {
    if (unlink((path_ / file).c_str()) != 0 && errno != ENOENT) {
      return system_error(errno, "cannot remove", path_ / file);
    }
  }
  if (mkfifo((path_ / kControlFile).c_str(), 0600) != 0) {
    return system_error(errno, "cannot make", path_ / kControlFile);
  }
  return write_whole(path_ / kLaunchFile, to_json(launch), 0600, false);
}

Result<ProcessRef> JobDirectory::start(const std::filesystem::path& program,
                                       Millis patience) const {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return system_error(errno, "cannot pipe to", program);
  const Fd ours(ends[0]);
  Fd theirs(ends[1]);

  // Its answer comes on fd 1; nothing else of ours gets in. posix_spawn, because forking a large
  // daemon takes longer than all that stepd does.
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, theirs.get(), 1);
  posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addclosefrom_np(&files, 3);
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(
      &attributes,
      static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID));
  std::string name = "aliquot-stepd";
  std::string folder = path_.string();
  std::string zone;  // for the times in messages to the user
  std::array<char*, 3> argv = {name.data(), folder.data(), nullptr};
  std::array<char*, 2> envp = {nullptr, nullptr};
  if (const char* set = getenv("TZ"); set != nullptr) {
    zone = std::string("TZ=") + set;
    envp[0] = zone.data();
  }
  pid_t child = 0;
  const int error =
      posix_spawn(&child, program.c_str(), &files, &attributes, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return system_error(error, "cannot run", program);
  theirs.reset();

  // "ok PID START" from the grandchild that stays, or "error …".
  std::string answer;
  const std::int64_t deadline = mono_ms() + patience.value();
  while (answer.find('\n') == std::string::npos) {
    pollfd poll_fd{ours.get(), POLLIN, 0};
    const std::int64_t left = deadline - mono_ms();
    const int ready = left <= 0 ? 0 : poll(&poll_fd, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      kill(child, SIGKILL);  // not yet reaped: still ours
      break;
    }
    std::array<char, 256> buffer{};
    const ssize_t n = read(ours.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    answer.append(buffer.data(), static_cast<std::size_t>(n));
  }
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  const auto line = std::string_view(answer).substr(0, answer.find('\n'));
  const auto words = split(line, ' ');
  if (words.size() == 3 && words[0] == "ok") {
    const auto pid = parse_digits(words[1]);
    const auto start_time = parse_digits(words[2]);
    if (pid && start_time) {
      return ProcessRef{Pid(static_cast<pid_t>(*pid)), static_cast<std::uint64_t>(*start_time)};
    }
  }
  if (line.starts_with("error ")) {
    return fail(Error::Code::failed_state, "aliquot-stepd: {}", line.substr(6));
  }
  return fail(Error::Code::internal, "aliquot-stepd did not start in {}", folder);
}

Result<void> JobDirectory::send(const Command& command) const {
  const auto path = path_ / kControlFile;
  const Fd fd(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) {
    return fail(Error::Code::failed_state, "no aliquot-stepd listens at {}: {}", path.string(),
                std::strerror(errno));
  }
  // A short queue: what is said last is not to wait for thousands.
  (void)fcntl(fd.get(), F_SETPIPE_SZ, 4096);
  const auto line = to_line(command);
  if (line.size() > 4096) return fail(Error::Code::invalid_argument, "the command is too long");
  // Up to PIPE_BUF it is written whole or not at all.
  if (write(fd.get(), line.data(), line.size()) < 0) {
    return system_error(errno, "cannot write to", path);
  }
  return {};
}

Result<Launch> JobDirectory::read_launch() const {
  return launch_from_json(TRY(read_whole(path_ / kLaunchFile)));
}

Result<ExitRecord> JobDirectory::read_exit() const {
  const auto text = TRY(read_whole(path_ / kExitFile));
  return exit_from_json(text);
}

Result<JobDirectory::Status> JobDirectory::inspect(Millis patience) const {
  auto lock = lock_directory(path_, patience);
  if (!lock) {
    if (lock.error().code == Error::Code::not_found) return NeverStarted{};
    return tl::unexpected<Error>(lock.error());
  }
  const auto pid_text = read_whole(path_ / kPidFile);
  if (!pid_text) {
    if (pid_text.error().code != Error::Code::not_found) {
      return tl::unexpected<Error>(pid_text.error());
    }
    // An exit without a pid is of no run we know of. Whoever comes late finds nothing.
    if (unlink((path_ / kLaunchFile).c_str()) != 0 && errno != ENOENT) {
      return system_error(errno, "cannot remove", path_ / kLaunchFile);
    }
    return NeverStarted{};
  }
  const auto words = split(std::string_view(*pid_text).substr(0, pid_text->find('\n')), ' ');
  const auto pid = parse_digits(words[0]);
  const auto start_time = words.size() > 1 ? parse_digits(words[1]) : std::nullopt;
  if (!pid || !start_time) {
    return fail(Error::Code::internal, "{} is damaged", (path_ / kPidFile).string());
  }
  const ProcessRef stepd{Pid(static_cast<pid_t>(*pid)), static_cast<std::uint64_t>(*start_time)};
  // Looked at before exit.json: if it is dead, its exit.json is there by now or never will be.
  const bool alive = (words.size() < 3 || words[2] == boot_id()) && is_alive(stepd);
  if (auto record = read_exit()) return *record;
  if (alive) return stepd;
  return Lost{stepd};
}

Result<void> JobDirectory::remove() const {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
  if (error) return system_error(error.value(), "cannot remove", path_);
  return {};
}

}  // namespace aliquot::node
