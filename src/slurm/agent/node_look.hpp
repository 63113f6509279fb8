// This node as Prometheus and the page are shown it: what its GPUs do, and which jobs hold what of
// them. Of jobs that wait, and of other nodes, the agent knows nothing. Belongs to the agent's
// worker, but for learn().
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "api/types.hpp"
#include "base/clock.hpp"
#include "node/enforcer.hpp"
#include "node/monitor.hpp"
#include "node/share_meter.hpp"
#include "show/gpu_metrics.hpp"
#include "slurm/agent/agent.hpp"
#include "slurm/slurm_grant.hpp"

namespace aliquot::slurm {

class NodeLook {
 public:
  struct Parts {
    const Agent& agent;
    node::Enforcer& enforcer;
    const NodeGpus& node;
    const Clock& clock;
    std::string driver = {};  // its version
  };
  explicit NodeLook(Parts parts) : parts_(std::move(parts)) {}

  // The names of those whose jobs these are. On a worker that may wait: the user database may ask
  // the network.
  void learn(const std::vector<node::RunningJob>& running);
  // What was just seen of the GPUs.
  void observe(std::vector<node::GpuView> views);

  [[nodiscard]] api::Overview overview() const;
  [[nodiscard]] std::string metrics(const show::Detail& detail) const;

 private:
  [[nodiscard]] api::NodeInfo node() const;
  [[nodiscard]] api::JobInfo job(const JobNote& note, api::NodeInfo& node) const;
  void add_uses(api::NodeInfo& node) const;
  [[nodiscard]] std::string name_of(Uid uid) const;

  const Parts parts_;
  std::vector<node::GpuView> views_;
  node::ShareMeter meter_;
  std::vector<node::ShareUse> uses_;
  MonoTime metered_ = {};
  mutable std::mutex mutex_;  // of what follows
  std::map<Uid, std::string> names_;
};

}  // namespace aliquot::slurm
