// Starting one task: what happens between fork and execve.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include "cli/jobs/tasks.hpp"

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

// Becomes the program that words[0] names, found on the environment's PATH. Returns where there is
// none, with errno.
void become_program(const std::vector<std::string>& words, const Environment& environment);

// In the child, with its files in place. Does not return.
[[noreturn]] void become_task(const Task& task, const StepPlan& plan, const sigset_t& mask);

}  // namespace aliquot::cli
