// The samples of a node as the balancer writes them into the node's `extra` field, where everyone
// may read them (`scontrol show node`, `aliquot gpus`): `aliquot:0=35%/12000M/143771M,1=…`, GPU by
// GPU the utilisation, the memory in use and all of it. `aliquot:?` is a node that says nothing. A
// site's own text in that field is left alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.hpp"
#include "slurm/samples.hpp"

namespace aliquot::slurm {

inline constexpr std::string_view kExtraMark = "aliquot:";
inline constexpr std::string_view kExtraStale = "aliquot:?";

struct ExtraGpu {
  std::int64_t index = 0;
  std::int64_t percent = 0;
  std::int64_t used_mib = 0;
  std::int64_t memory_mib = 0;
  friend bool operator==(const ExtraGpu&, const ExtraGpu&) = default;
};

std::string format_extra(const std::vector<GpuLoad>& gpus);
// Nothing: not ours, stale, or spoilt.
std::optional<std::vector<ExtraGpu>> parse_extra(std::string_view text);

// Whether the field is ours to write: empty, or written by us.
bool extra_is_ours(std::string_view text);
// Whether people should be told: 5 points, 256 MiB, or to or from nothing at all.
bool extra_differs(std::string_view before, std::string_view after);

}  // namespace aliquot::slurm
