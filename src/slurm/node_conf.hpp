// What the daemons of a node read of Slurm's own files.
#pragma once

#include "base/result.hpp"
#include "slurm/settings.hpp"
#include "slurm/site.hpp"

namespace aliquot::slurm {

// The keys of slurm.conf; where there is none, of the one that slurmd has fetched.
Result<Site> read_node_conf(const Settings& settings);

// Whether all that a job's tasks start is in a control group whose name says which job it is.
// `read` gives cgroup.conf, which lies beside.
bool makes_groups(const Site& slurm_conf, const ReadFile& read);

}  // namespace aliquot::slurm
