#include "cli/jobs/task_process.hpp"

#include <fmt/format.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

namespace aliquot::cli {
namespace {

void say(const StepPlan& plan, const std::string& text) {
  const auto line = fmt::format("slurmstepd-{}: error: {}\n", plan.names.host, text);
  if (::write(STDERR_FILENO, line.data(), line.size()) < 0) return;
}

}  // namespace

void become_program(const std::vector<std::string>& words, const Environment& environment) {
  // execve takes them as char* const*, and does not write.
  const auto pointers = [](const std::vector<std::string>& texts) {
    std::vector<char*> all;
    for (const auto& text : texts) all.push_back(const_cast<char*>(text.c_str()));
    all.push_back(nullptr);
    return all;
  };
  const auto program = find_program(words[0], environment.get("PATH").value_or(""));
  ::execve(program.c_str(), pointers(words).data(), pointers(environment.variables()).data());
}

void become_task(const Task& task, const StepPlan& plan, const sigset_t& mask) {
  if (plan.die_with_us) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::signal(SIGPIPE, SIG_DFL);
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  if (::chdir(plan.folder.c_str()) != 0) {
    say(plan, fmt::format("couldn't chdir to `{}': {}: going to /tmp instead", plan.folder,
                          std::strerror(errno)));
    if (::chdir("/tmp") != 0) ::_exit(1);
  }
  Environment environment = task.environment;
  environment.set("SLURM_TASK_PID", fmt::format("{}", ::getpid()));
  // A task has its three files and nothing else, as in Slurm: our connection to the daemon is a key
  // to all we may do.
  ::close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  become_program(task.command, environment);
  const int error = errno;
  const bool here = task.command[0].find('/') != std::string::npos && task.command[0][0] != '/';
  say(plan, fmt::format("execve(): {}{}: {}", here ? plan.folder + "/" : "", task.command[0],
                        std::strerror(error)));
  ::_exit(error == 0 ? 1 : error);
}

pid_t start_task(const Task& task, const StepPlan& plan, const TaskFiles& files,
                 const sigset_t& mask) {
  const pid_t pid = ::fork();
  if (pid != 0) {
    if (pid > 0) ::setpgid(pid, pid);
    return pid;
  }
  ::setpgid(0, 0);
  if (files.in >= 0) ::dup2(files.in, STDIN_FILENO);
  if (files.out >= 0) ::dup2(files.out, STDOUT_FILENO);
  if (files.err >= 0) ::dup2(files.err, STDERR_FILENO);
  become_task(task, plan, mask);
}

}  // namespace aliquot::cli
