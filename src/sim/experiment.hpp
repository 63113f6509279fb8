// Many replays: every policy with every seed, on some threads, and what they come to. The results
// do not depend on the number of threads, except the speed and the memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "sim/replay.hpp"
#include "sim/workload.hpp"

namespace aliquot::sim {

struct Plan {
  std::vector<std::string> policies;
  std::vector<std::uint64_t> seeds;
  Draw draw = Draw::own;       // what a seed means
  std::int64_t arrived = 130;  // percent
  unsigned jobs = 1;           // threads
};

struct PointSummary {
  std::int64_t arrived = 0;
  double mean = 0;
  double deviation = 0;  // of a sample, over the seeds; 0 for one seed
};

struct PolicySummary {
  std::string policy;
  std::vector<PointSummary> points = {};
  std::vector<ReplayResult> replays;  // one for each seed of the plan
  std::int64_t decisions = 0;
  std::int64_t placed = 0;
  std::int64_t cpu_ns = 0;
  [[nodiscard]] double decisions_per_second() const;
};

struct Outcome {
  bool stopped = false;  // before the end: there are no policies then
  std::vector<PolicySummary> policies;
  std::int64_t peak_memory_bytes = 0;  // of the whole process
};

// `watch` is called from the calling thread again and again while the replays run, with what is
// done in 1/1000; it must wait a little itself. False stops the replays.
using Watch = std::function<bool(std::int64_t done_per_mille)>;

Result<Outcome> run_plan(const Workload& workload, const Plan& plan, const Watch& watch);

struct PolicyName {
  std::string name;
  std::string summary;
};
// All policies of the core, the default first.
std::vector<PolicyName> known_policies();

// `fgd`, `fgd,best-fit` or `all`; a name that is not there gets the nearest one suggested.
Result<std::vector<std::string>> parse_policies(std::string_view text);

}  // namespace aliquot::sim
