#include "node/job_directory.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/text.hpp"
#include "node/stepd/files.hpp"
#include "sys/clock.hpp"
#include "sys/fd.hpp"
#include "sys/file.hpp"
#include "sys/program.hpp"

namespace aliquot::node {
namespace {

// Exclusive; stepd holds it only while it reads launch.json and writes stepd.pid.
Result<sys::Fd> lock_directory(const std::filesystem::path& directory, Millis patience) {
  const auto path = directory / kLockFile;
  sys::Fd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return sys::system_error(errno, "cannot open", path);
  const std::int64_t deadline = sys::mono_ms() + patience.value();
  while (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR)
      return sys::system_error(errno, "cannot lock", path);
    if (sys::mono_ms() >= deadline) {
      return fail(Error::Code::unavailable, "{} stays locked: a stepd that starts hangs",
                  path.string());
    }
    sys::sleep_ms(1);
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
    return sys::system_error(errno, "cannot make", path_);
  }
  if (chmod(path_.c_str(), root ? 0711 : 0700) != 0) {
    return sys::system_error(errno, "cannot change", path_);
  }
  // Nobody else may read it, and the interpreter, run by the user, must.
  TRY(sys::write_whole(script(), text, 0500, false));
  if (!root) return {};
  auto allowed = sys::let_run(script(), user);
  if (allowed || allowed.error().code != Error::Code::unsupported) return allowed;
  if (lchown(script().c_str(), user.value(), group.value()) != 0) {
    return sys::system_error(errno, "cannot give away", script());
  }
  return {};
}

Result<void> JobDirectory::prepare(const Launch& launch) const {
  const auto lock = TRY(lock_directory(path_, seconds(5)));
  for (const auto* file : {kLaunchFile, kExitFile, kPidFile, kControlFile}) {
    if (unlink((path_ / file).c_str()) != 0 && errno != ENOENT) {
      return sys::system_error(errno, "cannot remove", path_ / file);
    }
  }
  if (mkfifo((path_ / kControlFile).c_str(), 0600) != 0) {
    return sys::system_error(errno, "cannot make", path_ / kControlFile);
  }
  return sys::write_whole(path_ / kLaunchFile, to_json(launch), 0600, false);
}

Result<sys::ProcessRef> JobDirectory::start(const std::filesystem::path& program,
                                            Millis patience) const {
  sys::Pipe pipe = sys::make_pipe();
  if (!pipe) return sys::system_error(errno, "cannot pipe to", program);

  // Its answer comes on its standard output; nothing else of ours gets in.
  std::vector<std::string> environment;
  if (const char* zone = getenv("TZ"); zone != nullptr) {
    environment.push_back(std::string("TZ=") + zone);  // for the times in messages to the user
  }
  const Pid child = TRY(sys::start_program({.file = program,
                                            .argv = {"aliquot-stepd", path_.string()},
                                            .environment = std::move(environment),
                                            .out = pipe.write.get(),
                                            .new_session = true}));
  pipe.write.reset();

  // "ok PID START" from the grandchild that stays, or "error …".
  std::string answer;
  const std::int64_t deadline = sys::mono_ms() + patience.value();
  while (answer.find('\n') == std::string::npos) {
    pollfd poll_fd{pipe.read.get(), POLLIN, 0};
    const std::int64_t left = deadline - sys::mono_ms();
    const int ready = left <= 0 ? 0 : poll(&poll_fd, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      kill(child.value(), SIGKILL);  // not yet reaped: still ours
      break;
    }
    std::array<char, 256> buffer{};
    const ssize_t n = read(pipe.read.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    answer.append(buffer.data(), static_cast<std::size_t>(n));
  }
  sys::wait_for_child(child);
  const auto line = std::string_view(answer).substr(0, answer.find('\n'));
  const auto words = split(line, ' ');
  if (words.size() == 3 && words[0] == "ok") {
    const auto pid = parse_digits(words[1]);
    const auto start_time = parse_digits(words[2]);
    if (pid && start_time) {
      return sys::ProcessRef{Pid(static_cast<pid_t>(*pid)),
                             static_cast<std::uint64_t>(*start_time)};
    }
  }
  if (line.starts_with("error ")) {
    return fail(Error::Code::failed_state, "aliquot-stepd: {}", line.substr(6));
  }
  return fail(Error::Code::internal, "aliquot-stepd did not start in {}", path_.string());
}

Result<void> JobDirectory::send(const Command& command) const {
  const auto path = path_ / kControlFile;
  const sys::Fd fd(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW));
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
    return sys::system_error(errno, "cannot write to", path);
  }
  return {};
}

Result<Launch> JobDirectory::read_launch() const {
  return launch_from_json(TRY(sys::read_whole(path_ / kLaunchFile)));
}

Result<ExitRecord> JobDirectory::read_exit() const {
  const auto text = TRY(sys::read_whole(path_ / kExitFile));
  return exit_from_json(text);
}

Result<JobDirectory::Status> JobDirectory::inspect(Millis patience) const {
  auto lock = lock_directory(path_, patience);
  if (!lock) {
    if (lock.error().code == Error::Code::not_found) return NeverStarted{};
    return tl::unexpected<Error>(lock.error());
  }
  const auto pid_text = sys::read_whole(path_ / kPidFile);
  if (!pid_text) {
    if (pid_text.error().code != Error::Code::not_found) {
      return tl::unexpected<Error>(pid_text.error());
    }
    // An exit without a pid is of no run we know of. Whoever comes late finds nothing.
    if (unlink((path_ / kLaunchFile).c_str()) != 0 && errno != ENOENT) {
      return sys::system_error(errno, "cannot remove", path_ / kLaunchFile);
    }
    return NeverStarted{};
  }
  const auto words = split(std::string_view(*pid_text).substr(0, pid_text->find('\n')), ' ');
  const auto pid = parse_digits(words[0]);
  const auto start_time = words.size() > 1 ? parse_digits(words[1]) : std::nullopt;
  if (!pid || !start_time) {
    return fail(Error::Code::internal, "{} is damaged", (path_ / kPidFile).string());
  }
  const sys::ProcessRef stepd{Pid(static_cast<pid_t>(*pid)),
                              static_cast<std::uint64_t>(*start_time)};
  // Looked at before exit.json: if it is dead, its exit.json is there by now or never will be.
  const bool alive = (words.size() < 3 || words[2] == sys::boot_id()) && sys::is_alive(stepd);
  if (auto record = read_exit()) return *record;
  if (alive) return stepd;
  return Lost{stepd};
}

Result<void> JobDirectory::remove() const {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
  if (error) return sys::system_error(error.value(), "cannot remove", path_);
  return {};
}

}  // namespace aliquot::node
