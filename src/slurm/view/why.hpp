// Why a job waits under Slurm, in sentences: Slurm's one word for it, turned into ours, and, where
// it is about GPUs, which of them could hold the job and what is missing on each, by the same words
// as on the embedded engine (core/explain). Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/types.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "slurm/view/snapshot.hpp"

namespace aliquot::slurm {

// `7`, `7_3`, or `last`: the newest of this user.
Result<SlurmJob> find_job(const Snapshot& snapshot, std::string_view id, std::uint32_t uid);

// too_much: that the job wants more than its limits can ever give it (never_allowed, limits.hpp).
api::WhyInfo why_info(const Snapshot& snapshot, const SiteSettings& settings, const SlurmJob& job,
                      WallTime now, const std::string& too_much = {});

// Slurm's word as a sentence, `Resources` and the like; empty where the GPUs tell more.
std::string reason_sentence(const Snapshot& snapshot, const SlurmJob& job,
                            const std::string& too_much = {});

}  // namespace aliquot::slurm
