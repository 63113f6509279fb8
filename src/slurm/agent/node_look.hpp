// This node as Prometheus and the page are shown it: what its GPUs do, and which jobs hold what of
// them. Of jobs that wait, and of other nodes, the agent knows nothing. Belongs to the agent's
// worker.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/types.hpp"
#include "base/clock.hpp"
#include "node/enforcer.hpp"
#include "node/monitor.hpp"
#include "node/share_meter.hpp"
#include "show/gpu_metrics.hpp"
#include "slurm/agent/agent.hpp"
#include "slurm/agent/user_names.hpp"
#include "slurm/slurm_grant.hpp"

namespace aliquot::slurm {

class NodeLook {
 public:
  struct Parts {
    const Agent& agent;
    node::Enforcer& enforcer;
    const NodeGpus& node;
    const UserNames& names;
    const Clock& clock;
    std::string driver = {};  // its version
  };
  explicit NodeLook(Parts parts) : parts_(std::move(parts)) {}

  // What was just seen of the GPUs; nothing: it could not be seen, and what was seen before is old.
  void observe(std::optional<std::vector<node::GpuView>> views);

  [[nodiscard]] api::Overview overview() const;
  [[nodiscard]] std::string metrics(const show::Detail& detail) const;

 private:
  [[nodiscard]] api::NodeInfo node() const;
  [[nodiscard]] api::JobInfo job(const JobNote& note, api::NodeInfo& node) const;
  void add_uses(api::NodeInfo& node) const;

  const Parts parts_;
  std::vector<node::GpuView> views_;
  node::ShareMeter meter_;
  std::vector<node::ShareUse> uses_;
  MonoTime metered_ = {};
  bool stale_ = false;
};

}  // namespace aliquot::slurm
