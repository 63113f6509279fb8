// Writes what the agent has to say of jobs into their admin comments, where everybody finds it
// (slurm/admin_comment.hpp). While slurmctld does not answer it is kept for later, and slurmctld is
// left alone for a while: each question may take as long as it likes. One thread at a time.
#pragma once

#include <set>
#include <string>
#include <utility>

#include "base/clock.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "slurm/admin_comment.hpp"
#include "slurm/client.hpp"

namespace aliquot::slurm {

class Remarks {
 public:
  Remarks(SlurmClient& slurm, std::string node, const Clock& clock)
      : slurm_(slurm), node_(std::move(node)), clock_(clock) {}

  void tell(JobId job, Remark remark);
  // What it has used so far. Now or never, as after its end there is nobody to tell; and not while
  // slurmctld is slow.
  void tell_used(JobId job, const Used& used);
  // Those that slurmctld does not know of yet; often.
  void catch_up();

 private:
  void no_answer();
  template <class Change>
  Result<void> write(JobId job, Change change);

  SlurmClient& slurm_;
  const std::string node_;
  const Clock& clock_;
  std::set<std::pair<JobId, Remark>> untold_;
  std::pair<JobId, Remark> tried_ = {};  // the last of them
  MonoTime ask_after_ = {};              // slurmctld does not answer: until then
  MonoTime figures_after_ = {};          // it is slow: until then
};

}  // namespace aliquot::slurm
