#include "slurm/view/limits.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "slurm/view/snapshot.hpp"

namespace aliquot::slurm {

std::int64_t gpu_billing(std::string_view billing_weights) {
  for (const auto part : split(billing_weights, ',')) {
    const auto equals = part.find('=');
    if (equals == part.npos || !equals_ignoring_case(part.substr(0, equals), "gres/gpu")) continue;
    return parse_decimal(part.substr(equals + 1), 1).value_or(0);
  }
  return 0;
}

std::optional<std::int64_t> gpu_limit(std::string_view qos_lines, std::string_view qos,
                                      const GpuWorth& worth) {
  constexpr std::int64_t kWhole = 10'000;
  for (const auto line : split(qos_lines, '\n')) {
    const auto bar = line.find('|');
    if (bar == line.npos || line.substr(0, bar) != qos) continue;
    const auto limits = line.substr(bar + 1);
    std::optional<std::int64_t> least;
    const auto take = [&](std::int64_t count, std::int64_t each) {
      if (count <= 0 || each <= 0 || count > 1'000'000'000) return;
      const auto gpus = count * kWhole / each;
      least = least ? std::min(*least, gpus) : gpus;
    };
    take(tres_count(limits, "gres/gpu"), 1);
    take(tres_count(limits, "gres/shard"), worth.shards);
    take(tres_count(limits, "billing"), worth.billing);
    return least;
  }
  return std::nullopt;
}

}  // namespace aliquot::slurm
