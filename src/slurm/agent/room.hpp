// Whether what Slurm has given away is there: slurmctld counts what it has booked, and knows
// nothing of a GPU that broke or of memory that processes of no job hold. A share that finds no
// room is not started, and while that is so the node takes no jobs: Slurm can take no single GPU
// out, and would send the next job to the same place. One thread at a time.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/units.hpp"
#include "core/grant.hpp"
#include "node/monitor.hpp"
#include "slurm/slurm_grant.hpp"

namespace aliquot::slurm {

class Room {
 public:
  // What jobs hold of each GPU, by their grants.
  using Granted = std::map<GpuId, Bytes>;

  Room(const NodeGpus& node, const Clock& clock) : node_(node), clock_(clock) {}

  // What was just seen of the GPUs.
  void observe(const std::vector<node::GpuView>& views, const Granted& granted);
  // For a job that is to start, beside the others. An error is the node's.
  Result<void> check(const core::Grant& grant, const Granted& others);

  // Whether a GPU is broken, or a job did not find what it was given.
  [[nodiscard]] bool closed() const { return !broken_.empty() || !wanted_.empty(); }
  // Why jobs are to be kept away, the same words while it is the same; empty: they need not.
  [[nodiscard]] std::string keep_away() const;

 private:
  struct Wanted {
    Bytes memory;  // the least that was not there
    MonoTime since;
  };

  [[nodiscard]] std::int64_t number_of(const GpuId& gpu) const;
  // Processes of no job that hold less than a shard are nobody's trouble.
  [[nodiscard]] Bytes foreign_on(const GpuId& gpu) const;
  [[nodiscard]] Bytes free_on(const GpuId& gpu, const Granted& granted) const;

  const NodeGpus& node_;
  const Clock& clock_;
  std::map<GpuId, std::string> broken_;
  std::map<GpuId, Bytes> foreign_;
  std::map<GpuId, Wanted> wanted_;
};

}  // namespace aliquot::slurm
