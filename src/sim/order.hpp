// In which order a seed lets pods arrive, and nodes stand: ties between nodes go to the first. Our
// own draw is plain; the published one is that of the simulator that published results come from
// (hkust-adsl/kubernetes-scheduler-simulator), draw for draw, so that results can be held against
// them seed by seed, without the noise of another order.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "sim/workload.hpp"

namespace aliquot::sim {

enum class Draw { own, published };

std::string_view to_string(Draw draw);
Result<Draw> parse_draw(std::string_view text);

struct Order {
  std::vector<std::uint32_t> nodes;     // indices into the workload's
  std::vector<std::uint32_t> arrivals;  // the kinds of the pods that arrive
};

// Every pod of the list once; then pods drawn from it, until `arrived` percent of the GPUs have
// been asked for. Longer lists end there.
Order draw_order(const Workload& workload, Draw draw, std::uint64_t seed, std::int64_t arrived);

}  // namespace aliquot::sim
