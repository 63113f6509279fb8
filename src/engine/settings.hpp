// Every setting of the daemon, with a default for each: it runs with no file at all. The file is
// TOML; whatever is unknown, of the wrong type or out of range is refused with its line.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/slurm_time.hpp"
#include "base/time.hpp"
#include "base/units.hpp"
#include "core/fair_share.hpp"
#include "core/watchdog.hpp"
#include "engine/partition.hpp"
#include "node/enforce_settings.hpp"
#include "show/door.hpp"

namespace aliquot::engine {

// What may be asked of the daemon, so that nobody's requests exhaust it. Slurm's names and defaults
// where it has them.
struct Limits {
  std::int64_t job_count = 10'000;                 // MaxJobCount: waiting and running, all users'
  std::optional<std::int64_t> jobs_per_user = {};  // MaxSubmitJobs; absent: half of job_count
  std::int64_t array_size = 1'001;                 // MaxArraySize: one more than the last index
  std::int64_t dependencies = 1'000;               // of one job
  Bytes script = mib(4);                           // max_script_size
  Bytes environment = mib(2);  // with the arguments: the kernel starts no program with more
  // Scripts, environments, arguments and records that are kept until min_job_age after the end.
  Bytes stored_per_user = mib(256);
  std::int64_t records_per_user = 100'000;  // of jobs; of those that are over the oldest go
  std::int64_t steps = 40'000;              // MaxStepCount: of one job

  [[nodiscard]] std::int64_t most_per_user() const {
    return jobs_per_user.value_or(std::max<std::int64_t>(job_count / 2, 1));
  }
  friend bool operator==(const Limits&, const Limits&) = default;
};

// Who is next: Slurm's priority/multifactor. Weights are its PriorityWeight*.
struct PrioritySettings {
  core::PriorityWeights weights = {};
  Millis half_life = days(7);  // PriorityDecayHalfLife; 0: nothing fades
  // By users' names; who is not named has one.
  std::map<std::string, std::int64_t> shares = {};
  friend bool operator==(const PrioritySettings&, const PrioritySettings&) = default;
};

// Exit codes of a job's script, both ends included.
struct ExitRange {
  int first = 1;
  int last = 1;
  friend bool operator==(const ExitRange&, const ExitRange&) = default;
};
bool contains(const std::vector<ExitRange>& ranges, int code);

struct Settings {
  std::string cluster = "aliquot";
  std::string node = {};                  // empty: the host's name
  std::optional<std::int64_t> cpus = {};  // absent: what the machine has
  std::optional<Bytes> memory = {};
  std::vector<Partition> partitions = usual_partitions();

  // Shares are exact, so packing them costs nobody anything and leaves whole GPUs for those who
  // need one. least-occupied spreads instead.
  std::string policy = "aliquot";
  Compute compute_limit = kWholeGpu;  // that may be granted on each GPU
  std::int64_t mps_per_gpu = 100;
  std::int64_t shards_per_gpu = 8;
  std::string simulate = {};  // "h200:4": the stand-in's GPUs

  node::EnforceSettings enforce = {};
  Millis watch_interval = core::kWatchInterval;  // between two looks, while there are shares
  std::string library = {};                      // libaliquot.so; empty: where it was installed

  // For jobs that say none, in partitions that say none: without ends to come nothing can be
  // planned, and whatever waits for many GPUs keeps those that are free.
  TimeLimit default_time = {hours(24)};
  // For jobs that say none. Absent: nothing is set aside and nothing enforced, as in a Slurm that
  // does not count memory.
  std::optional<Bytes> memory_per_cpu = {};
  // What one user's running jobs may hold at once, where no QOS says.
  std::optional<Compute> gpus_per_user = {};
  bool shares_in_reservations = false;  // parts of a GPU nowhere else
  // Processes and threads of one job. Absent: 15 % of what the machine can have; 0: no limit.
  std::optional<std::int64_t> processes = {};
  // Batch jobs that end with these go back to the queue (RequeueExit), or are held there
  // (RequeueExitHold).
  std::vector<ExitRange> requeue_exit = {};
  std::vector<ExitRange> requeue_exit_hold = {};
  Millis kill_wait = seconds(30);
  Millis min_job_age = seconds(300);       // for which what is over stays in squeue's sight
  std::int64_t first_id = 1;               // FirstJobId: of a record without jobs
  std::optional<Millis> purge_after = {};  // after which it leaves sacct's; absent: never
  Limits limits = {};
  PrioritySettings priority = {};
  std::int64_t connections = 8192;
  std::int64_t connections_per_user = 2048;

  Millis sample_interval = seconds(1);        // while jobs run
  Millis idle_sample_interval = seconds(10);  // while none does
  Millis stale_after = seconds(30);           // a GPU unheard of for so long counts as busy

  std::string mail_program = "/usr/sbin/sendmail";  // with sendmail's options; empty: no mail
  std::string mail_domain = {};                     // behind users that have none (MailDomain)
  std::string events_command = {};                  // run at each event of each job; empty: none
  std::string events_user = "nobody";
  show::Listen page = {};
  bool user_metrics = true;      // whether figures are told by user and account
  std::string job_mapping = {};  // the folder of dcgm-exporter's job mapping files; empty: none

  std::string log_level = "info";
  std::string log_file = {};  // empty: stderr
};

// Takes over what can change while the daemon runs; by their names in the file what did change, and
// what is different but needs a restart.
struct Reloaded {
  std::vector<std::string> changed;
  std::vector<std::string> needs_restart;
};
Reloaded reload_settings(Settings& current, const Settings& next);

// `name` stands in messages: "/etc/aliquot/aliquot.toml:7: …".
Result<Settings> parse_settings(std::string_view text, std::string_view name);
// A file that is not there is an error.
Result<Settings> load_settings(const std::string& path);

}  // namespace aliquot::engine
