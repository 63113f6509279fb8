// What settings of shares amount to, apart from how they are read.
#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "slurm/site_settings.hpp"

namespace aliquot::slurm {

ShareSettings ShareSettings::in(std::string_view names) const {
  ShareSettings result = *this;
  result.by_partition.clear();
  bool first = true;
  for (const auto name : split(names, ',')) {
    ShareSettings own = *this;
    if (const auto found = by_partition.find(name); found != by_partition.end()) {
      const PartitionShare& share = found->second;
      if (share.overcommit) own.overcommit = *share.overcommit;
      if (share.mps_per_gpu) own.mps_per_gpu = *share.mps_per_gpu;
      if (share.shards_per_gpu) own.shards_per_gpu = *share.shards_per_gpu;
    }
    const bool others = !std::exchange(first, false);
    result.overcommit = others ? std::min(result.overcommit, own.overcommit) : own.overcommit;
    result.mps_per_gpu = others ? std::max(result.mps_per_gpu, own.mps_per_gpu) : own.mps_per_gpu;
    result.shards_per_gpu =
        others ? std::max(result.shards_per_gpu, own.shards_per_gpu) : own.shards_per_gpu;
  }
  return result;
}

Compute ShareSettings::most_compute(const std::vector<std::string>& of) const {
  if (of.empty()) return overcommit;
  Compute most = Compute(0);
  for (const auto& name : of) most = std::max(most, in(name).overcommit);
  return most;
}

Compute ShareSettings::most_compute() const {
  Compute most = overcommit;
  for (const auto& [name, own] : by_partition) {
    if (own.overcommit) most = std::max(most, *own.overcommit);
  }
  return most;
}

}  // namespace aliquot::slurm
