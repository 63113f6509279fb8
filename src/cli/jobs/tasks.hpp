// The tasks of one step, as children of srun: started together, their output labelled or passed
// through, signals forwarded, their ends collected. Knows nothing of the daemon.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "api/types.hpp"
#include "base/output_path.hpp"
#include "base/time.hpp"
#include "cli/jobs/end_notice.hpp"
#include "cli/jobs/export.hpp"
#include "cli/voice.hpp"

namespace aliquot::cli {

struct Task {
  std::vector<std::string> command;  // never empty
  Environment environment;           // but for SLURM_TASK_PID
};

struct StepPlan {
  std::vector<Task> tasks;
  std::string folder;
  PatternValues names;                 // the step's; the task is filled in
  std::optional<std::string> std_out;  // `all`, `none`, a task's number, or a pattern
  std::optional<std::string> std_err;
  std::optional<std::string> std_in;
  bool append = false;
  bool label = false;
  bool pty = false;
  bool kill_on_bad_exit = false;
  bool quit_on_interrupt = false;
  std::optional<std::int64_t> wait_s;  // after the first task's end
  // Has somebody else signal all of the step, and says whether that is being done; empty: srun
  // signals its tasks itself. Never takes long.
  std::function<bool(int)> signal_step;
  EndNotice* notice = nullptr;       // where the daemon's ending the job is told
  std::optional<Millis> time_limit;  // of the step, inside a job
  bool die_with_us = true;  // tasks are killed when srun is; not where others end the job then
};

struct StepOutcome {
  int status = 0;    // srun's own: the highest of the tasks', 128 + signal for a killed one
  api::StepEnd end;  // what the daemon is told
};

StepOutcome run_tasks(const StepPlan& plan, const Voice& voice);

// The command as execve shall have it: found on PATH, else as it is.
std::string find_program(const std::string& name, std::string_view path);

}  // namespace aliquot::cli
