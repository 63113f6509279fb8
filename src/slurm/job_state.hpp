// What Slurm's words for a job's state say of its GPUs, and what its time limit is.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "slurm/client.hpp"

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

// Jobs without a limit have a year, for Slurm's planning.
inline std::optional<std::int64_t> time_limit_of(const SlurmJob& job) {
  constexpr std::int64_t kYear = 365LL * 24 * 60 * 60;
  return job.time_limit_s && *job.time_limit_s < kYear ? job.time_limit_s : std::nullopt;
}

}  // namespace aliquot::slurm
