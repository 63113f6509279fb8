// How many GPUs a user may hold at once, as far as a QOS says so: `MaxTRESPerUser=gres/gpu=4`, the
// same in shards, or in billing. Pure: from what sacctmgr prints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace aliquot::slurm {

// What a GPU is worth in the other currencies; 0: unknown.
struct GpuWorth {
  std::int64_t shards = 0;
  std::int64_t billing = 0;
};

// `GRES/gpu=120,GRES/shard=1` -> 120.
std::int64_t gpu_billing(std::string_view billing_weights);

// qos_lines: `sacctmgr -nP show qos format=Name,MaxTRESPU`. In 1/10,000 of a GPU.
std::optional<std::int64_t> gpu_limit(std::string_view qos_lines, std::string_view qos,
                                      const GpuWorth& worth);

}  // namespace aliquot::slurm
