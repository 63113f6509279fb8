// Names of the files of a job and of its steps: Slurm's patterns with % filled in. Text only; those
// of a batch script are opened by stepd, those of a step by srun.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/ids.hpp"

namespace aliquot {

struct PatternValues {
  JobId job;
  std::optional<std::int64_t> array_job = {};   // %A; absent: the job itself
  std::optional<std::int64_t> array_task = {};  // %a
  std::string job_name = {};                    // %x
  std::string user = {};                        // %u
  std::string host = {};                        // %N, up to the first dot
  std::optional<std::int64_t> step = {};        // %s; absent: "batch"
  std::int64_t task = 0;                        // %t
  std::int64_t restarts = 0;                    // %r
};

// %% %A %a %J %j %N %n %s %t %u %x, and of a batch script %b and %r; a number behind the % fills
// numbers up with zeros, to ten digits at most. What is none of these stays as it is. A backslash
// anywhere turns all of it off, and is dropped. A job's name leads no step into another folder: its
// slashes are underscores there.
std::string expand_pattern(std::string_view pattern, const PatternValues& values);

// slurm-%j.out, for arrays slurm-%A_%a.out.
std::string_view default_output_pattern(bool array);

// The path under work_dir, unless it is absolute already.
std::string resolve_path(std::string_view path, std::string_view work_dir);

}  // namespace aliquot
