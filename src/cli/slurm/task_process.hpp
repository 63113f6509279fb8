// Starting one task: what happens between fork and execve.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>

#include "cli/slurm/tasks.hpp"

namespace aliquot::cli {

struct TaskFiles {
  int in = -1;  // -1: srun's own
  int out = -1;
  int err = -1;
};

// In the child, or -1 in the parent with errno. The child has a process group of its own, so that
// Ctrl-C is srun's to interpret, and dies with srun.
pid_t start_task(const Task& task, const StepPlan& plan, const TaskFiles& files,
                 const sigset_t& mask);

// In the child, with its files in place. Does not return.
[[noreturn]] void become_task(const Task& task, const StepPlan& plan, const sigset_t& mask);

}  // namespace aliquot::cli
