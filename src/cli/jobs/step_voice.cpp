#include "cli/jobs/step_voice.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/number_ranges.hpp"
#include "base/timestamp.hpp"
#include "sys/fd.hpp"

namespace aliquot::cli {

std::string StepVoice::name() const {
  return fmt::format("StepId={}.{}", plan_.names.job, plan_.names.step.value_or(0));
}

void StepVoice::as_stepd(const std::string& text) const {
  sys::write_all(STDERR_FILENO, fmt::format("slurmstepd-{}: error: {}\n", plan_.names.host, text));
}

void StepVoice::ended(int status, const std::vector<std::size_t>& tasks, bool out_of_memory) {
  if (status == 0) return;
  const auto who = fmt::format("{}: {} {}", plan_.names.host, tasks.size() == 1 ? "task" : "tasks",
                               format_ranges(tasks));
  if (!WIFSIGNALED(status)) {
    voice_.error(fmt::format("{}: Exited with exit code {}", who, WEXITSTATUS(status)));
    return;
  }
  const bool killed = WTERMSIG(status) == SIGKILL;
  voice_.error(fmt::format(
      "{}: {}{}", who, killed && out_of_memory ? "Out Of Memory" : ::strsignal(WTERMSIG(status)),
      WCOREDUMP(status) ? " (core dumped)" : ""));
  if ((killed || WTERMSIG(status) == SIGTERM) && !out_of_memory && !force_said_) {
    force_said_ = true;
    voice_.info(fmt::format("Force Terminated {}", name()));
  }
}

void StepVoice::waiting(Millis patience) const {
  voice_.info(fmt::format("Job step aborted: Waiting up to {} seconds for job step to finish.",
                          patience.value() / 1000 + 2));
}

void StepVoice::cancelled(bool out_of_time, WallTime now) const {
  as_stepd(fmt::format("*** STEP {}.{} ON {} CANCELLED AT {}{} ***", plan_.names.job,
                       plan_.names.step.value_or(0), plan_.names.host, format_timestamp(now),
                       out_of_time ? " DUE TO TIME LIMIT" : ""));
}

void StepVoice::out_of_memory(std::int64_t kills) const {
  as_stepd(fmt::format(
      "Detected {} oom_kill event{} in {}. Some of the step tasks have been OOM Killed.", kills,
      kills == 1 ? "" : "s", name()));
}

}  // namespace aliquot::cli
