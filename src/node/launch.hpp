// What the daemon and aliquot-stepd tell each other, through files in jobs/ID/: Launch
// (launch.json, what to run), Command (lines in the fifo control, what to do with it), ExitRecord
// (exit.json, how it ended). Both sides may be of different versions for as long as a job runs:
// fields are only ever added, unknown ones are ignored, missing ones keep their defaults.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "gpu/mps_pipe.hpp"
#include "node/group_paths.hpp"
#include "node/spawn.hpp"

namespace aliquot::node {

struct EarlySignal {  // --signal
  int number = 0;
  std::int64_t before_s = 60;
  bool batch_only = false;
};

struct Launch {
  std::int64_t job_id = 0;
  std::int64_t attempt = 0;  // restarts so far; comes back in ExitRecord
  std::string node;          // the host's name in messages to the user
  std::string mark;          // make_mark(): in the environment as well

  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::vector<std::uint32_t> groups;
  std::string script;                    // absolute; its first line decides who runs it
  std::vector<std::string> arguments;    // behind the script's name
  std::vector<std::string> environment;  // all of it; stepd adds only SLURM_TASK_PID
  std::string work_dir;
  std::string std_in;  // empty: /dev/null. Patterns are expanded already; relative to work_dir
  std::string std_out;
  std::string std_err;  // empty: with std_out
  bool append = false;
  std::uint32_t umask = 0022;
  std::vector<ResourceLimit> limits;
  GroupPaths group;  // made by the daemon; only the job's processes join it

  std::optional<std::int64_t> time_limit_ms;  // of running time: suspended time does not count
  std::int64_t kill_wait_ms = 30'000;
  std::optional<EarlySignal> signal;
  std::optional<gpu::MpsPipe> mps;  // of the server that the job's processes are clients of
};

enum class EndReason : std::uint8_t {
  none,           // it ended by itself
  timeout,        // the time limit
  cancelled,      // a cancel command, or SIGTERM to stepd
  oom,            // the kernel killed some of it for memory
  launch_failed,  // it never ran: detail says why
};
std::string_view to_string(EndReason reason);

// How the batch script ended and what all of the job used. For launch_failed because of a file:
// exit_signal 53, as in Slurm. A script that cannot be executed has the errno as its exit code, and
// launch_failed too.
struct ExitRecord {
  std::int64_t job_id = 0;
  std::int64_t attempt = 0;
  int exit_code = 0;
  int exit_signal = 0;
  EndReason reason = EndReason::none;
  std::string detail;  // one line, for people
  std::int64_t start_ms = 0;
  std::int64_t end_ms = 0;
  std::int64_t suspended_ms = 0;
  std::int64_t user_cpu_ms = 0;
  std::int64_t system_cpu_ms = 0;
  std::int64_t max_rss = 0;  // bytes: the group's peak, or the largest process where there is none
  std::int64_t oom_kills = 0;
  std::int64_t leftovers = 0;  // processes that outlived the script and were killed
  // Added by the daemon, not by stepd: what the library in the job measured.
  std::optional<std::int64_t> gpu_ms = {};
  std::optional<std::int64_t> gpu_memory_peak = {};
};

std::string to_json(const Launch& launch);
Result<Launch> launch_from_json(std::string_view text);
std::string to_json(const ExitRecord& record);
Result<ExitRecord> exit_from_json(std::string_view text);

// Whom a signal is for: scancel -s goes to the steps, with -b to the batch shell, with -f to all.
enum class Target : std::uint8_t { steps, batch, all };

struct CancelCommand {
  std::string cause = {};  // behind the time in the message: "DUE TO PREEMPTION"; empty: none
  // From SIGTERM to SIGKILL, where that is less than the kill wait: who was told before.
  std::optional<Millis> patience = {};
};
struct SignalCommand {
  int number = 0;
  Target target = Target::steps;
};
struct SuspendCommand {};
struct ResumeCommand {};
struct LimitCommand {
  std::optional<Millis> limit = {};  // of running time from the start; absent: none
};
using Command =
    std::variant<CancelCommand, SignalCommand, SuspendCommand, ResumeCommand, LimitCommand>;

// One line with its end.
std::string to_line(const Command& command);
Result<Command> command_from_line(std::string_view line);

}  // namespace aliquot::node
