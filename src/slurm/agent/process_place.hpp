// To which job, and which of its steps, a process on this node belongs: by the cgroup's name, which
// is Slurm's (v1 and v2), or by the slurmstepd among its ancestors. Nothing of the job's own
// counts.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.hpp"
#include "node/monitor.hpp"

namespace aliquot::slurm {

struct Place {
  JobId job;
  std::optional<std::int64_t> step = {};  // none: a script, or what came in by ssh
};
std::optional<Place> place_of(Pid pid);

// The holder of a process among these, which must live as long: a step that has a part of its own,
// else its job, whether or not that is one of them.
node::FencedJob holders_among(const std::vector<node::RunningJob>& running);

}  // namespace aliquot::slurm
