// What `aliquot slurm setup` tells people around its plan: the changes as they are read, what must
// be restarted for them, and whom an undo hits. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "slurm/client.hpp"
#include "slurm/setup.hpp"

namespace aliquot::slurm {

// The plan as a patch. Of aliquot_submit.lua only the site's table, unless `all`: the code behind
// it is the same everywhere.
std::string preview(const SetupPlan& plan, bool all);

// What to do once the files are written, as sentences.
std::string what_to_restart(const SetupPlan& plan);

// What an undo does to the jobs that are there; nothing where there are none with a part of a GPU.
std::optional<std::string> hit_by_undo(const std::vector<SlurmJob>& jobs);

}  // namespace aliquot::slurm
