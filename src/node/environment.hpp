// The environment a job finds itself in: what the user brought along, and SLURM_*, CUDA_* and our
// own variables on top. What an outer job or the daemon had under those names never shows through.
// Values in, K=V out; only login_environment() runs something.
//
// Not set, because they name a slurmctld: SLURM_CONF and SLURM_WORKING_CLUSTER.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/types.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "gpu/devices.hpp"
#include "node/spawn.hpp"

namespace aliquot::node {

using Environment = std::vector<std::string>;  // K=V, each name once

// How CUDA_VISIBLE_DEVICES names a job's GPUs. Programs parse indexes, as Slurm gives them; an
// index counts what the process can see at all.
enum class GpuNames : std::uint8_t {
  uuid,
  index,     // on the machine, as nvidia-smi counts: nothing hides the other GPUs
  own_index  // among its own: it sees no other
};

// What is known when a job starts. References: for the call only.
struct JobContext {
  const api::JobInfo& job;   // started: node, gpus, start_ms, cpus … are set
  const api::JobSpec& spec;  // what was asked for: some variables are there only if it was
  std::string cluster = "aliquot";
  // Else SLURM_SUBMIT_DIR of spec.environment, else the job\'s work_dir.
  std::string submit_dir = {};
  std::string mark = {};  // make_mark()
  std::string tmp_dir = "/tmp";
  std::string home = {};  // set where the user's own environment lacks them
  std::string shell = {};
  std::optional<gpu::StandIn> standin = {};  // when the GPUs are simulated
  GpuNames gpu_names = GpuNames::uuid;       // a MIG slice has no index: its UUID whatever is said
  // The folder where sbatch, srun, … are ours, and the daemon's socket: what a script runs by
  // these names is meant for the engine that runs the script.
  std::string commands = {};
  std::string socket = {};
  Environment extra = {};    // of the enforcement, MPS, …; wins over all
  std::string preload = {};  // for the front of LD_PRELOAD
};

// For the script of a batch job: user (spec.environment, or the login environment with it on top)
// and ours.
Environment batch_environment(const JobContext& context, const Environment& user);

// For srun and salloc without a job around them: what the client adds to its own environment.
Environment allocation_environment(const JobContext& context);

struct StepContext {
  std::int64_t step = 0;
  std::int64_t ntasks = 1;
  std::int64_t cpus_per_task = 1;
  std::optional<std::vector<api::GpuHold>> gpus = {};  // some of the job's; absent: all of them
};
// For a step: allocation_environment and what a step adds. Per task srun itself adds SLURM_PROCID,
// SLURM_LOCALID, SLURM_GTIDS and SLURM_TASK_PID.
Environment step_environment(const JobContext& context, const StepContext& step);

// How a process sees its GPUs where nobody knows which others it sees: by UUID, since an index
// means another GPU to a process that sees only some of them.
Environment gpu_environment(const std::vector<std::string>& uuids);
// What an outer job, or Slurm's own gres/mps, may have left in an environment.
inline constexpr std::array kMpsVariables = {
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_LOG_DIRECTORY",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "CUDA_MPS_PIPE_DIRECTORY"};

struct LoginEnvironment {
  Environment environment;
  std::string warning;  // why it is not the real one; empty: it is
};
// What the user gets at login, as `su - user -c env` shows it. Takes as long as the user's profile
// does, up to patience; then, or where there is no login shell, HOME, SHELL, USER, LOGNAME and PATH
// alone, with a warning. Runs in group, the job's, which has nothing else yet: what the profile
// leaves running is killed there, and what does not die ends with the job. On a worker.
LoginEnvironment login_environment(const sys::Identity& identity, Millis patience = seconds(10),
                                   const std::vector<ResourceLimit>& limits = {},
                                   const GroupPaths& group = {});

// The later one wins. Entries without a name or '=' are dropped.
Environment merge(const Environment& base, const Environment& over);
std::optional<std::string_view> get(const Environment& environment, std::string_view name);

}  // namespace aliquot::node
