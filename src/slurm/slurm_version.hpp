// Versions of Slurm, and those from which on it does what we then need not do.
#pragma once

#include <compare>

namespace aliquot::slurm {

struct SlurmVersion {
  int major = 0;
  int minor = 0;
  int patch = 0;
  friend auto operator<=>(const SlurmVersion&, const SlurmVersion&) = default;
};

// The first with gres/shard.
inline constexpr SlurmVersion kOldest{22, 5, 0};
// The first Slurm that never puts a whole-GPU job on a GPU that holds shards.
inline constexpr SlurmVersion kMixingFixed{23, 11, 5};
// The first with SelectTypeParameters=LL_SHARED_GRES.
inline constexpr SlurmVersion kSpreadsShards{23, 11, 0};

}  // namespace aliquot::slurm
