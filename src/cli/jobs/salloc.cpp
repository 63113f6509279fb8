// salloc: asks for an interactive job, runs a shell or a command in it, and gives it back.
#include <fmt/format.h>
#include <pwd.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "cli/jobs/allocation.hpp"
#include "cli/jobs/job_request.hpp"
#include "cli/jobs/task_io.hpp"
#include "cli/jobs/task_process.hpp"
#include "cli/option_set.hpp"
#include "sys/process.hpp"
#include "sys/system_clock.hpp"

namespace aliquot::cli {
namespace {

std::string shell_of_user() {
  if (const char* shell = std::getenv("SHELL"); shell != nullptr && *shell != '\0') return shell;
  const auto* entry = ::getpwuid(::geteuid());
  return entry == nullptr || *entry->pw_shell == '\0' ? "/bin/sh" : entry->pw_shell;
}

// The command runs in our own process group: the terminal is its, Ctrl-C goes to it; we wait.
api::StepEnd run_command(const std::vector<std::string>& words, const Environment& environment,
                         const std::string& folder, const UsersFiles& files, const Voice& voice) {
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  struct sigaction before_int {};
  struct sigaction before_quit {};
  ::sigaction(SIGINT, &ignore, &before_int);
  ::sigaction(SIGQUIT, &ignore, &before_quit);
  const pid_t pid = ::fork();
  if (pid < 0) {
    voice.error(fmt::format("fork: {}", std::strerror(errno)));
    api::StepEnd failed;
    failed.exit_code = 1;
    return failed;
  }
  if (pid == 0) {
    ::sigaction(SIGINT, &before_int, nullptr);
    ::sigaction(SIGQUIT, &before_quit, nullptr);
    if (::chdir(folder.c_str()) != 0) {
      voice.error(fmt::format("chdir({}): {}", folder, std::strerror(errno)));
      ::_exit(1);
    }
    files.keep_only();
    become_program(words, environment);
    voice.error(fmt::format("Unable to find program: {}", words[0]));
    ::_exit(1);
  }
  const int status = sys::wait_for_child(Pid(pid));
  api::StepEnd end;
  end.exit_signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  end.exit_code = WIFSIGNALED(status) ? 0 : WEXITSTATUS(status);
  return end;
}

}  // namespace

int run_salloc(int argc, char** argv) {
  const UsersFiles files;
  Voice voice("salloc");
  const auto call = read_call(SlurmCommand::salloc, argc, argv, voice);
  if (!call) return call.error();
  const auto& options = call->options;
  say_options(options, voice);
  if (auto user = become_user(options); !user) return refused(voice, user.error());

  std::vector<std::string> words(call->words.begin(), call->words.end());
  if (words.empty()) words.push_back(shell_of_user());
  const auto caller = describe_caller();
  auto job = make_job(options, caller, sys::SystemClock().wall());
  if (!job) return refused(voice, job.error());
  job->batch = false;
  job->name = options.text("job-name", "interactive");
  job->command = words[0];
  job->detached = options.has("no-shell");
  if (job->detached) job->command.clear();
  auto held = HeldAllocation::ask(options, *job, voice);
  if (!held) return 1;

  const auto id = held->answer().job_id;
  voice.info(fmt::format("Granted job allocation {}", id));
  // It lives on until its time limit or scancel; srun --jobid runs in it.
  if (job->detached) return 0;
  auto environment = caller.environment;
  forget_job(environment);
  for (const auto& variable : job->environment) environment.set(variable);
  add_granted(environment, held->answer().environment);
  environment.unset("ENVIRONMENT");
  const auto end = run_command(words, environment, job->work_dir, files, voice);
  held->finish(end);
  voice.info(fmt::format("Relinquishing job allocation {}", id));
  voice.info(fmt::format("Job allocation {} has been revoked.", id));
  return end.exit_signal != 0 ? 128 + end.exit_signal : end.exit_code;
}

}  // namespace aliquot::cli
