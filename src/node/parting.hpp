// Signals for the processes of a job that may be clients of MPS. Before one that ends them reaches
// them they are parted from their server (gpu/mps_pipe.hpp), so that their neighbours live on; who
// catches, ignores or blocks the signal is left alone and keeps its grace. For who signals a whole
// group, the parting alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gpu/mps_pipe.hpp"
#include "node/process.hpp"

namespace aliquot::node {

// Whether this signal would end the process: by its number, and by what the process does about it.
bool dies_of(Pid pid, int signal);

// Those of them that die of the signal. Where there is no MPS nothing happens. What was not as it
// should be, in one line; empty: all was.
std::string part(const std::optional<gpu::MpsPipe>& mps, const std::vector<ProcessRef>& processes,
                 int signal, const gpu::MpsPatience& patience = {});
// The same, and then the signal.
std::string signal_parted(const std::optional<gpu::MpsPipe>& mps,
                          const std::vector<ProcessRef>& processes, int signal,
                          const gpu::MpsPatience& patience = {});

}  // namespace aliquot::node
