// salloc: asks for an interactive job, runs a shell or a command in it, and gives it back.
#include <fmt/format.h>
#include <pwd.h>
#include <signal.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "cli/jobs/allocation.hpp"
#include "cli/jobs/end_notice.hpp"
#include "cli/jobs/job_request.hpp"
#include "cli/jobs/task_io.hpp"
#include "cli/jobs/task_process.hpp"
#include "cli/option_set.hpp"
#include "sys/process.hpp"
#include "sys/system_clock.hpp"

namespace aliquot::cli {
namespace {

// Whoever waited so long may be looking elsewhere.
constexpr Millis kLongWait = seconds(10);

void ring() {
  if (::isatty(STDOUT_FILENO) != 0 && ::write(STDOUT_FILENO, "\a", 1) < 0) return;
}

std::string shell_of_user() {
  if (const char* shell = std::getenv("SHELL"); shell != nullptr && *shell != '\0') return shell;
  const auto* entry = ::getpwuid(::geteuid());
  return entry == nullptr || *entry->pw_shell == '\0' ? "/bin/sh" : entry->pw_shell;
}

// Said at once, whatever the command does then; a shell at a terminal ignores being asked to end,
// and is hung up on.
class Revocation {
 public:
  Revocation(std::int64_t job, std::optional<int> signal, const Voice& voice)
      : job_(job), signal_(signal), voice_(voice) {}

  void tell(const api::JobInfo& ending) {
    revoked_ = true;
    voice_.info(ran_out_of_time(ending)
                    ? fmt::format("Job {} has exceeded its time limit and its allocation has been "
                                  "revoked.",
                                  job_)
                    : fmt::format("Job allocation {} has been revoked.", job_));
    if (const pid_t child = child_; child > 0 && signal_) ::kill(child, *signal_);
  }
  void set_child(pid_t child) { child_ = child; }
  [[nodiscard]] bool revoked() const { return revoked_; }

 private:
  const std::int64_t job_;
  const std::optional<int> signal_;
  const Voice& voice_;
  std::atomic<pid_t> child_ = -1;
  std::atomic<bool> revoked_ = false;
};

// Puts it back as it was, whatever a shell that was killed left of it.
class KeptTerminal {
 public:
  KeptTerminal() : kept_(::tcgetattr(STDIN_FILENO, &before_) == 0) {}
  KeptTerminal(const KeptTerminal&) = delete;
  KeptTerminal& operator=(const KeptTerminal&) = delete;
  ~KeptTerminal() {
    if (!kept_) return;
    // The shell made its own group that of the terminal: we are in the background.
    ::signal(SIGTTOU, SIG_IGN);
    ::tcsetpgrp(STDIN_FILENO, ::getpgrp());
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
  }

 private:
  termios before_{};
  bool kept_;
};

// The command runs in our own process group: the terminal is its, Ctrl-C goes to it; we wait.
api::StepEnd run_command(const std::vector<std::string>& words, const Environment& environment,
                         const std::string& folder, const UsersFiles& files, Revocation& revocation,
                         const Voice& voice) {
  const KeptTerminal terminal;
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
    voice.error(fmt::format("_fork_command: Unable to find command \"{}\"", words[0]));
    ::_exit(1);
  }
  revocation.set_child(pid);
  const int status = sys::wait_for_child(Pid(pid));
  revocation.set_child(-1);
  api::StepEnd end;
  end.exit_signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  end.exit_code = WIFSIGNALED(status) ? 0 : WEXITSTATUS(status);
  return end;
}

// -K: this signal; else a shell for somebody is hung up on, and a command asked by the daemon.
Parsed<std::optional<int>> last_signal(const OptionSet& options, bool shell) {
  if (!options.has("kill-command")) return shell ? std::optional<int>(SIGHUP) : std::nullopt;
  const auto text = options.text("kill-command");
  const auto number = text.empty() ? SIGTERM : parse_signal_name(text);
  if (!number) return tl::make_unexpected(Misuse{255, "Invalid --kill-command specification"});
  return number;
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
  if (std::ranges::find(words, ":") != words.end()) {
    voice.error(
        "a job has one component here, and ':' would begin another: ask for all of it at "
        "once");
    return 1;
  }
  if (words.empty()) words.push_back(shell_of_user());
  const auto last = last_signal(options, call->words.empty());
  if (!last) return refused(voice, last.error());
  const auto caller = describe_caller();
  auto job = make_job(options, caller, sys::SystemClock().wall());
  if (!job) return refused(voice, job.error());
  job->batch = false;
  job->name = options.text("job-name", "interactive");
  job->command = words[0];
  job->detached = options.has("no-shell");
  if (job->detached) job->command.clear();
  if (options.has("chdir") && ::access(job->work_dir.c_str(), X_OK) != 0) {
    voice.error(fmt::format("chdir({}): {}", job->work_dir, std::strerror(errno)));
    return 1;
  }
  const auto asked = sys::SystemClock().mono();
  auto held = HeldAllocation::ask(options, *job, voice);
  if (!held) return 1;
  const bool long_ago = sys::SystemClock().mono() - asked > kLongWait;
  if (options.has("bell") || (long_ago && !options.has("no-bell"))) ring();

  const auto id = held->answer().job_id;
  voice.info(fmt::format("Granted job allocation {}", id));
  // It lives on until its time limit or scancel; srun --jobid runs in it.
  if (job->detached) return 0;
  auto environment = caller.environment;
  forget_job(environment);
  for (const auto& variable : job->environment) environment.set(variable);
  add_granted(environment, held->answer().environment);
  environment.unset("ENVIRONMENT");
  Revocation revocation(id, *last, voice);
  held->on_ending([&](const api::JobInfo& ending) { revocation.tell(ending); });
  const auto end = run_command(words, environment, job->work_dir, files, revocation, voice);
  held->finish(end);
  if (revocation.revoked()) return end.exit_signal != 0 ? 128 + end.exit_signal : end.exit_code;
  voice.info(fmt::format("Relinquishing job allocation {}", id));
  voice.info(fmt::format("Job allocation {} has been revoked.", id));
  return end.exit_signal != 0 ? 128 + end.exit_signal : end.exit_code;
}

}  // namespace aliquot::cli
