// The node agent: gives each step of a Slurm job the view of its job's GPU, holds the job to its
// share for as long as it lives here, and looks after the GPUs. It decides nothing about who gets
// what: that has been decided by slurmctld.
//
// A job is held from its first step until none of its steps lives on this node and Slurm says that
// it is over. What it holds is written down before its step is told, so that an agent that is
// killed takes everything up again; jobs do not notice.
//
// Which jobs are on the node is slurmctld's to say, not theirs: one that uses a GPU and never asked
// (the plugin is not loaded here, or its process came in by ssh) is held to its share all the same,
// and its processes are outside of it. There is no grace: where the plugin is, a task starts only
// after its step's answer.
//
// One thread at a time, but for look_at(); grant() and look_after() may wait for slurmctld and for
// a process to start.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/types.hpp"
#include "base/clock.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "node/enforcer.hpp"
#include "node/monitor.hpp"
#include "node/process.hpp"
#include "slurm/agent/found_grant.hpp"
#include "slurm/agent/own_drain.hpp"
#include "slurm/client.hpp"

namespace aliquot::slurm {

class Agent {
 public:
  struct Parts {
    std::filesystem::path run;  // jobs/ lies in it, beside what the enforcer keeps
    NodeGpus node;
    SlurmClient& slurm;
    node::Enforcer& enforcer;
    Clock& clock;
    bool by_mark;  // who is in no control group may be a job's: only where Slurm makes none
    std::optional<gpu::StandIn> standin = {};
  };
  // Takes up the jobs of the agent before it.
  static Result<std::unique_ptr<Agent>> create(Parts parts);

  // What the step's tasks are to have in their environment, as lines: "set NAME=VALUE", "unset
  // NAME", "prepend NAME=VALUE". stepd: whose end is the step's.
  Result<std::string> grant(const StepFacts& step, node::Pid stepd);
  // slurmstepd is about to end.
  void leave(const StepFacts& step, node::Pid stepd);
  // Releases what is over; often.
  void look_after();
  // For look_at(), on any thread, and what it saw: finds who is outside of a job's limits.
  [[nodiscard]] std::vector<node::RunningJob> running() const;
  [[nodiscard]] Result<std::vector<node::GpuView>> look_at(
      gpu::Devices& devices, const std::vector<node::RunningJob>& running) const;
  void observe(const std::vector<node::GpuView>& views);

  // The agent ends; jobs go on with what they have. Servers that nobody uses do not stay behind.
  void stop();

  [[nodiscard]] std::size_t jobs() const { return jobs_.size(); }

  // The job whose process it is: by the cgroup's name, which is Slurm's (v1 and v2), or by the
  // slurmstepd among its ancestors.
  static std::optional<JobId> job_of(node::Pid pid);
  static std::optional<HolderId> holder_of_process(node::Pid pid);

 private:
  struct Job {
    api::JobInfo info;
    std::string mark;
    std::set<node::ProcessRef> steps = {};
    bool reached = true;          // a step of it has asked, and has what it was told
    MonoTime ask_at = {};         // whether it is over, once no step is left
    Millis patience = Millis(0);  // until the next question after that
  };

  explicit Agent(Parts parts);
  Result<void> take_up();
  Result<std::string> answer(const StepFacts& step, node::Pid stepd);
  [[nodiscard]] Result<api::JobInfo> find(const StepFacts& step);
  // late: it was only watched until now.
  Result<const Job*> hold(api::JobInfo info, const std::optional<node::ProcessInfo>& stepd,
                          bool late = false);
  // A process of this job is on a GPU, and none of its steps has asked.
  void take_in(JobId id);
  // For everybody to see: in the job's admin comment, once.
  void tell_of_escape(JobId id);
  // Those that slurmctld does not know of yet.
  void tell_of_escapes();
  Result<void> write_escape(JobId id);
  [[nodiscard]] Result<std::string> environment(const Job& job, const StepFacts& step) const;
  [[nodiscard]] std::string visible(const Job& job, const StepFacts& step) const;
  [[nodiscard]] Result<void> add_share(std::string& lines, const Job& job) const;
  [[nodiscard]] std::filesystem::path note_path(JobId job) const;
  Result<void> note(const Job& job) const;
  // Nothing: Slurm does not answer.
  std::optional<bool> is_over(const Job& job);
  void release(JobId id);
  void let_go(JobId id);

  Parts parts_;
  std::map<JobId, Job> jobs_;
  std::map<JobId, MonoTime> settled_;  // jobs on a GPU that hold no share here: until then
  std::set<JobId> told_;               // whose escape is in their comment
  std::set<JobId> untold_;             // and is to be, when slurmctld answers
  MonoTime ask_after_ = {};            // slurmctld does not answer
  OwnDrain drain_;
};

// Whether an error of grant() is this node's and not the job's: on another node it may start.
bool is_nodes_fault(const Error& error);

}  // namespace aliquot::slurm
