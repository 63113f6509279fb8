// Steps that have a part of their job's share for themselves (`srun --gpu-mem=8G` in a job with
// 20G): each is held like a job of its own, named "7.3" for step 3 of job 7, and the job's other
// processes share what is left. The sum is never more than the job has booked: Slurm counts the
// shards of the steps, and what the others hold already cannot be given away.
//
// Written down like jobs, so that an agent that was killed takes them up again. Belongs to the
// agent's thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "core/grant.hpp"
#include "node/enforcer.hpp"
#include "node/monitor.hpp"
#include "slurm/agent/job_note.hpp"
#include "sys/process.hpp"

namespace aliquot::slurm {

class StepParts {
 public:
  // notes: the folder of the jobs' notes.
  StepParts(node::Enforcer& enforcer, std::filesystem::path notes)
      : enforcer_(enforcer), notes_(std::move(notes)) {}

  // The part of a step: made when it first asks, and as it was then. invalid_argument: the job's
  // other processes hold what it would have.
  Result<const JobNote*> give(const core::Grant& job, std::int64_t step, core::Grant part,
                              const sys::ProcessRef& stepd);
  // The note of a part, by its file's name, of the agent before. False: it is none.
  bool take_up(std::string_view name, JobNote note);
  // What the other processes of its job have; once its parts are taken up, and when it changes.
  void settle(const core::Grant& job);
  // Memory that those other processes hold beyond that.
  [[nodiscard]] Bytes overdrawn(const core::Grant& job) const;

  // The slurmstepd of a step ends; or has ended, for those that did not say so. The jobs that it
  // leaves something to.
  std::vector<JobId> leave(Pid stepd);
  std::vector<JobId> drop_dead();
  void release(JobId job);

  void add_running(std::vector<node::RunningJob>& running) const;

 private:
  using Key = std::pair<JobId, std::int64_t>;
  template <class Over>
  std::vector<JobId> drop(const Over& is_over);
  [[nodiscard]] core::Grant rest_of(const core::Grant& job) const;
  [[nodiscard]] std::filesystem::path note_path(const HolderId& part) const;

  node::Enforcer& enforcer_;
  const std::filesystem::path notes_;
  std::map<Key, JobNote> parts_;
};

HolderId part_holder(JobId job, std::int64_t step);
// The job of a holder, "7" or "7.3".
std::optional<JobId> job_of_holder(const HolderId& holder);

}  // namespace aliquot::slurm
