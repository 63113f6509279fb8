// In slurmstepd: the step asks the node agent for the view of its job's GPU, and every task starts
// with it, or says why it does not start.
#include <unistd.h>

#include <cstdint>
#include <cstdio>

#include "slurm/plugins/spank/plugin.hpp"

namespace aliquot::spank {
namespace {

// Why no task may start; empty: they may. slurmstepd serves one step, and its tasks are its forks.
std::string refusal;
bool told = false;

std::string variable(spank_t handle, const char* name) {
  char value[4096];
  if (spank_getenv(handle, name, value, sizeof value) != ESPANK_SUCCESS) return "";
  return value;
}

std::uint32_t item(spank_t handle, spank_item what) {
  std::uint32_t value = 0;
  return spank_get_item(handle, what, &value) == ESPANK_SUCCESS ? value : 0;
}

// The first is what Slurm gives tasks; the others are for what it forgets.
bool has_gpu(spank_t handle) {
  for (const char* name : {"SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_SHARDS_ON_NODE",
                           "SLURM_GPUS_ON_NODE", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"}) {
    if (!variable(handle, name).empty()) return true;
  }
  return false;
}

std::string place(spank_t handle, const Settings& settings) {
  std::string socket = settings.socket;
  const auto at = socket.find("%n");
  if (at == std::string::npos) return socket;
  std::string node = variable(handle, "SLURMD_NODENAME");
  if (node.empty()) {
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    node = host;
    node = node.substr(0, node.find('.'));
  }
  return socket.replace(at, 2, node);
}

std::string about(spank_t handle) {
  uid_t uid = 0;
  gid_t gid = 0;
  spank_get_item(handle, S_JOB_UID, &uid);
  spank_get_item(handle, S_JOB_GID, &gid);
  return "job=" + std::to_string(item(handle, S_JOB_ID)) +
         "\nstep=" + std::to_string(item(handle, S_JOB_STEPID)) + "\nuid=" + std::to_string(uid) +
         "\ngid=" + std::to_string(gid) +
         "\ntasks=" + std::to_string(item(handle, S_JOB_LOCAL_TASK_COUNT)) +
         "\nrestarts=" + std::to_string(item(handle, S_SLURM_RESTART_COUNT)) +
         "\njob_gpus=" + variable(handle, "SLURM_JOB_GPUS") +
         "\nstep_gpus=" + variable(handle, "SLURM_STEP_GPUS") +
         "\nshards=" + variable(handle, "SLURM_SHARDS_ON_NODE") + "\n";
}

// "set NAME=VALUE", "unset NAME", "prepend NAME=VALUE" for lists with colons.
void apply(spank_t handle, const std::string& lines) {
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t end = lines.find('\n', at);
    const std::string line = lines.substr(at, end - at);
    at = end == std::string::npos ? lines.size() : end + 1;
    const std::size_t space = line.find(' ');
    if (space == std::string::npos) continue;
    const std::string verb = line.substr(0, space);
    const std::size_t equals = line.find('=', space);
    const std::string name = line.substr(
        space + 1, equals == std::string::npos ? std::string::npos : equals - space - 1);
    if (verb == "unset") {
      spank_unsetenv(handle, name.c_str());
      continue;
    }
    if (equals == std::string::npos) continue;
    std::string value = line.substr(equals + 1);
    if (verb == "prepend") {
      const std::string old = variable(handle, name.c_str());
      // A step of a script finds what its script was given.
      if (old == value || old.starts_with(value + ":")) continue;
      if (!old.empty()) value += ":" + old;
    }
    if (spank_setenv(handle, name.c_str(), value.c_str(), 1) != ESPANK_SUCCESS) {
      say("cannot set %s in the job's environment", name.c_str());
    }
  }
}

}  // namespace

void enter_step(spank_t handle, const Settings& settings) {
  // Above all numbers that steps have: the container of processes that come in by ssh, …; they
  // have no environment of ours to be given. The batch script and salloc's shell are steps like
  // any other.
  constexpr std::uint32_t kExtern = 0xfffffffc;
  constexpr std::uint32_t kPending = 0xfffffffd;
  const std::uint32_t step = item(handle, S_JOB_STEPID);
  if (step == kExtern || step == kPending || !has_gpu(handle)) return;
  const std::string socket = place(handle, settings);
  const Answer answer = ask_agent(socket, "/v1/slurm/grant", about(handle), settings.timeout_ms);
  if (answer.status == 200) {
    told = true;
    apply(handle, answer.body);
    return;
  }
  if (answer.status != 0) {
    refusal = answer.body;
  } else if (settings.refuse) {
    refusal = "the node agent does not answer at " + socket + " (" + answer.body +
              "): tell the administrator to start aliquot-agent";
  } else {
    say("the node agent does not answer at %s (%s): the job's share of the GPU is not held",
        socket.c_str(), answer.body.c_str());
  }
}

void enter_task(spank_t handle) {
  (void)handle;
  if (refusal.empty()) return;
  // An error here would be Slurm's to deal with, and it ignores what an optional plugin says.
  dprintf(STDERR_FILENO, "aliquot: %s\n", refusal.c_str());
  _exit(1);
}

void leave_step(spank_t handle, const Settings& settings) {
  if (!told) return;
  // Once: where it does not arrive the agent sees by itself that this process has ended.
  (void)ask_agent(place(handle, settings), "/v1/slurm/exit", about(handle), 0);
}

}  // namespace aliquot::spank
