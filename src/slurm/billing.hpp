// What GPUs and shares are billed, so that one limit counts both: the weights that setup gives to
// partitions, and what a limit in billing is in GPUs. A shard is billed as a thousand CPUs: CPUs
// stay billed as they were, and a user's CPUs, fewer than a thousand, never fill the place of a
// shard. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace aliquot::slurm {

inline constexpr std::int64_t kShardBill = 1'000;

// What TRESBillingWeights says of them; 0: nothing.
struct GpuBill {
  std::int64_t gpu = 0;
  std::int64_t shard = 0;
  friend bool operator==(const GpuBill&, const GpuBill&) = default;
};
GpuBill gpu_bill(std::string_view weights);

// Whether a GPU of so many shards is billed as all of them, to a hundredth.
bool bills_alike(std::string_view weights, std::int64_t shards);

// The site's weights with ours for a GPU of so many shards; without any Slurm bills a CPU as 1, and
// so do we. Nothing: the site has weights of its own for GPUs.
std::optional<std::string> with_gpu_weights(std::string_view weights, std::int64_t shards);

// `MaxTRESPerUser=billing=…` for so many GPUs of the bill; CPUs fit beside them.
std::int64_t billing_limit(std::int64_t gpus, const GpuBill& bill);

}  // namespace aliquot::slurm
