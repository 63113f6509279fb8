// Who holds what: every grant of every job, on one Cluster. The only place that grants, releases
// and resizes. A failed call changes nothing. The text form is what an engine stores and reads
// back.
#pragma once

#include <string>
#include <string_view>
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
  // Of a job that runs already, whether or not the machine still has it: Cluster::take_up().
  Result<void> take_up(JobId job, Use use);
  Result<Use> release(JobId job);
  // All or nothing: the job keeps what it had when the new use does not fit.
  Result<void> resize(JobId job, Use use);

  [[nodiscard]] const Use* find(JobId job) const;
  [[nodiscard]] std::size_t size() const { return grants_.size(); }
  [[nodiscard]] std::vector<JobId> jobs() const;  // ascending
  [[nodiscard]] std::vector<JobId> jobs_on(NodeIndex node, GpuIndex gpu) const;

  // One line a grant, by names and UUIDs, so that it outlives a change in the order of the nodes:
  //   job 7 node n1 cpus 2000 memory 1073741824 share GPU-… 8589934592 2500 whole GPU-…
  [[nodiscard]] std::string serialise() const;
  // Grants everything in `text` on `cluster`, which holds nothing yet.
  static Result<Ledger> restore(Cluster cluster, std::string_view text);

 private:
  Cluster cluster_;
  std::unordered_map<JobId, Use> grants_;
};

}  // namespace aliquot::core
