#include "core/job_state.hpp"

#include <array>

#include "base/text.hpp"

namespace aliquot::core {
namespace {

struct Entry {
  JobState state;
  std::string_view long_name;
  std::string_view short_name;
};

constexpr std::array kStates{
    Entry{JobState::pending, "PENDING", "PD"},
    Entry{JobState::running, "RUNNING", "R"},
    Entry{JobState::suspended, "SUSPENDED", "S"},
    Entry{JobState::completing, "COMPLETING", "CG"},
    Entry{JobState::completed, "COMPLETED", "CD"},
    Entry{JobState::failed, "FAILED", "F"},
    Entry{JobState::cancelled, "CANCELLED", "CA"},
    Entry{JobState::timeout, "TIMEOUT", "TO"},
    Entry{JobState::out_of_memory, "OUT_OF_MEMORY", "OOM"},
    Entry{JobState::node_fail, "NODE_FAIL", "NF"},
    Entry{JobState::preempted, "PREEMPTED", "PR"},
    Entry{JobState::deadline, "DEADLINE", "DL"},
};

const Entry& entry(JobState state) { return kStates[static_cast<std::size_t>(state)]; }

}  // namespace

std::string_view long_name(JobState state) { return entry(state).long_name; }
std::string_view short_name(JobState state) { return entry(state).short_name; }

std::optional<JobState> parse_job_state(std::string_view name) {
  for (const Entry& one : kStates) {
    if (equals_ignoring_case(name, one.long_name) || equals_ignoring_case(name, one.short_name)) {
      return one.state;
    }
  }
  return std::nullopt;
}

bool is_active(JobState state) {
  return state == JobState::running || state == JobState::suspended ||
         state == JobState::completing;
}

bool is_final(JobState state) { return state != JobState::pending && !is_active(state); }

bool may_change(JobState from, JobState to) {
  switch (from) {
    case JobState::pending:
      // Without having run: cancelled, past its deadline, or impossible by now.
      return to == JobState::running || to == JobState::cancelled || to == JobState::deadline ||
             to == JobState::failed;
    case JobState::running:
    case JobState::suspended:
      return to != from;
    case JobState::completing:
      return to == JobState::pending || is_final(to);
    default:
      return to == JobState::pending;  // requeue
  }
}

}  // namespace aliquot::core
