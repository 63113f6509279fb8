// A job of ours or of Slurm's as the node holds it: the one way from what the API shows of a job to
// a grant, and back from its holder to the job.
#pragma once

#include <optional>

#include "api/types.hpp"
#include "base/ids.hpp"
#include "core/grant.hpp"

namespace aliquot::node {

core::Grant grant_of(const api::JobInfo& job);
// Nothing: the holder is no job.
std::optional<JobId> job_of(const HolderId& holder);

}  // namespace aliquot::node
