// Who holds what: every grant of every job, on one Cluster. The only place that grants, releases
// and resizes. A failed call changes nothing. It stores nothing: engines and the simulator do.
#pragma once

#include <unordered_map>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "core/cluster.hpp"

namespace aliquot::core {

class Ledger {
 public:
  explicit Ledger(Cluster cluster) : cluster_(std::move(cluster)) {}

  [[nodiscard]] const Cluster& cluster() const { return cluster_; }
  // For what is no grant: samples, health, new nodes.
  [[nodiscard]] Cluster& cluster() { return cluster_; }

  // A job holds at most one grant.
  Result<void> grant(JobId job, Use use);
  // For a job that runs already, even if the machine has become smaller: Cluster::take_up().
  Result<void> take_up(JobId job, Use use);
  Result<Use> release(JobId job);
  // All or nothing: the job keeps what it had when the new use does not fit. So far only the
  // simulator's shell resizes jobs.
  Result<void> resize(JobId job, Use use);

  [[nodiscard]] const Use* find(JobId job) const;
  [[nodiscard]] std::size_t size() const { return grants_.size(); }
  [[nodiscard]] std::vector<JobId> jobs() const;  // ascending
  [[nodiscard]] std::vector<JobId> jobs_on(NodeIndex node, GpuIndex gpu) const;

 private:
  Cluster cluster_;
  std::unordered_map<JobId, Use> grants_;
};

}  // namespace aliquot::core
