// Signals for the processes of a job that may be clients of MPS. Before a signal ends a process,
// the process is parted from its server (gpu/mps_pipe.hpp), so that its neighbours live on. A
// process that catches, ignores or blocks the signal is not parted: it may go on for a while.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gpu/mps_pipe.hpp"
#include "node/process_tree.hpp"

namespace aliquot::node {

// Whether this signal would end the process: by its number, and by what the process does about it.
bool dies_of(Pid pid, int signal);

// Parts those that would die of the signal. Without an MPS server it does nothing. Returns a
// complaint of one line; empty: all went well.
std::string part(const std::optional<gpu::MpsPipe>& mps,
                 const std::vector<sys::ProcessRef>& processes, int signal,
                 const gpu::MpsPatience& patience = {});
// The same, and then sends the signal.
std::string signal_parted(const std::optional<gpu::MpsPipe>& mps,
                          const std::vector<sys::ProcessRef>& processes, int signal,
                          const gpu::MpsPatience& patience = {});

}  // namespace aliquot::node
