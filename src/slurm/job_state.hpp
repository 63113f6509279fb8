// What Slurm's words for a job's state say of its GPUs.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace aliquot::slurm {

// Its processes are on its nodes.
inline bool is_on_its_nodes(std::string_view state) {
  constexpr std::array<std::string_view, 7> kStates = {
      "RUNNING", "SUSPENDED", "CONFIGURING", "STOPPED", "SIGNALING", "RESIZING", "STAGE_OUT"};
  return std::ranges::find(kStates, state) != kStates.end();
}

// Nobody else can have its GPUs: also while it is being ended.
inline bool holds_gpus(std::string_view state) {
  return state == "COMPLETING" || is_on_its_nodes(state);
}

}  // namespace aliquot::slurm
