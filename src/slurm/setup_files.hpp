// Reading and writing a site's files as root: a path is used only where nobody but root and Slurm's
// own user could have put something else there; a file is replaced whole or not at all, and what it
// was before is kept beside it.
#pragma once

#include <string>

#include "base/result.hpp"
#include "slurm/setup.hpp"

namespace aliquot::slurm {

// For plan_setup and plan_undo. Links are followed; a missing file is not_found.
Result<std::string> read_conf_file(const std::string& path);

// Whether every folder on the way, and the file, belong to root (or `slurm_user`, or ourselves) and
// cannot be written by others.
Result<void> check_path(const std::string& path, const std::string& slurm_user);

// All of the plan, each file atomically; before, what is replaced is copied to `backups`/TIME/.
// Returns that folder.
Result<std::string> apply_plan(const SetupPlan& plan, const std::string& backups,
                               const std::string& slurm_user);

}  // namespace aliquot::slurm
