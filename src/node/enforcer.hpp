// Holds jobs to what they were granted, and watches that they are: for every share it prepares what
// core/enforcement has chosen (an MPS server, the grant folder for the library, a lease), says what
// the job must have in its environment, reads what it used, and finds the processes that got
// around it.
//
// May be called from any thread. grant(), adopt(), release() and tick() may wait for a process to
// start: on a worker.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "api/types.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "core/enforcement.hpp"
#include "core/watchdog.hpp"
#include "gpu/mps.hpp"
#include "node/arbiter.hpp"
#include "node/exclusive_gpus.hpp"
#include "node/grant_folder.hpp"
#include "node/monitor.hpp"

namespace aliquot::node {

struct EnforcerOptions {
  std::filesystem::path run;      // the daemon's run folder: grants/, boards/, mps/ lie in it
  std::filesystem::path library;  // libaliquot.so, where facts says there is one
  core::EnforcementFacts facts;
  std::vector<gpu::Device> gpus;
  std::unique_ptr<gpu::MpsControl> mps;  // where facts says there is MPS
  gpu::Devices* devices = nullptr;       // for their compute modes; null: they stay as they are
};

// A process that a job's limits do not reach.
struct Escape {
  JobId job;
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

  // Before a job starts. A share that cannot be held is an error; one without its MPS server is
  // not.
  Result<Enforced> grant(const api::JobInfo& job);
  // After a start of the daemon: jobs that run on, all of them, then recovered().
  void adopt(const api::JobInfo& job);
  void recovered();
  // What grant() said, for the steps; empty where there was nothing to hold. A job that is to be
  // held and is not yet is an error: a step must not come before the limits.
  [[nodiscard]] Result<Enforced> of(const api::JobInfo& job);
  void suspend(JobId job, bool suspended);
  // Nothing if it was not metered.
  [[nodiscard]] std::optional<Measured> measure(JobId job);
  // The attempt tells a run from the one after a requeue; none: whichever it is.
  void release(JobId job, std::optional<std::int64_t> attempt);

  // What the GPUs' processes are, from the monitor, just sampled: what holds more than its job was
  // granted is killed, unless the site only wants it reported, and told so on its standard error;
  // what is in a job without the library is reported. What there is to say of it comes back.
  std::vector<Escape> inspect(const std::vector<GpuView>& views);
  // Looks after the servers; often.
  void tick();
  // Whether there is a server to look after.
  [[nodiscard]] bool busy() const { return busy_; }
  // Whether there is a share to watch: then inspect() is called often.
  [[nodiscard]] bool watching();
  // The daemon ends; jobs that run go on with what they have. Of all others nothing stays behind.
  void stop(const std::vector<api::JobInfo>& active);

  [[nodiscard]] std::vector<core::Backend> backends() const {
    return core::list_backends(options_.facts);
  }

 private:
  struct Held {
    std::int64_t attempt = 0;
    core::EnforcementPlan plan;
    Enforced enforced;
    std::optional<GrantFolder> folder;
    Uid uid = Uid(0);
    Gid gid = Gid(0);
    std::map<std::string, Bytes> limits;  // by the GPU's UUID
  };

  explicit Enforcer(EnforcerOptions options);
  [[nodiscard]] core::EnforcementPlan plan(const api::JobInfo& job) const;
  [[nodiscard]] std::optional<LeasePlace> take_lease(const std::string& gpu, JobId job);
  Result<std::optional<std::filesystem::path>> serve(const api::JobInfo& job, Held& held);
  // Fault domain `gpu`: whether the GPU is kept for the server that is about to start there.
  bool keep_for_server(const gpu::MpsKey& key, std::int64_t clients);
  // For a job that uses its GPUs outside of MPS.
  void open_gpus(const api::JobInfo& job);
  void restore_gpus();
  void describe(Held& held, const std::optional<std::filesystem::path>& pipes) const;
  void keep(JobId job, Held held, const std::optional<std::filesystem::path>& pipes);
  void drop_files(JobId job);
  // Processes of a job that are to end, with what they are told and where.
  struct Condemned;
  Condemned condemn(JobId job, const Held& held, const GpuView& view,
                    const core::Watchdog::Verdict& verdict, std::vector<Escape>& escapes) const;
  void end(Condemned condemned);

  EnforcerOptions options_;
  const std::filesystem::path grants_;
  const std::filesystem::path boards_;

  std::mutex mutex_;  // for what follows; never held while a process starts
  std::map<JobId, Held> held_;
  std::map<std::string, std::map<std::uint32_t, JobId>> leases_;  // by the GPU's UUID and slot
  core::Watchdog watchdog_;

  std::mutex making_boards_;
  std::mutex mps_mutex_;
  std::optional<gpu::MpsServers> servers_;
  std::optional<ExclusiveGpus> exclusive_;
  std::atomic<bool> busy_ = false;
  Arbiter arbiter_;
};

// For this node: looks for the library and for MPS, says in the log what there is. wish: the site's
// will; what the node has is filled in. devices must outlive it.
Result<std::unique_ptr<Enforcer>> open_enforcer(const std::filesystem::path& run,
                                                const std::filesystem::path& library,
                                                core::EnforcementFacts wish, gpu::Devices& devices,
                                                const std::vector<gpu::Device>& gpus,
                                                const std::optional<gpu::StandIn>& standin);

}  // namespace aliquot::node
