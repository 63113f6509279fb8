// The words spoken on the daemon's socket: what clients send and what they get back, as plain
// values. JSON and C++ have the same names; json.hpp converts. Integers everywhere: bytes, basis
// points, milliseconds since the epoch. An absent optional is absent in JSON. Fields are only ever
// added.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace aliquot::api {

inline constexpr int kVersion = 1;

struct SignalRequest {
  int number = 0;              // e.g. SIGUSR1
  std::int64_t before_s = 60;  // so long before the time limit
  bool batch_only = false;     // B: the batch shell alone
};

// A resource limit of a process.
struct LimitInfo {
  int resource = 0;                  // as the kernel counts them: RLIMIT_NOFILE
  std::optional<std::int64_t> soft;  // absent: unlimited
  std::optional<std::int64_t> hard;
};

// What sbatch, srun and salloc submit. Options that only Slurm's accounting knows are recorded, not
// interpreted. GPU options travel as the user wrote them; core/request_parse reads them once.
struct JobSpec {
  std::string name;
  std::string partition;
  std::string account;
  std::string qos;
  std::string comment;
  std::string reservation;
  std::string licenses;
  std::string wckey;
  std::string mail_type;
  std::string mail_user;

  bool batch = true;                   // false: srun or salloc, the client runs the processes
  std::string script;                  // batch: the text, frozen at submission
  std::vector<std::string> arguments;  // of the script
  std::string command;                 // for display: the script's path, or the command
  std::string work_dir;
  std::vector<std::string> environment;  // K=V, after --export
  bool login_environment = false;        // --export=NONE, --get-user-env
  std::optional<std::string> std_out;    // patterns, e.g. slurm-%j.out
  std::optional<std::string> std_err;
  std::optional<std::string> std_in;
  bool append = false;  // --open-mode
  std::uint32_t umask = 0022;
  std::vector<std::string> propagate = {};  // the names of the limits that go with the job: NOFILE
  std::vector<LimitInfo> limits = {};       // of who submitted it; the daemon asks the kernel
  std::string submit_host;

  std::optional<std::int64_t> time_limit_ms;  // absent: the default's
  bool no_time_limit = false;                 // --time=UNLIMITED
  std::optional<std::int64_t> begin_ms;
  std::optional<std::int64_t> deadline_ms;
  bool hold = false;
  bool requeue = true;
  std::int64_t nice = 0;
  std::optional<std::int64_t> priority;
  std::string dependency;  // as written: afterok:7:8,singleton
  bool kill_on_invalid_dependency = false;
  std::string array;  // as written: 0-15:4%2
  std::optional<SignalRequest> signal;
  bool immediate = false;        // srun -I: now or never
  bool detached = false;         // salloc --no-shell: lives on without its client
  std::int64_t immediate_s = 0;  // with immediate: within so many seconds
  // Of an array, by update only: so many elements at once, 0 for all.
  std::optional<std::int64_t> array_throttle;

  std::int64_t nodes = 1;
  std::optional<std::int64_t> ntasks;
  std::optional<std::int64_t> ntasks_per_node;
  std::optional<std::int64_t> cpus_per_task;
  std::optional<std::int64_t> memory;  // bytes for the job; 0: all
  std::optional<std::int64_t> memory_per_cpu;
  std::optional<std::int64_t> memory_per_gpu;
  std::optional<std::int64_t> min_cpus;  // however many its tasks make
  bool overcommit = false;               // -O: the tasks share what one of them asks for
  bool exclusive = false;                // all CPUs and all GPUs
  bool oversubscribe = false;            // -s: shown, and no more: shares are asked for
  std::string nodelist;                  // the machine's name, or nothing
  std::string exclude;
  std::string constraint;
  std::optional<std::string> gres;
  std::optional<std::string> gpus;
  std::optional<std::string> gpus_per_node;
  std::optional<std::string> gpus_per_task;
  std::optional<std::string> gpu_mem;
  std::optional<std::string> gpu_share;
};

// What a job holds of one GPU.
struct GpuHold {
  std::int64_t index = 0;  // on the machine, as nvidia-smi counts
  std::string uuid;
  std::string model;
  std::int64_t memory = 0;
  std::int64_t compute = 0;  // 1/10,000
  bool whole = false;
  std::string node = {};       // where there are several
  std::string container = {};  // of a pod
};

struct StepInfo {
  std::int64_t job_id = 0;
  std::string id;  // "batch", "0", "1", …
  std::string name;
  std::string state;
  std::int64_t start_ms = 0;
  std::optional<std::int64_t> end_ms;
  int exit_code = 0;
  int exit_signal = 0;
  std::int64_t ntasks = 1;
  std::int64_t cpus = 1;
  std::int64_t user_cpu_ms = 0;
  std::int64_t system_cpu_ms = 0;
  std::int64_t max_rss = 0;
  std::vector<std::string> gpus = {};  // UUIDs, where it asked for some of its job's
};

// A job as anyone may see it. Of another user's job the script, the environment and the paths stay
// empty.
struct JobInfo {
  std::int64_t id = 0;
  std::optional<std::int64_t> array_job_id;
  std::optional<std::int64_t> array_task_id;
  std::string array_pending;  // "1-6%2" for the record that stands for elements not started yet
  std::int64_t array_count = 0;
  std::int64_t array_min = 0;
  std::int64_t array_max = 0;
  std::int64_t array_step = 1;
  std::int64_t array_throttle = 0;  // so many elements at once; 0: all

  std::string name;
  std::string user;
  std::uint32_t uid = 0;
  std::string group;
  std::uint32_t gid = 0;
  std::string account;
  std::string partition;
  std::string qos;
  std::string comment;
  std::string reservation;

  std::string state;                          // Slurm's long name: PENDING, RUNNING, …
  std::string reason = "None";                // Slurm's word
  std::string reason_detail;                  // ours, a sentence
  std::optional<std::uint32_t> cancelled_by;  // uid
  std::int64_t priority = 0;
  std::int64_t nice = 0;
  std::string dependency;  // what is left of it
  bool requeue = true;
  std::int64_t restarts = 0;
  bool batch = true;
  int exit_code = 0;
  int exit_signal = 0;
  int derived_exit_code = 0;
  int derived_exit_signal = 0;

  std::int64_t submit_ms = 0;
  std::int64_t eligible_ms = 0;
  std::optional<std::int64_t> start_ms;  // expected, while pending
  std::optional<std::int64_t> end_ms;    // expected, while running
  std::optional<std::int64_t> time_limit_ms;
  std::optional<std::int64_t> suspend_ms;
  std::int64_t suspended_total_ms = 0;
  std::optional<std::int64_t> deadline_ms;

  std::int64_t ntasks = 1;
  std::int64_t ntasks_per_node = 0;
  std::int64_t cpus_per_task = 1;
  std::int64_t cpus = 1;
  std::int64_t memory = 0;
  std::string gres;  // the GPU request in canonical words
  std::string constraint;
  std::string node;  // where it runs
  std::vector<GpuHold> gpus;
  std::string enforcement;  // how it is held to that: "mps(user)+library+leases+watchdog"

  std::string command;
  std::string work_dir;
  std::string std_out;
  std::string std_err;
  std::string std_in;
  std::string submit_host;
  std::vector<StepInfo> steps;

  // Accounting, once it has run.
  std::int64_t user_cpu_ms = 0;
  std::int64_t system_cpu_ms = 0;
  std::int64_t max_rss = 0;
  std::int64_t gpu_ms = 0;  // GPU time: measured in the job, else compute share × time
  std::int64_t gpu_memory_peak = 0;
  std::int64_t gpu_utilisation = 0;  // mean, 1/10,000

  std::string pod;  // of Kubernetes, `namespace/name`: its id is a number for this answer alone

  // As it was asked for.
  std::string wckey;
  std::string nodelist;
  std::string exclude;
  std::string oversubscribe = "OK";        // NO: exclusive; YES: -s
  std::int64_t min_cpus = 1;               // however many its tasks make
  std::optional<std::int64_t> min_memory;  // for the job, or
  bool memory_by_cpu = false;              // for each CPU
  std::string mail_type;
  std::string mail_user;
  bool kill_on_invalid_dependency = false;
  bool usual_limit = false;  // nobody said how long it may take
};

struct GpuProcess {
  std::int64_t pid = 0;  // 0: not told; of a container all together
  std::string user;
  std::string command;
  std::int64_t memory = 0;
  std::optional<std::int64_t> job_id;  // absent: foreign
};

// What a job does on a GPU that it holds, as measured: by the library in it where there is one, so
// that it is right under MPS, too; else by what the driver says of its processes.
struct GpuUse {
  std::int64_t job_id = 0;
  std::int64_t memory = 0;
  std::int64_t memory_peak = 0;
  std::optional<std::int64_t> utilisation = {};  // lately, 1/10,000 of the GPU
  std::optional<std::int64_t> gpu_ms = {};       // GPU time since its start
  std::int64_t waited_ms = 0;  // kept waiting, so that it has its share and no more
  std::int64_t refusals = 0;   // allocations refused because of its limit
  std::string container = {};  // of a pod
};

struct GpuInfo {
  std::int64_t index = 0;
  std::string uuid;
  std::string model;
  bool simulated = false;
  std::string health;
  std::int64_t memory = 0;
  std::int64_t memory_granted = 0;
  std::int64_t memory_used = 0;
  std::int64_t compute_limit = 10'000;
  std::int64_t compute_granted = 0;
  std::int64_t utilisation = 0;
  bool stale = false;
  bool whole = false;
  std::vector<std::int64_t> jobs;
  std::vector<GpuProcess> processes;
  std::string reason = {};  // why it takes no new jobs, who said so and since when
  std::string reason_user = {};
  std::int64_t reason_ms = 0;
  std::string mig = {};  // the profile of a slice; empty: it is none
  std::optional<std::int64_t> power_mw = {};
  std::optional<std::int64_t> temperature = {};  // degrees Celsius
  std::optional<std::int64_t> energy_mj = {};    // since the driver was loaded
  std::vector<GpuUse> uses = {};
};

struct NodeInfo {
  std::string name;
  std::string state;   // idle mixed allocated drained draining down
  std::string reason;  // why it is drained, by whom and since when
  std::string reason_user;
  std::int64_t reason_ms = 0;
  std::int64_t cpus = 0;
  std::int64_t cpus_allocated = 0;
  std::int64_t memory = 0;
  std::int64_t memory_allocated = 0;
  std::int64_t boot_ms = 0;
  std::int64_t daemon_start_ms = 0;
  std::string os;
  std::vector<GpuInfo> gpus;
  std::string driver = {};        // its version
  std::int64_t mps_restarts = 0;  // servers that died and were started again, since the start
};

struct PartitionInfo {
  std::string name;
  bool is_default = true;
  bool up = true;
  std::optional<std::int64_t> max_time_ms;
  std::optional<std::int64_t> default_time_ms;
  std::vector<std::string> users = {};  // who may use it; with both empty everybody
  std::vector<std::string> groups = {};
  std::vector<std::int64_t> gpus = {};         // by index; empty: all
  std::optional<std::int64_t> gpu_count = {};  // so many at once
  std::string qos = {};                        // whose limits its jobs have besides their own
  std::int64_t tier = 1;                       // jobs of a higher one start first
  std::int64_t job_factor = 1;                 // of all partitions', in a priority
  std::string preempt_mode = "OFF";  // what becomes of its jobs where those need their room
  std::int64_t grace_ms = 0;         // so long they have then
};

// One way of holding jobs to their shares, strongest first.
struct BackendInfo {
  std::string name;
  bool used = false;
  std::string detail;  // what it does, or why it is not used
};

struct ClusterInfo {
  int version = kVersion;
  std::string daemon_version;
  std::string cluster;
  bool one_user = false;  // started by an ordinary user, for that user alone
  bool simulated = false;
  std::string policy;
  std::string cgroup;  // "v2", "v1", "none: why"
  std::vector<BackendInfo> enforcement;
  NodeInfo node;
  std::vector<PartitionInfo> partitions;
  std::map<std::string, std::string> config;  // for scontrol show config
  std::string engine;                         // "slurm", "kubernetes"; empty: the embedded one
  std::vector<NodeInfo> nodes;                // of a cluster; empty: `node` is all there is
};

// Both at once: what `aliquot status --json` prints, and `aliquot-slurm view` and `aliquot-kube
// view` answer.
struct Overview {
  ClusterInfo cluster;
  std::vector<JobInfo> jobs;
};

struct Submitted {
  std::int64_t job_id = 0;
};

// The answer to an interactive job once it runs, and to a new step inside a job: what the client
// needs to run the processes itself. The daemon has moved the calling process into the job's
// cgroup.
struct Allocation {
  std::int64_t job_id = 0;
  std::optional<std::int64_t> step_id;
  std::vector<std::string> environment;  // SLURM_*, CUDA_VISIBLE_DEVICES, …: added to the caller's
  JobInfo job;
};

struct StepSpec {
  std::string name;
  std::int64_t ntasks = 1;
  std::int64_t cpus_per_task = 1;
  bool overlap = false;
  bool overcommit = false;
  // Some of the job's GPUs for this step alone, as the user wrote it; nothing said: all of them,
  // beside the other steps.
  std::optional<std::string> gres = {};
  std::optional<std::string> gpus = {};
  std::optional<std::string> gpus_per_node = {};
  std::optional<std::string> gpus_per_task = {};
};

struct StepEnd {
  int exit_code = 0;
  int exit_signal = 0;
  std::int64_t user_cpu_ms = 0;
  std::int64_t system_cpu_ms = 0;
  std::int64_t max_rss = 0;
  bool out_of_memory = false;  // the kernel ended some of it
  bool timed_out = false;      // its own time limit did, inside a job
};

struct CancelSpec {
  int signal = 0;      // 0: end the job
  bool batch = false;  // -b
  bool full = false;   // -f
};

// What became of settings that were read anew, by their names in the file.
struct Reconfigured {
  std::vector<std::string> changed;
  std::vector<std::string> needs_restart;
};

// Why the machine, or some of its GPUs, take no new jobs.
struct DrainSpec {
  std::string reason;
  std::vector<std::int64_t> gpus = {};  // by index; empty: the machine
  bool down = false;                    // of GPUs: what runs on them is ended, too
};

// Some GPUs for some people from then until then.
struct ReservationInfo {
  std::string name;
  std::int64_t start_ms = 0;
  std::int64_t end_ms = 0;
  std::vector<std::string> users = {};
  std::vector<std::string> accounts = {};
  std::vector<std::int64_t> gpus = {};  // by index

  friend bool operator==(const ReservationInfo&, const ReservationInfo&) = default;
};
// What scontrol asks for; what is absent stays, or is as usual.
struct ReservationSpec {
  std::string name;
  std::optional<std::int64_t> start_ms = {};
  std::optional<std::int64_t> end_ms = {};
  std::optional<std::int64_t> duration_ms = {};
  std::optional<std::vector<std::string>> users = {};
  std::optional<std::vector<std::string>> accounts = {};
  std::optional<std::int64_t> gpu_count = {};  // which ones is the daemon's choice
  std::optional<std::vector<std::int64_t>> gpus = {};
  bool ignore_jobs = false;  // it may begin while jobs of others are still there
};
struct ReservationList {
  std::vector<ReservationInfo> reservations;
};

// Why a job waits, for people.
struct WhyInfo {
  std::int64_t job_id = 0;
  std::string state;
  std::string reason;
  std::vector<std::string> sentences;
  std::optional<std::int64_t> earliest_start_ms;
  std::string pod = {};  // instead of the job's number
};

// What a waiting job's priority is made of. Factors are in 1/10,000,000, and weighted as they
// count.
struct FactorInfo {
  std::int64_t factor = 0;
  std::int64_t weighted = 0;
};
struct PriorityInfo {
  std::int64_t job_id = 0;
  std::string user;
  std::uint32_t uid = 0;
  std::string account;
  std::string partition;
  std::string qos;
  std::int64_t priority = 0;
  std::int64_t site = 0;  // set by an administrator: nothing else counts
  FactorInfo age;
  FactorInfo fair_share;
  FactorInfo job_size;
  FactorInfo partition_factor;
  FactorInfo qos_factor;
  std::int64_t nice = 0;
};
struct PriorityList {
  PriorityInfo weights;  // in `weighted`
  std::vector<PriorityInfo> jobs;
};

// What a user has had and may have. Parts of all are in 1/1,000,000, usage in thousandths of a
// second of a GPU, what has faded of it taken off.
struct ShareInfo {
  std::string user;
  std::uint32_t uid = 0;
  std::string account;
  std::int64_t shares = 1;
  std::int64_t norm_shares = 0;
  std::int64_t usage_ms = 0;
  std::int64_t norm_usage = 0;
  std::int64_t factor = 0;        // of fair share
  std::int64_t held = 0;          // now, in 1/10,000 of a GPU
  std::int64_t held_cpu_min = 0;  // of what runs, until its limits: CPU and GPU minutes
  std::int64_t held_gpu_min = 0;
};
struct ShareList {
  std::vector<ShareInfo> users;
};

// A token is its user's right to act where the kernel does not say who asks: on the page.
struct TokenSpec {
  std::int64_t for_s = 8 * 3600;
};
struct TokenInfo {
  std::string token;
  std::int64_t expires_ms = 0;
  std::string address;  // of the page, without the token; empty: nobody listens
};
// Who asks, as far as that is known.
struct CallerInfo {
  std::string user;
  std::optional<std::uint32_t> uid;
  bool admin = false;
};
// Some of what a job has written, and where in the file that is.
struct LogPart {
  std::string path;
  std::string text;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// An error's code names Slurm's own error where there is one: the commands print its text.
struct ErrorInfo {
  std::string code;  // e.g. ESLURM_INVALID_PARTITION_NAME
  std::string message;
};

}  // namespace aliquot::api
