// Everything that the agent asks slurmctld and tells it. slurmctld may take its time, or not answer
// at all: this belongs to a thread of its own, and the agent goes on without it (agent.hpp).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "slurm/admin_comment.hpp"
#include "slurm/agent/own_drain.hpp"
#include "slurm/agent/remarks.hpp"
#include "slurm/client.hpp"
#include "slurm/slurm_grant.hpp"

namespace aliquot::slurm {

// What the agent has to tell.
struct News {
  std::vector<std::pair<JobId, Remark>> remarks = {};
  std::vector<std::pair<JobId, Used>> used = {};
  std::string keep_away = {};  // why jobs are to go elsewhere; empty: they need not
  bool fit = false;            // a share could be held here
};

class Liaison {
 public:
  // node must live as long.
  Liaison(SlurmClient& slurm, const NodeGpus& node, Clock& clock);

  // not_found where Slurm knows it no more; unavailable where slurmctld does not answer.
  Result<SlurmJob> job(JobId id) { return slurm_.job(id); }
  void tell(const News& news);
  // What a job has used, of those that tell() was given. Whether there are more.
  bool note_use() { return remarks_.note_use(); }
  [[nodiscard]] bool owes(JobId job) const { return remarks_.owes(job); }
  // A share could not be held here.
  void trouble() { drain_.trouble(); }
  // A step that had no answer has drained the node.
  void node_was_drained() { drain_.look_soon(); }

 private:
  SlurmClient& slurm_;
  Remarks remarks_;
  OwnDrain drain_;
};

}  // namespace aliquot::slurm
