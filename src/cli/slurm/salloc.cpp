// salloc: asks for an interactive job, runs a shell or a command in it, and gives it back.
#include <fmt/format.h>
#include <pwd.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "cli/common.hpp"
#include "cli/multicall.hpp"
#include "cli/slurm/allocation.hpp"
#include "cli/slurm/job_request.hpp"
#include "cli/slurm/options.hpp"
#include "cli/slurm/task_io.hpp"
#include "cli/slurm/tasks.hpp"

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
  std::vector<char*> variables;
  for (const auto& variable : environment.variables()) {
    variables.push_back(const_cast<char*>(variable.c_str()));
  }
  variables.push_back(nullptr);
  std::vector<char*> command;
  for (const auto& word : words) command.push_back(const_cast<char*>(word.c_str()));
  command.push_back(nullptr);
  const auto program = find_program(words[0], environment.get("PATH").value_or(""));

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
    ::execve(program.c_str(), command.data(), variables.data());
    voice.error(fmt::format("Unable to find program: {}", words[0]));
    ::_exit(1);
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  api::StepEnd end;
  end.exit_signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  end.exit_code = WIFSIGNALED(status) ? 0 : WEXITSTATUS(status);
  return end;
}

}  // namespace

int run_salloc(int argc, char** argv) {
  const UsersFiles files;
  Voice voice("salloc");
  const auto line = read_arguments(Submitter::salloc, argc, argv);
  if (!line) return refused(voice, line.error());
  if (const auto status = answer_about(Submitter::salloc, *line)) return *status;
  OptionSet options(Submitter::salloc);
  if (auto set = apply(options, read_variables(Submitter::salloc), Source::environment); !set) {
    return refused(voice, set.error());
  }
  if (auto set = apply(options, line->words, Source::command_line); !set) {
    return refused(voice, set.error());
  }
  voice.set_level(voice_level(options));
  say_options(options, voice);
  if (auto user = become_user(options); !user) return refused(voice, user.error());

  std::vector<std::string> words(argv + line->rest, argv + argc);
  if (words.empty()) words.push_back(shell_of_user());
  const auto caller = describe_caller();
  auto job = make_job(options, caller, SystemClock().wall());
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
