// The SPANK plugin: `--gpu-mem` and `--gpu-share` for sbatch, srun and salloc, and in each step the
// view of its GPU that the node agent gives. One file for each Slurm context; dispatch.cpp calls
// them. Needs libc and Slurm's spank.h, nothing of ours: it is loaded into Slurm's programs.
//
// It never fails a hook: a plugin that does takes slurmstepd, and with it perhaps the node, out of
// service. What must not run is ended in the task itself.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Not all of it says by itself that it is C.
extern "C" {
#include <slurm/spank.h>
}

namespace aliquot::spank {

// From plugstack.conf: `optional aliquot_spank.so socket=PATH without=refuse timeout=15000
// whole=a,b foreign=c*`.
struct Settings {
  std::string socket = "/run/aliquot/agent.sock";  // %n: the node's name
  bool refuse = true;                              // where the agent does not answer
  // For so long a step waits for the agent: one that answers nothing at all is killed and started
  // again by then, one that waits for its driver or slurmctld is not.
  int timeout_ms = 15000;
  // Partitions, with commas, the default one with a star: where a whole GPU is never booked as
  // shards, and where the GPUs are not ours.
  std::string whole;
  std::string foreign;
};
Settings read_settings(int argc, char** argv);

// options.cpp. In every context: the remote side must know what it is handed.
void register_options(spank_t handle);
bool asked_for_a_share();  // on this command line

// allocator.cpp: in srun, sbatch and salloc.
void check_request();

// words.cpp: there too. Jobs' words that become shards go beside Slurm's own.
void hand_over_words(spank_t handle, const Settings& settings);

// job.cpp: in slurmstepd. The question is sent when the step begins and the answer taken before its
// tasks do: what slurmstepd does in between takes longer. What has not been answered by then is
// settled for all tasks once they are forked: they wait for it.
void enter_step(spank_t handle, const Settings& settings);
void begin_tasks(spank_t handle, const Settings& settings);
void settle_tasks(spank_t handle, const Settings& settings);
void enter_task(spank_t handle);
void leave_step(spank_t handle, const Settings& settings);

// give_back.cpp: there too, where the node cannot hold a job. began: something of it has run.
enum class GivenBack {
  queued,
  not_wanted,    // --no-requeue
  not_possible,  // Slurm requeues batch jobs alone; or what it says is final all the same
  unreachable,   // slurmctld does not answer
};
GivenBack give_back(std::uint32_t job, bool began);
std::optional<bool> takes_jobs(const std::string& node);  // nothing: slurmctld does not answer
void drain_node(const std::string& node, const char* why);

// agent.cpp
struct Answer {
  int status = 0;  // of HTTP; 0: nobody answered, and body says why
  std::string body;
};
// 503: it answers that it cannot hold shares now.
inline constexpr int kUnfit = 503;
// Tries again while nobody listens or it cannot, for as long as the timeout is; at least once.
Answer ask_agent(const std::string& socket, std::string_view path, std::string_view body,
                 int timeout_ms);
// The same in two parts: a connection with the request on its way, or -1; and its answer.
int send_request(const std::string& socket, std::string_view path, std::string_view body);
Answer take_answer(int connection, int timeout_ms);

// Every message begins with our name.
void say(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace aliquot::spank
