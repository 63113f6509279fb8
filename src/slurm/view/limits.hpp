// How many GPUs the caller may hold, from the limits of its QOS: `MaxTRESPerUser=gres/gpu=4`, the
// same in shards, or in billing. Slurm counts each of these by itself: only billing counts shares
// and whole GPUs together, and shards where whole GPUs are booked as shards. Pure: from what
// sacctmgr prints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.hpp"
#include "slurm/billing.hpp"
#include "slurm/site_settings.hpp"
#include "slurm/view/snapshot.hpp"

namespace aliquot::slurm {

// What a GPU is worth in the other currencies; 0: unknown.
struct GpuWorth {
  std::int64_t shards = 0;
  GpuBill bill = {};
  bool whole_as_shards = false;  // whole GPUs are booked as shards (SiteTable)
};

// By the largest GPU, and by the default partition's weights.
GpuWorth gpu_worth(const Snapshot& snapshot, const SiteSettings& settings);

struct GpuLimit {
  std::optional<std::int64_t> most = {};  // of all together, in 1/10,000 of a GPU
  std::string partial = {};  // a limit that counts a part only: "gres/gpu=4 of QOS lab counts …"
};

// qos_lines: `sacctmgr -nP show qos format=Name,MaxTRESPU`.
GpuLimit gpu_limit(std::string_view qos_lines, std::string_view qos, const GpuWorth& worth);

// What this user's jobs count against that, as they are booked and billed: where a partition
// promises more compute than its GPUs have, jobs are promised more together.
std::int64_t gpus_counted(const Snapshot& snapshot, std::string_view qos, std::uint32_t uid,
                          const GpuWorth& worth);

// That the job takes more than its QOS, or its partition's, gives to one user: "It takes 4 GPUs, as
// its nodes are its own, and its QOS 'lab' gives 2 to one user"; empty: it does not. qos_lines as
// above.
std::string never_allowed(std::string_view qos_lines, const Snapshot& snapshot,
                          const SiteSettings& settings, const SlurmJob& job);

// In GPUs: `4`, `1.5`.
std::string limit_text(std::int64_t limit);

// Limits on gres/gpu that shares, or whole GPUs, get around, each with the command that sets one
// that counts both. qos_lines: format=Name,MaxTRESPU,MaxTRESPA,GrpTRES,MaxTRES; association_lines:
// `show assoc format=Account,User,GrpTRES,MaxTRES`.
std::vector<Check> check_limits(std::string_view qos_lines, std::string_view association_lines,
                                const GpuWorth& worth);

}  // namespace aliquot::slurm
