// In slurmstepd: the step asks the node agent for the view of its job's GPU, and every task starts
// with it, or says why it does not start.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "slurm/plugins/spank/plugin.hpp"

namespace aliquot::spank {
namespace {

constexpr int kPatience = 2000;  // ms; then the tasks ask again, each for itself

// slurmstepd serves one step, and its tasks are its forks.
std::string refusal;  // why no task may start; empty: they may
bool asking = false;  // an answer is missing
bool told = false;    // the agent knows of this step
int connection = -1;
pid_t stepd = 0;

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

// From slurmd's own environment, where several run on one machine; nothing of the user's.
std::string place(const Settings& settings) {
  std::string socket = settings.socket;
  const auto at = socket.find("%n");
  if (at == std::string::npos) return socket;
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  const char* name = std::getenv("SLURMD_NODENAME");
  const std::string node = name != nullptr ? name : host;
  return socket.replace(at, 2, node.substr(0, node.find('.')));
}

std::string about(spank_t handle) {
  uid_t uid = 0;
  gid_t gid = 0;
  spank_get_item(handle, S_JOB_UID, &uid);
  spank_get_item(handle, S_JOB_GID, &gid);
  return "job=" + std::to_string(item(handle, S_JOB_ID)) + "\nstepd=" + std::to_string(stepd) +
         "\nstep=" + std::to_string(item(handle, S_JOB_STEPID)) + "\nuid=" + std::to_string(uid) +
         "\ngid=" + std::to_string(gid) +
         "\ntasks=" + std::to_string(item(handle, S_JOB_LOCAL_TASK_COUNT)) +
         "\nrestarts=" + std::to_string(item(handle, S_SLURM_RESTART_COUNT)) +
         "\njob_gpus=" + variable(handle, "SLURM_JOB_GPUS") +
         "\nstep_gpus=" + variable(handle, "SLURM_STEP_GPUS") +
         "\nshards=" + variable(handle, "SLURM_SHARDS_ON_NODE") +
         "\nvisible=" + variable(handle, "CUDA_VISIBLE_DEVICES") + "\n";
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

// Whether it is one.
bool take(spank_t handle, const Answer& answer) {
  if (answer.status == 0) return false;
  asking = false;
  told = answer.status == 200;
  if (told) {
    apply(handle, answer.body);
  } else {
    refusal = answer.body;
  }
  return true;
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
  stepd = getpid();
  asking = true;
  connection = send_request(place(settings), "/v1/slurm/grant", about(handle));
}

void begin_tasks(spank_t handle) {
  if (!asking || connection < 0) return;
  take(handle, take_answer(std::exchange(connection, -1), kPatience));
}

// In the task's own process, as root: what has not been answered is asked again, until the agent is
// back or the timeout has passed.
void prepare_task(spank_t handle, const Settings& settings) {
  if (!asking) return;
  const std::string socket = place(settings);
  const Answer answer = ask_agent(socket, "/v1/slurm/grant", about(handle), settings.timeout_ms);
  if (take(handle, answer)) return;
  if (settings.refuse && !variable(handle, "SLURM_SHARDS_ON_NODE").empty()) {
    refusal = "the node agent does not answer at " + socket + " (" + answer.body +
              "): tell the administrator to start aliquot-agent";
  } else {
    // Whole GPUs that Slurm itself gave need nothing of it.
    say("the node agent does not answer at %s (%s): a share of a GPU would not be held",
        socket.c_str(), answer.body.c_str());
  }
}

void enter_task() {
  if (refusal.empty()) return;
  // An error here would be Slurm's to deal with, and it ignores what an optional plugin says.
  dprintf(STDERR_FILENO, "aliquot: %s\n", refusal.c_str());
  _exit(1);
}

void leave_step(spank_t handle, const Settings& settings) {
  if (!told) return;
  // Once: where it does not arrive the agent sees by itself that this process has ended.
  (void)ask_agent(place(settings), "/v1/slurm/exit", about(handle), 0);
}

}  // namespace aliquot::spank
