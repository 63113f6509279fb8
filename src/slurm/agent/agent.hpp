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
// slurmctld is never waited for: what it is to be asked is in questions(), and what it says comes
// by heard(), whenever it does. A job whose first step comes before slurmctld's word is held by
// what slurmstepd was told in Slurm's own credential, and put right by the word when it comes.
//
// What slurmctld cannot know, a broken GPU and memory that processes of no job hold, it sees: such
// a job does not start, and the node takes no more (room.hpp).
//
// One thread at a time, but for look_at(); grant() may wait for a process to start.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "core/grant.hpp"
#include "node/enforcer.hpp"
#include "node/gpu_faults.hpp"
#include "node/job_grant.hpp"
#include "node/monitor.hpp"
#include "node/process_tree.hpp"
#include "slurm/agent/job_note.hpp"
#include "slurm/agent/liaison.hpp"
#include "slurm/agent/room.hpp"
#include "slurm/agent/step_parts.hpp"
#include "slurm/client.hpp"
#include "slurm/samples.hpp"
#include "slurm/slurm_grant.hpp"
#include "sys/process.hpp"

namespace aliquot::slurm {

class Agent {
 public:
  struct Parts {
    std::filesystem::path run;  // jobs/ lies in it, beside what the enforcer keeps
    NodeGpus node;
    node::Enforcer& enforcer;
    Clock& clock;
    bool by_mark;  // who is in no control group may be a job's: only where Slurm makes none
    std::optional<gpu::StandIn> standin = {};
  };
  // Takes up the jobs of the agent before it.
  static Result<std::unique_ptr<Agent>> create(Parts parts);

  // What slurmctld says of a job; nothing: it has not answered yet.
  using Word = std::optional<Result<SlurmJob>>;
  // Whether grant() would do something with slurmctld's word, and it is worth waiting for.
  [[nodiscard]] bool wants_word(const StepFacts& step) const;
  // What the step's tasks are to have in their environment, as lines: "set NAME=VALUE", "unset
  // NAME", "prepend NAME=VALUE". stepd: whose end is the step's.
  Result<std::string> grant(const StepFacts& step, Pid stepd, const Word& word);
  // Whether the job has no other step here.
  [[nodiscard]] bool is_last(const StepFacts& step, Pid stepd) const;
  // slurmstepd is about to end.
  void leave(const StepFacts& step, Pid stepd);
  // Often; then what slurmctld is to be asked, a few at a time.
  void look_after();
  [[nodiscard]] std::vector<JobId> questions();
  // Releases what is over, and puts right what was granted without slurmctld.
  void heard(JobId id, const Result<SlurmJob>& word);
  // What slurmctld is to be told, once.
  [[nodiscard]] News news();
  // For look_at(), on any thread, and what it saw: finds who is outside of a job's limits.
  [[nodiscard]] std::vector<node::RunningJob> running() const;
  [[nodiscard]] Result<std::vector<node::GpuView>> look_at(
      gpu::Devices& devices, const std::vector<node::RunningJob>& running) const;
  void observe(const std::vector<node::GpuView>& views);

  // The agent ends; jobs go on with what they have. Servers that nobody uses do not stay behind.
  void stop();

  [[nodiscard]] std::size_t jobs() const { return jobs_.size(); }
  [[nodiscard]] std::vector<JobNote> notes() const;
  // slurmctld did not answer when it was last asked.
  [[nodiscard]] bool slurmctld_is_away() const { return away_; }
  // What there is no room for is looked at all the time: it needs no drain by a step.
  [[nodiscard]] bool closed() const { return room_.closed(); }
  // Why; empty: it is not.
  [[nodiscard]] std::string keep_away() const { return room_.keep_away(); }

 private:
  struct Job {
    JobNote note;
    bool reached = true;          // a step of it has asked, and has what it was told
    MonoTime ask_at = {};         // when to ask whether it is over, once no step is left
    Millis patience = Millis(0);  // until the next question after that
    MonoTime check_at = {};       // when to ask what it holds, where that is not known
    [[nodiscard]] JobId id() const { return node::job_of(note.grant.holder).value_or(JobId()); }
  };

  explicit Agent(Parts parts);
  Result<void> take_up();
  [[nodiscard]] Result<core::Grant> find(const StepFacts& step, const Word& word) const;
  // late: it was only watched until now.
  Result<Job*> hold(JobNote note, const std::optional<sys::ProcessInfo>& stepd, bool late);
  // What slurmctld says of a job besides what it holds.
  void note_word(JobNote& note, const SlurmJob& word) const;
  // What was granted by what slurmstepd knew, compared with slurmctld's word.
  void put_right(Job& job, const Result<SlurmJob>& word);
  // A process of this job is on a GPU, and none of its steps has asked.
  void take_in(JobId id, const Result<SlurmJob>& word);
  void tell(JobId id, Remark remark);
  // Jobs with the GPUs that they hold.
  [[nodiscard]] std::vector<node::RunningJob> holding() const;
  [[nodiscard]] Room::Granted granted() const;
  // Adds up what jobs are seen to use.
  void watch_use(const std::vector<node::GpuView>& views);
  [[nodiscard]] Used used_by(const Job& job) const;
  // For a step of a job that is held: its own part, or what all of the job has.
  Result<std::string> answer(const Job& job, const StepFacts& step,
                             const std::optional<sys::ProcessInfo>& stepd);
  [[nodiscard]] Result<std::string> environment(const JobNote& held, const StepFacts& step) const;
  [[nodiscard]] std::vector<std::string> visible(const JobNote& held, const StepFacts& step) const;
  [[nodiscard]] Result<void> add_share(std::string& lines, const JobNote& held) const;
  [[nodiscard]] std::filesystem::path note_path(JobId job) const;
  Result<void> write_note(const Job& job) const;
  void ask_for_idle_jobs();
  [[nodiscard]] bool is_over(const Job& job, const Result<SlurmJob>& word) const;
  void release(JobId id);
  void let_go(JobId id);

  // To these a part was given back.
  void settle(const std::vector<JobId>& jobs);

  Parts parts_;
  std::map<JobId, Job> jobs_;
  StepParts parts_of_jobs_;
  std::map<JobId, MonoTime> strangers_;  // on a GPU, and not held: when to ask for them
  std::set<std::pair<JobId, Remark>> told_;
  News news_;  // since it was last taken
  node::GpuFaults faults_;
  Room room_;
  MonoTime watched_ = {};         // when the GPUs were last seen
  bool seen_ = false;             // they were
  bool away_ = false;             // slurmctld did not answer when it was last asked
  std::int64_t rounds_away_ = 0;  // questions since then
  MonoTime ask_after_ = {};       // then
};

// What the balancer is told of these GPUs. Of the processes that belong to no job, the largest.
NodeSample node_sample(const NodeGpus& node, const std::vector<node::GpuView>& views);

// Whether an error of grant() is this node's and not the job's or the step's: on another node it
// may start. Only what is called unavailable is.
bool is_nodes_fault(const Error& error);

}  // namespace aliquot::slurm
