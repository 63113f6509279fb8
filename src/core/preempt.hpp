// Which running jobs make room for waiting ones of a higher tier: as few as will do, and of these
// those that lose least. Pure: a snapshot and a decision of schedule() in, victims out.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/schedule.hpp"

namespace aliquot::core {

// A job that runs and may be asked to go.
struct Candidate {
  JobId job;
  Use use;
  std::int64_t tier = 0;
  std::int64_t loss = 0;  // of work, in any one unit
};

// The positions of those that have to go so that `shape` fits, or nothing where that is not enough.
// Fewest first, then least loss together: exact while there are few combinations to try, and no
// member of the answer is ever superfluous.
std::optional<std::vector<std::size_t>> choose_victims(const Cluster& cluster, const Shape& shape,
                                                       std::span<const Candidate> candidates);

struct Eviction {
  JobId victim;
  JobId by;
};

// Who has to go for what schedule() left waiting for room. `ending` are uses that are being given
// up already: whoever fits into them needs nobody else to go. `cluster` is as schedule() got it.
std::vector<Eviction> plan_evictions(const Cluster& cluster, std::span<const QueueEntry> queue,
                                     const Decision& decision, std::span<const Use> ending,
                                     std::vector<Candidate> candidates, Policy& policy);

}  // namespace aliquot::core
