// A trace as the core sees it: nodes with GPUs, and pods as requests. The pods of one kind share
// one request; the kinds with their frequencies are the profile that policies learn from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "core/device.hpp"
#include "core/profile.hpp"
#include "core/request.hpp"
#include "sim/trace.hpp"

namespace aliquot::sim {

struct Workload {
  std::string nodes_name;  // what reports call them: files, or `synthetic`
  std::string pods_name;
  std::vector<core::Node> nodes;
  std::int64_t gpus = 0;

  struct Kind {
    core::Request request;
    std::int64_t milli = 0;  // of GPUs, over all of them
  };
  std::vector<Kind> kinds;
  std::vector<std::uint32_t> pods;  // the kind of each, in the trace's order
  core::Profile profile;            // by frequency, ties in the order of the trace
};

// `scale` copies of every node, with names of their own, and of every pod. Models in a pod's list
// that no node has are dropped, unless none is left: such a pod can run nowhere.
// Refuses traces without GPUs or without pods that want one.
Result<Workload> make_workload(const std::vector<TraceNode>& nodes,
                               const std::vector<TracePod>& pods, std::int64_t scale,
                               Compute compute_limit);

}  // namespace aliquot::sim
