// What is going on in the daemon and in running jobs, for those who look closer: sdiag and sstat.
// Absent optionals and added fields as in types.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace aliquot::api {

// The processes of a job that runs, as the kernel has them now, and what the library has measured
// in it.
struct StepProcesses {
  std::string id;  // "batch", "0", …
  std::vector<std::int64_t> pids;
};
struct RunningProcesses {
  std::vector<StepProcesses> steps;
  std::optional<std::int64_t> gpu_ms = {};
  std::optional<std::int64_t> gpu_memory_peak = {};
};

// Requests of one kind, and of one user. Times are in microseconds.
struct RequestCount {
  std::string name;  // "POST jobs"
  std::int64_t count = 0;
  std::int64_t total_us = 0;
};
struct UserRequests {
  std::string user;
  std::uint32_t uid = 0;
  std::int64_t count = 0;
  std::int64_t total_us = 0;
};

// What the daemon did since it was started, or since root had it count anew.
struct Statistics {
  std::int64_t now_ms = 0;
  std::int64_t since_ms = 0;
  std::int64_t submitted = 0;
  std::int64_t started = 0;
  std::int64_t completed = 0;
  std::int64_t canceled = 0;
  std::int64_t failed = 0;
  std::int64_t pending = 0;
  std::int64_t running = 0;
  std::int64_t cycles = 0;
  std::int64_t cycle_last_us = 0;
  std::int64_t cycle_max_us = 0;
  std::int64_t cycle_total_us = 0;
  std::int64_t depth_total = 0;  // jobs that could have started, of all cycles
  std::int64_t queue_last = 0;   // and of the last one
  std::int64_t backfilled = 0;   // started while one before them waited for room
  std::vector<RequestCount> requests = {};
  std::vector<UserRequests> users = {};
};

}  // namespace aliquot::api
