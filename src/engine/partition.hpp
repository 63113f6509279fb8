// A partition of the machine: who may use it, which GPUs its jobs may have, for how long, and
// before whom. How it is written in the settings is here, too; what it means for a job is
// Admission's and Queue's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/slurm_time.hpp"
#include "base/time.hpp"

namespace aliquot {
class TomlPlace;
}

namespace aliquot::engine {

// What becomes of a partition's jobs where those of a higher tier need their room.
enum class PreemptMode : std::uint8_t { off, requeue, cancel };
// As Slurm writes it: OFF, REQUEUE, CANCEL.
std::string_view to_string(PreemptMode mode);
std::optional<PreemptMode> parse_preempt_mode(std::string_view word);

struct Partition {
  std::string name = "main";
  bool is_default = true;
  bool up = true;
  TimeLimit max_time = kUnlimited;
  // For jobs that say none; absent: the shorter one of jobs.default_time and max_time.
  std::optional<TimeLimit> own_default_time = {};
  TimeLimit default_time = {hours(24)};  // what follows; never over max_time
  // Who may use it, by name; with both empty everybody.
  std::vector<std::string> users = {};
  std::vector<std::string> groups = {};
  std::vector<std::int64_t> gpus = {};         // the only ones, as nvidia-smi counts; empty: all
  std::optional<std::int64_t> gpu_count = {};  // so many of them at once
  std::string qos = {};                        // whose limits are its jobs', beside their own
  std::int64_t tier = 1;        // jobs of a higher one start first: Slurm's PriorityTier
  std::int64_t job_factor = 1;  // of all partitions', in a priority: PriorityJobFactor

  PreemptMode preempt = PreemptMode::off;
  Millis grace = {};  // so long they have to end by themselves

  friend bool operator==(const Partition&, const Partition&) = default;
};

bool is_longer(const TimeLimit& a, const TimeLimit& b);

// Without settings: one for everybody's jobs, and one whose jobs come after all those.
std::vector<Partition> usual_partitions();

// `[partition.NAME]`, or `[[partition]]` with `name`: in the order of the file.
Result<std::vector<Partition>> read_partitions(const TomlPlace& place);

}  // namespace aliquot::engine
