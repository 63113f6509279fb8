// Holds jobs to what they were granted, and watches that they are: for every share it prepares what
// core/enforcement has chosen (an MPS server, the grant folder for the library, a lease), says what
// the job must have in its environment, reads what it used, and finds the processes that got
// around it.
//
// May be called from any thread. grant() and adopt() may wait for a process to start: on a worker.
// They wait for the job's own MPS server alone, and release(), inspect() and tick() for none: its
// user can stop it.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "core/enforcement.hpp"
#include "core/grant.hpp"
#include "core/watchdog.hpp"
#include "gpu/mps.hpp"
#include "node/arbiter.hpp"
#include "node/cgroup.hpp"
#include "node/exclusive_gpus.hpp"
#include "node/grant_folder.hpp"
#include "node/lanes.hpp"
#include "node/monitor.hpp"

namespace aliquot::node {

struct EnforcerOptions {
  std::filesystem::path run;      // the daemon's run folder: grants/, boards/, mps/ lie in it
  std::filesystem::path library;  // libaliquot.so, where facts says there is one
  core::EnforcementFacts facts;
  std::unique_ptr<gpu::MpsControl> mps;  // where facts says there is MPS
  gpu::Devices* devices = nullptr;       // for their compute modes; null: they stay as they are
  const Clock* clock = nullptr;          // null: the machine's
  Cgroups* cgroups = nullptr;            // that suspended jobs are frozen in; null: others' are
  // Nobody but us walks through grants/: who is to get to a grant folder has it in a mount of its
  // own. Else users walk through it to theirs.
  bool walled = false;
  // What is over its limit is not let go on for longer, parted from its MPS server or not.
  gpu::MpsPatience ending{.turn = seconds(1), .answer = seconds(2)};
  // A server that has used it up is not asked for so long: who starts ever more would gain from it.
  Millis silence = seconds(10);
};

// A process that a job's limits do not reach.
struct Escape {
  HolderId job;
  std::string what;  // a sentence without its end
};

class Enforcer {
 public:
  // What a job runs with.
  struct Enforced {
    std::vector<std::string> environment;
    std::string preload;  // for the front of LD_PRELOAD; empty: nothing
    std::string words;    // for JobInfo::enforcement
  };
  struct Measured {
    Millis gpu_time;
    Bytes memory_peak;
  };

  static Result<std::unique_ptr<Enforcer>> create(EnforcerOptions options);
  ~Enforcer();

  // Which processes of a job get what grant() says. Others are held by the watchdog alone, and to
  // their memory alone.
  enum class Reach : std::uint8_t {
    all,
    late,  // those of the steps from now on: who is without the library cannot help it
    none,
  };
  // Before a job starts. A share that cannot be held is an error; one without its MPS server is
  // not.
  Result<Enforced> grant(const core::Grant& grant, Reach reach = Reach::all);
  // Other portions of the GPUs that the job holds, from now on; also for its processes that run.
  Result<void> correct(const core::Grant& grant);
  // Memory that the job's processes hold, by what they say; of all its GPUs together.
  [[nodiscard]] Bytes in_use(const HolderId& job) const;
  // After a start of the daemon: those that were held before and run on, all of them, then
  // recovered().
  void adopt(const core::Grant& grant);
  void recovered();
  // What grant() said, for the steps; empty where there was nothing to hold. One that is to be held
  // and is not yet is an error where it was only just started: a step must not come before the
  // limits.
  [[nodiscard]] Result<Enforced> of(const core::Grant& grant, bool just_started);
  // The MPS server that the job's processes may be clients of: what ends them parts them from it.
  [[nodiscard]] std::optional<gpu::MpsPipe> mps_of(const HolderId& job);
  void suspend(const HolderId& job, bool suspended);
  // Nothing if it was not metered.
  [[nodiscard]] std::optional<Measured> measure(const HolderId& job);
  // What everybody who is held to a share says that he does on each of its GPUs.
  struct Told {
    HolderId job;
    GpuId gpu;
    GpuUsage usage;
  };
  [[nodiscard]] std::vector<Told> told();
  // MPS servers that died and were started again.
  [[nodiscard]] std::int64_t mps_restarts() const { return servers_ ? servers_->restarts() : 0; }
  // The attempt tells a run from the one after a requeue; none: whichever it is.
  void release(const HolderId& job, std::optional<std::int64_t> attempt);

  // What the GPUs' processes are, from the monitor, just sampled: what holds more than its job was
  // granted is killed, unless the site only wants it reported, and told so on its standard error;
  // what is in a job without the library is reported. A job whose `usage` has grown ends as a
  // whole, as far as members knows it. What there is to say of it comes back.
  std::vector<Escape> inspect(const std::vector<GpuView>& views, const JobMembers& members = {});
  // Has the servers looked after; often.
  void tick();
  // Whether there is a server to look after.
  [[nodiscard]] bool busy() const { return busy_; }
  // Whether there is a share to watch: then inspect() is called often.
  [[nodiscard]] bool watching();
  // The daemon ends; jobs that run go on with what they have. Of all others nothing stays behind.
  void stop(const std::set<HolderId>& active);

  [[nodiscard]] std::vector<core::Backend> backends() const {
    return core::list_backends(options_.facts);
  }

 private:
  struct Held {
    core::Grant grant;
    core::EnforcementPlan plan;
    Enforced enforced;
    std::optional<GrantFolder> folder;  // none: lost while the daemon was away
    std::optional<gpu::MpsPipe> mps;
    bool late = false;       // Reach::late: nobody is judged for his time
    std::int64_t grown = 0;  // how often its `usage` was found larger than it is to be
    bool hopeless = false;   // as the watchdog says
    bool given_up = false;   // and said so

    // Nothing: none of this GPU, or all of it.
    [[nodiscard]] std::optional<Bytes> limit(const GpuId& gpu) const {
      const auto* held = grant.find(gpu);
      return held == nullptr || held->whole ? std::nullopt : std::optional(held->portion.memory);
    }
  };

  explicit Enforcer(EnforcerOptions options);
  [[nodiscard]] MonoTime now() const;
  static std::int64_t lane_of(const std::filesystem::path& server);
  [[nodiscard]] std::optional<LeasePlace> take_lease(const GpuId& gpu, const HolderId& holder);
  std::optional<std::filesystem::path> serve(Held& held);
  // Fault domain `gpu`: whether the GPU is kept for the server that is about to start there.
  bool keep_for_server(const gpu::MpsKey& key, std::int64_t clients);
  // For a job that uses its GPUs outside of MPS.
  void open_gpus(const core::Grant& grant);
  void restore_gpus();
  void describe(Held& held, const std::optional<std::filesystem::path>& pipes) const;
  void keep(Held held, const std::optional<std::filesystem::path>& pipes);
  void drop_files(const HolderId& job);
  // Processes of a job that are to end, with what they are told and where.
  struct Condemned;
  Condemned condemn(const HolderId& job, const Held& held, const GpuView& view,
                    const core::Watchdog::Verdict& verdict, std::vector<Escape>& escapes) const;
  // A process on a GPU that its job has nothing of: in how many looks in a row, by the GPU's UUID.
  using Trespasses = std::map<std::pair<std::string, sys::ProcessRef>, int>;
  void turn_out(const Trespasser& one, const GpuView& view, const Trespasses& before,
                std::vector<Escape>& escapes, std::vector<Condemned>& condemned);
  // Says so where a GPU has more in use than processes and jobs account for.
  void look_for_residue(const GpuView& view, Millis elapsed,
                        const std::map<HolderId, std::vector<core::WatchedProcess>>& processes);
  bool others_compute(const HolderId& job, const std::string& gpu,
                      const std::map<HolderId, std::vector<core::WatchedProcess>>& processes);
  // Those that use a GPU beside other jobs with nothing to hold them to their share of its time.
  void hold_up(const HolderId& job, const Held& held, const GpuView& view,
               const core::Watchdog::Verdict& verdict, std::vector<Escape>& escapes,
               std::vector<Condemned>& condemned) const;
  // Those that have to end as a whole, without their processes.
  std::vector<Condemned> find_ending(std::vector<Escape>& escapes);
  void end(std::vector<Condemned> condemned);
  // Those of one server.
  void kill(const std::vector<Condemned>& condemned);
  void let_die(const Condemned& condemned);
  [[nodiscard]] bool is_ending(Pid pid) const { return ending_.contains(pid); }

  EnforcerOptions options_;
  const std::filesystem::path grants_;
  const std::filesystem::path boards_;

  std::mutex mutex_;  // for what follows; never held while a process starts
  std::map<HolderId, Held> held_;
  std::map<GpuId, std::map<std::uint32_t, HolderId>> leases_;  // by slot
  core::Watchdog watchdog_;
  MonoTime inspected_ = {};
  Trespasses trespasses_;
  core::Residue residue_;
  std::set<HolderId> suspended_;
  std::map<HolderId, std::int64_t> turned_out_;  // how many processes of a job
  std::set<Pid> ending_;                         // whose kill waits for an MPS server
  std::map<std::string, MonoTime> silent_;       // their folders, and until when
  std::map<HolderId, gpu::MpsPipe> unknown_;     // of jobs that nobody has adopted

  std::mutex making_boards_;
  std::optional<gpu::MpsServers> servers_;
  std::mutex mps_mutex_;  // for exclusive_, with the servers that it goes by; no server has it
  std::optional<ExclusiveGpus> exclusive_;
  std::atomic<bool> busy_ = false;
  std::atomic<bool> ticking_ = false;
  Arbiter arbiter_;
  Lanes lanes_{"aq-servers"};  // one for each MPS server; last, so that they end first
};

}  // namespace aliquot::node
