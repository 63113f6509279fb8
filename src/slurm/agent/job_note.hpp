// What the agent remembers of a job on disk, one file for each job, so that an agent that was
// killed takes its jobs up again: what the job holds, how it is held, its mark and its steps. Text
// in and out; the agent reads and writes the files.
//
// The first line is the mark, then one line for each step ("pid start-time"), then the grant as
// JSON in the words of our API. A line "unchecked": slurmctld has not confirmed it yet; a line
// "booked N": so many shards; a line "used N N N": what was used so far; a
// line "partition NAME". Notes of earlier versions
// read the same.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "core/grant.hpp"
#include "slurm/admin_comment.hpp"
#include "sys/process.hpp"

namespace aliquot::slurm {

struct JobNote {
  core::Grant grant;
  std::string enforcement = {};  // how it is held, in words; core::kNotHeld: not at all
  std::string mark = {};         // in the environment of its processes
  std::set<sys::ProcessRef> steps = {};
  std::int64_t booked = 0;     // shards here; 0: that is not known
  std::string partition = {};  // what shards are there may differ; empty: not known
  std::string name = {};       // to be shown, as the account; empty: not known
  std::string account = {};
  std::int64_t start_s = 0;  // since the epoch; 0: not known
  std::optional<std::int64_t> time_limit_s = {};
  Used seen = {};  // from outside; the library in the job knows better
  // GPU time of steps that had a part of their own, and are over.
  Millis in_parts = Millis(0);
  bool checked = true;  // by slurmctld's word; else by what slurmstepd was told
};

std::string format_note(const JobNote& note);
// Nothing: it is not whole, as after a crash while it was written.
std::optional<JobNote> parse_note(std::string_view text);

}  // namespace aliquot::slurm
