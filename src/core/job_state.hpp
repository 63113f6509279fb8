// The states of a job and which may follow which, in Slurm's words. Whoever keeps jobs changes a
// state only along this table.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace aliquot::core {

enum class JobState : std::uint8_t {
  pending,
  running,
  suspended,
  completing,
  completed,
  failed,
  cancelled,
  timeout,
  out_of_memory,
  node_fail,
  preempted,
  deadline,
};

std::string_view long_name(JobState state);   // RUNNING
std::string_view short_name(JobState state);  // R
// Reads either, in any case.
std::optional<JobState> parse_job_state(std::string_view name);

// Over: it holds nothing and never will again, unless it is requeued.
bool is_final(JobState state);
// Holds a grant.
bool is_active(JobState state);
bool may_change(JobState from, JobState to);

}  // namespace aliquot::core
