// Why a job waits, or how it ended: Slurm's words as values.
#pragma once

#include <cstdint>
#include <string_view>

namespace aliquot::engine {

enum class Reason : std::uint8_t {
  none,
  // It waits.
  priority,
  resources,
  dependency,
  dependency_never,
  begin_time,
  held_user,
  held_admin,
  task_limit,
  partition_time_limit,
  partition_down,
  not_available,
  bad_constraints,
  invalid_account,
  invalid_qos,
  reservation,
  // It is over.
  launch_failure,
  time_limit,
  deadline,
  out_of_memory,
  node_down,
  nonzero_exit,
  raised_signal,  // JobInfo says which
  // It waits for a limit: this is the first of limit_words(), the next value the next one.
  limit,
};

inline bool is_limit(Reason reason) { return reason >= Reason::limit; }
std::string_view to_string(Reason reason);
// A word that we do not know is none: who reads it back finds the reason anew.
Reason parse_reason(std::string_view word);

}  // namespace aliquot::engine
