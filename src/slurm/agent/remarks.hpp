// Writes what the agent has to say of jobs into their admin comments, where everybody finds it
// (slurm/admin_comment.hpp). While slurmctld does not answer it is kept for later, and slurmctld is
// left alone for a while: each question may take as long as it likes. One thread at a time.
#pragma once

#include <deque>
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
  // What it has used so far: for note_use(). Soon or never, as Slurm notes nothing of a job that is
  // over, and not while slurmctld is slow.
  void tell_used(JobId job, const Used& used);
  // Writes down what one job has used, of those that wait. Whether there are more: whoever asks
  // slurmctld for a step's share goes in between.
  bool note_use();
  [[nodiscard]] bool owes(JobId job) const;
  // Those that slurmctld does not know of yet; often.
  void catch_up();

 private:
  void no_answer();
  template <class Change>
  Result<void> write(JobId job, Change change);

  void write_use(JobId job, const Used& used);

  SlurmClient& slurm_;
  const std::string node_;
  const Clock& clock_;
  std::deque<std::pair<JobId, Used>> unwritten_;  // the oldest first
  std::set<std::pair<JobId, Remark>> untold_;
  std::pair<JobId, Remark> tried_ = {};  // the last of them
  MonoTime ask_after_ = {};              // slurmctld does not answer: until then
  MonoTime figures_after_ = {};          // it is slow: until then
};

}  // namespace aliquot::slurm
