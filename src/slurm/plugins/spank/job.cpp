// In slurmstepd: the step asks the node agent for the view of its job's GPU, and every task starts
// with it, or says why it does not start.
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "slurm/plugins/drain.h"
#include "slurm/plugins/spank/plugin.hpp"

namespace aliquot::spank {
namespace {

constexpr int kWholePatience = 2000;  // ms, for what a job with whole GPUs can do without
constexpr int kLastWord = 1000;       // ms, before a job is sent away
// Above all numbers that steps have.
constexpr std::uint32_t kBatch = 0xfffffffb;
constexpr std::uint32_t kExtern = 0xfffffffc;  // the container of processes that come in by ssh, …
constexpr std::uint32_t kPending = 0xfffffffd;

// What is settled once the tasks are forked, in memory that they share with slurmstepd.
struct Settled {
  bool done;
  int status;
  char text[65536];
};

// slurmstepd serves one step, and its tasks are its forks.
std::string refusal;  // why no task may start; empty: they may
bool asking = false;  // an answer is missing
bool told = false;    // the agent knows of this step
int connection = -1;
pid_t stepd = 0;
long deadline = 0;  // ms; until then the agent may take its time
Settled* settled = nullptr;

long now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

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

bool holds_shards(spank_t handle) { return !variable(handle, "SLURM_SHARDS_ON_NODE").empty(); }

// From slurmd's own environment, where several run on one machine; nothing of the user's.
std::string node_name() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  const char* name = std::getenv("SLURMD_NODENAME");
  const std::string node = name != nullptr ? name : host;
  return node.substr(0, node.find('.'));
}

std::string place(const Settings& settings) {
  std::string socket = settings.socket;
  const auto at = socket.find("%n");
  return at == std::string::npos ? socket : socket.replace(at, 2, node_name());
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
  if (answer.status == 0 || answer.status == kUnfit) return false;
  asking = false;
  told = answer.status == 200;
  if (told) {
    apply(handle, answer.body);
  } else {
    refusal = answer.body;
  }
  return true;
}

void settle(const Answer& answer) {
  settled->status = answer.status;
  const std::size_t size = std::min(answer.body.size(), sizeof settled->text - 1);
  std::memcpy(settled->text, answer.body.data(), size);
  settled->text[size] = '\0';
  settled->done = true;
}

std::string sentence(GivenBack given, const std::string& node) {
  switch (given) {
    case GivenBack::queued:
      return ": the job goes back to the queue";
    case GivenBack::not_wanted:
      return ": the job ends, as it may not be requeued (--no-requeue)";
    default:
      return ": try again; node " + node + " takes no more jobs until it does";
  }
}

// The agent's answer or, where it has none, why no task may start. One that is away while slurmctld
// is, too, can neither be done without nor be reported: then both are waited for.
Answer wait_for_share(spank_t handle, const Settings& settings) {
  const std::string socket = place(settings);
  const std::string node = node_name();
  for (;;) {
    const long left = deadline - now_ms();
    Answer answer = ask_agent(socket, "/v1/slurm/grant", about(handle),
                              left > 0 ? static_cast<int>(left) : kLastWord);
    if (answer.status != 0 && answer.status != kUnfit) return answer;
    const std::string trouble =
        answer.status == kUnfit
            ? "the node agent cannot hold shares (" + answer.body + ")"
            : "the node agent does not answer at " + socket + " (" + answer.body + ")";
    if (!settings.refuse) {
      say("%s: the share of a GPU is not held", trouble.c_str());
      return {200, ""};
    }
    const auto takes = takes_jobs(node);
    if (!takes) continue;
    // It may have been waiting for the same slurmctld.
    answer = ask_agent(socket, "/v1/slurm/grant", about(handle), kLastWord);
    if (answer.status != 0 && answer.status != kUnfit) return answer;
    if (*takes) drain_node(node, answer.status == 0 ? ALIQUOT_DRAIN_SILENT : ALIQUOT_DRAIN_UNFIT);
    const bool began = item(handle, S_JOB_STEPID) != kBatch;
    const GivenBack given = give_back(item(handle, S_JOB_ID), began);
    if (given == GivenBack::unreachable) continue;
    return {409, trouble + sentence(given, node)};
  }
}

}  // namespace

void enter_step(spank_t handle, const Settings& settings) {
  // Processes that come in by ssh have no environment of ours to be given. The batch script and
  // salloc's shell are steps like any other.
  const std::uint32_t step = item(handle, S_JOB_STEPID);
  if (step == kExtern || step == kPending || !has_gpu(handle)) return;
  stepd = getpid();
  asking = true;
  void* memory =
      mmap(nullptr, sizeof(Settled), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) settled = static_cast<Settled*>(memory);
  deadline = now_ms() + settings.timeout_ms;
  connection = send_request(place(settings), "/v1/slurm/grant", about(handle));
}

void begin_tasks(spank_t handle, const Settings& settings) {
  if (!asking || connection < 0) return;
  const int patience = holds_shards(handle) ? settings.timeout_ms : kWholePatience;
  take(handle, take_answer(std::exchange(connection, -1), patience));
}

void settle_tasks(spank_t handle, const Settings& settings) {
  if (!asking || settled == nullptr || settled->done) return;
  if (holds_shards(handle)) {
    const Answer answer = wait_for_share(handle, settings);
    told = answer.status == 200;
    return settle(answer);
  }
  // Whole GPUs that Slurm itself gave need nothing of the agent.
  const std::string socket = place(settings);
  const Answer answer = ask_agent(socket, "/v1/slurm/grant", about(handle), 0);
  const bool answered = answer.status != 0 && answer.status != kUnfit;
  told = answer.status == 200;
  if (!answered) {
    say("the node agent does not answer at %s (%s): a share of a GPU would not be held",
        socket.c_str(), answer.body.c_str());
  }
  settle(answered ? answer : Answer{200, ""});
}

void enter_task(spank_t handle) {
  if (asking && (settled == nullptr || !settled->done)) refusal = "there is no word of its GPU";
  if (asking && refusal.empty()) take(handle, {settled->status, settled->text});
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
