// aliquot-stepd FOLDER: runs the batch job described in FOLDER/launch.json (node/launch.hpp) and
// writes FOLDER/exit.json. Started by node/job_directory.cpp, which reads on our stdout whether it
// worked. Small and quick to start: it stands between a job's submission and its first instruction.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

#include "node/launch.hpp"
#include "node/process_tree.hpp"
#include "node/stepd/files.hpp"
#include "node/stepd/supervisor.hpp"
#include "sys/file.hpp"

namespace {

using namespace aliquot;
using namespace aliquot::node;

void answer(const std::string& line) {
  if (write(STDOUT_FILENO, line.data(), line.size()) < 0) return;  // the daemon died: go on
}

[[noreturn]] void refuse(const std::string& why) {
  answer("error " + why + "\n");
  _exit(1);
}

sys::Fd take_lock(const std::filesystem::path& directory) {
  sys::Fd lock(
      open((directory / kLockFile).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock || flock(lock.get(), LOCK_EX) != 0) {
    refuse(fmt::format("cannot lock {}: {}", directory.string(), std::strerror(errno)));
  }
  return lock;
}

Launch read_launch(const std::filesystem::path& directory) {
  const auto text = sys::read_whole(directory / kLaunchFile);
  if (!text) refuse(text.error().message);
  const auto launch = launch_from_json(*text);
  if (!launch) refuse("launch.json: " + launch.error().message);
  return *launch;
}

// For writing too, so that it never ends when the daemon closes its side.
sys::Fd open_control(const std::filesystem::path& directory) {
  sys::Fd control(
      open((directory / kControlFile).c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW));
  if (!control) refuse(fmt::format("no control fifo: {}", std::strerror(errno)));
  return control;
}

// From here on the daemon can find us, and nobody else starts the job.
void announce(const std::filesystem::path& directory) {
  const auto self = sys::read_process(Pid(getpid()));
  if (!self) refuse("/proc is not mounted");
  const auto text = fmt::format("{} {}", self->ref.pid, self->ref.start_time);
  const auto written =
      sys::write_whole(directory / kPidFile, text + " " + sys::boot_id() + "\n", 0600, false);
  if (!written) refuse(written.error().message);
  answer("ok " + text + "\n");
}

void leave_stdout() {
  const sys::Fd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (null) dup2(null.get(), STDOUT_FILENO);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || argv[1][0] != '/') {
    std::fprintf(stderr, "usage: aliquot-stepd /path/of/the/job's/folder (started by aliquotd)\n");
    return 2;
  }
  const std::filesystem::path directory(argv[1]);
  signal(SIGPIPE, SIG_IGN);
  umask(077);

  sys::Fd lock = take_lock(directory);
  if (access((directory / kPidFile).c_str(), F_OK) == 0) refuse("the job has been started already");
  const auto launch = read_launch(directory);

  // The daemon waits for this process; the one that stays is nobody's child.
  const pid_t child = fork();
  if (child < 0) refuse(fmt::format("fork: {}", std::strerror(errno)));
  if (child > 0) _exit(0);
  setsid();
  if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) refuse("no subreaper: the kernel is too old");
  if (chdir("/") != 0) refuse("cannot enter /");
  sys::Fd control = open_control(directory);
  announce(directory);
  lock.reset();
  leave_stdout();

  Supervisor supervisor(launch, std::move(control));
  const auto record = supervisor.run();
  // A full disk may have room later; the daemon waits for this file and nothing else: without it
  // the job would count as lost, and run again. Only nobody waits for a folder that is gone.
  while (true) {
    const auto written = sys::write_whole(directory / kExitFile, to_json(record), 0600, true);
    if (written) _exit(0);
    if (written.error().code == Error::Code::not_found) _exit(1);
    sleep(1);
  }
}
