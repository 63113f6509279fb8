#include "cli/view/squeue_fields.hpp"

#include <algorithm>
#include <array>
#include <compare>
#include <iterator>
#include <limits>

namespace aliquot::cli {
namespace {

using api::JobInfo;
using Context = ViewContext;
using Out = std::string;

template <class Number>
void number(Out& out, Number value) {
  fmt::format_to(std::back_inserter(out), "{}", value);
}

void text_or(Out& out, std::string_view text, std::string_view otherwise) {
  out += text.empty() ? otherwise : text;
}

// Fields that we do not have print what Slurm prints when they are not set.
constexpr auto kNull = [](Out& out, const JobInfo&, const Context&) { out += "(null)"; };
constexpr auto kNa = [](Out& out, const JobInfo&, const Context&) { out += "N/A"; };
constexpr auto kZero = [](Out& out, const JobInfo&, const Context&) { out += '0'; };
constexpr auto kStar = [](Out& out, const JobInfo&, const Context&) { out += '*'; };
constexpr auto kNothing = [](Out&, const JobInfo&, const Context&) {};

void time_left(Out& out, const JobInfo& job, const Context& context) {
  if (!job.time_limit_ms) {
    out += "UNLIMITED";
  } else {
    out += format_duration(Millis(*job.time_limit_ms) - time_used(job, context.now),
                           TimeStyle::squeue);
  }
}

void end_time(Out& out, const JobInfo& job, const Context&) {
  append_time(out, job.end_ms, is_active(job) && !job.time_limit_ms ? "NONE" : "N/A");
}

void array_task(Out& out, const JobInfo& job, const Context&) {
  if (job.array_task_id) {
    number(out, *job.array_task_id);
  } else {
    text_or(out, job.array_pending, "N/A");
  }
}

// Of a job that may not begin before a time, and of which no better is known: that time.
std::optional<std::int64_t> start(const JobInfo& job) {
  return job.start_ms || job.reason != "BeginTime" ? job.start_ms : job.eligible_ms;
}

void pending_time(Out& out, const JobInfo& job, const Context& context) {
  const auto until = is_pending(job) ? context.now.ms() : job.start_ms.value_or(job.submit_ms);
  number(out, std::max<std::int64_t>(0, until - job.submit_ms) / 1'000);
}

// clang-format off
#define TEXT(expression) [](Out& out, const JobInfo& job, const Context&) { (void)job; out += expression; }
#define OR(text, otherwise) [](Out& out, const JobInfo& job, const Context&) { text_or(out, text, otherwise); }
#define OR_NULL(member) OR(job.member, "(null)")
#define NUMBER(expression) [](Out& out, const JobInfo& job, const Context&) { number(out, expression); }
#define TIME(expression) [](Out& out, const JobInfo& job, const Context&) { append_time(out, expression, "N/A"); }

constexpr auto kSqueueFields = std::to_array<ViewField<JobInfo>>({
    {'a', "Account", "ACCOUNT", OR_NULL(account)},
    {0, "AccrueTime", "ACCRUE_TIME", TIME(eligible_ms(job))},
    {0, "AdminComment", "ADMIN_COMMENT", kNothing},
    {0, "admin_comment", "ADMIN_COMMENT", kNothing},
    {0, "AllocNodes", "ALLOC_NODES", OR_NULL(submit_host)},
    {0, "AllocSid", "ALLOC_SID", kZero},
    {'F', "ArrayJobID", "ARRAY_JOB_ID", NUMBER(job.array_job_id.value_or(job.id))},
    {'K', "ArrayTaskID", "ARRAY_TASK_ID", array_task},
    {0, "AssocID", "ASSOC_ID", kZero},
    {0, "BatchFlag", "BATCH_FLAG", NUMBER(job.batch ? 1 : 0)},
    {'B', "BatchHost", "EXEC_HOST", OR(is_pending(job) ? std::string_view() : job.node, "n/a")},
    {0, "BoardsPerNode", "BOARDS_PER_NODE", kZero},
    {0, "BurstBuffer", "BURST_BUFFER", kNull},
    {0, "BurstBufferState", "BURST_BUFFER_STATE", kNull},
    {0, "Cluster", "CLUSTER", [](Out& out, const JobInfo&, const Context& context) { text_or(out, context.cluster, "N/A"); }},
    {0, "ClusterFeature", "CLUSTER_FEATURES", kNull},
    {'o', "Command", "COMMAND", OR_NULL(command)},
    {'k', "Comment", "COMMENT", OR_NULL(comment)},
    {'O', "Contiguous", "CONTIGUOUS", kZero},
    {0, "Container", "CONTAINER", kNull},
    {0, "ContainerID", "CONTAINER_ID", kNothing},
    {'I', "Cores", "CORES_PER_SOCKET", kStar},
    {'X', "CoreSpec", "CORE_SPEC", kNa},
    {0, "CPUFreq", "CPUFREQ", kNa},
    {0, "cpus-per-task", "CPUS_PER_TASK", NUMBER(job.cpus_per_task)},
    {0, "cpus-per-tres", "CPUS_PER_TRES", kNa},
    {0, "Deadline", "DEADLINE", TIME(job.deadline_ms)},
    {0, "DelayBoot", "DELAY_BOOT", TEXT("0:00")},
    {'E', "Dependency", "DEPENDENCY", OR_NULL(dependency)},
    {0, "DerivedEC", "DERIVED_EC", NUMBER(job.derived_exit_code)},
    {0, "EligibleTime", "ELIGIBLE_TIME", TIME(eligible_ms(job))},
    {'e', "EndTime", "END_TIME", end_time},
    {'x', "exc_nodes", "EXC_NODES", TEXT(job.exclude)},
    {0, "ExcNodes", "EXC_NODES", TEXT(job.exclude)},
    {0, "exit_code", "EXIT_CODE", NUMBER(job.exit_code)},
    {0, "ExitCode", "EXIT_CODE", NUMBER(job.exit_code)},
    {'f', "Feature", "FEATURES", OR_NULL(constraint)},
    {'G', "GroupID", "GROUP", NUMBER(job.gid)},
    {'g', "GroupName", "GROUP", OR_NULL(group)},
    {0, "HetJobID", "HET_JOB_ID", kNa},
    {0, "HetJobIDSet", "HET_JOB_ID_SET", kNa},
    {0, "HetJobOffset", "HET_JOB_OFFSET", kNa},
    {'i', "JobArrayID", "JOBID", [](Out& out, const JobInfo& job, const Context&) { append_job_id(out, job); }},
    {'A', "JobID", "JOBID", NUMBER(job.id)},
    {0, "LastSchedEval", "LAST_SCHED_EVAL", TIME(job.eligible_ms)},
    {'W', "Licenses", "LICENSES", kNull},
    {0, "MaxCPUs", "MAX_CPUS", NUMBER(job.cpus)},
    {0, "MaxNodes", "MAX_NODES", TEXT("1")},
    {0, "MCSLabel", "MCSLABEL", kNull},
    {0, "mem-per-tres", "MEM_PER_TRES", kNa},
    {'c', "MinCpus", "MIN_CPUS", NUMBER(std::max(job.min_cpus, job.cpus_per_task))},
    {'m', "MinMemory", "MIN_MEMORY", [](Out& out, const JobInfo& job, const Context& context) {
       out += memory_text(job.min_memory.value_or(job.memory), context.convert);
     }},
    {0, "MinTime", "MIN_TIME", TEXT("0:00")},
    {'d', "MinTmpDisk", "MIN_TMP_DISK", kZero},
    {'j', "Name", "NAME", TEXT(job.name)},
    {0, "Network", "NETWORK", kNull},
    {'y', "Nice", "NICE", NUMBER(job.nice)},
    {'N', "NodeList", "NODELIST", TEXT(job.node)},
    {0, "Nodes", "NODELIST", TEXT(job.node)},
    {0, "NTPerBoard", "NTASKS_PER_BOARD", kZero},
    {0, "NTPerCore", "NTASKS_PER_CORE", kNa},
    {0, "NTPerNode", "NTASKS_PER_NODE", NUMBER(job.ntasks_per_node)},
    {0, "NTPerSocket", "NTASKS_PER_SOCKET", kNa},
    {'C', "NumCPUs", "CPUS", NUMBER(job.cpus)},
    {'D', "NumNodes", "NODES", TEXT('1')},
    {0, "NumTasks", "TASKS", NUMBER(job.ntasks)},
    {0, "Origin", "ORIGIN", TEXT("NA")},
    {0, "OriginRaw", "ORIGIN_RAW", TEXT("NA")},
    {'h', "OverSubscribe", "OVER_SUBSCRIBE", TEXT(job.oversubscribe)},
    {'P', "Partition", "PARTITION", TEXT(job.partition)},
    {0, "PendingTime", "PENDING_TIME", pending_time},
    {0, "PreemptTime", "PREEMPT_TIME", kNa},
    {0, "Prefer", "PREFER", kNothing},
    {'p', "Priority", "PRIORITY", [](Out& out, const JobInfo& job, const Context&) {
       fmt::format_to(std::back_inserter(out), "{:.14f}",
                      static_cast<double>(job.priority) / std::numeric_limits<std::uint32_t>::max());
     }},
    {'Q', "PriorityLong", "PRIORITY", NUMBER(job.priority)},
    {0, "Profile", "PROFILE", TEXT("NotSet")},
    {'q', "QOS", "QOS", OR_NULL(qos)},
    {'r', "Reason", "REASON", TEXT(job.reason)},
    {'R', "ReasonList", "NODELIST(REASON)", [](Out& out, const JobInfo& job, const Context&) { append_node_or_reason(out, job); }},
    {0, "Reboot", "REBOOT", kZero},
    {'n', "ReqNodes", "REQ_NODES", TEXT(job.nodelist)},
    {0, "ReqSwitch", "REQ_SWITCH", kZero},
    {0, "Requeue", "REQUEUE", NUMBER(job.requeue ? 1 : 0)},
    {'v', "Reservation", "RESERVATION", OR_NULL(reservation)},
    {0, "ResizeTime", "RESIZE_TIME", kNa},
    {0, "RestartCnt", "RESTART_COUNT", NUMBER(job.restarts)},
    {0, "ResvPort", "RESV_PORT", kNa},
    {'Y', "SchedNodes", "SCHEDNODES", kNull, true},
    {'z', "SCT", "S:C:T", TEXT("*:*:*")},
    {'s', "SelectJobInfo", "", kNothing},
    {0, "SiblingsActive", "ACTIVE_SIBLINGS", TEXT("NA")},
    {0, "SiblingsActiveRaw", "ACTIVE_SIBLINGS_RAW", TEXT("NA")},
    {0, "SiblingsViable", "VIABLE_SIBLINGS", TEXT("NA")},
    {0, "SiblingsViableRaw", "VIABLE_SIBLINGS_RAW", TEXT("NA")},
    {'H', "Sockets", "SOCKETS_PER_NODE", kStar},
    {0, "SPerBoard", "SOCKETS_PER_BOARD", kZero},
    {'S', "StartTime", "START_TIME", TIME(start(job))},
    {'T', "State", "STATE", TEXT(job.state)},
    {'t', "StateCompact", "ST", TEXT(compact_state(job.state))},
    {0, "StdErr", "STDERR", TEXT(job.std_err)},
    {0, "StdIn", "STDIN", TEXT(job.std_in)},
    {0, "StdOut", "STDOUT", TEXT(job.std_out)},
    {'V', "SubmitTime", "SUBMIT_TIME", TIME(job.submit_ms)},
    {0, "system_comment", "SYSTEM_COMMENT", kNothing},
    {'J', "Threads", "THREADS_PER_CORE", kStar},
    {'L', "TimeLeft", "TIME_LEFT", time_left},
    {'l', "TimeLimit", "TIME_LIMIT", TEXT(format_time_limit(time_limit(job), TimeStyle::squeue)), true},
    {'M', "TimeUsed", "TIME", [](Out& out, const JobInfo& job, const Context& context) {
       out += format_duration(time_used(job, context.now), TimeStyle::squeue);
     }},
    {0, "tres", "TRES_ALLOC", TEXT(allocated_tres(job))},
    {0, "tres-alloc", "TRES_ALLOC", TEXT(allocated_tres(job))},
    {0, "tres-bind", "TRES_BIND", kNa},
    {0, "tres-freq", "TRES_FREQ", kNa},
    {0, "tres-per-job", "TRES_PER_JOB", kNa},
    {'b', "tres-per-node", "TRES_PER_NODE", OR(tres_per_node(job), "N/A")},
    {0, "gres", "TRES_PER_NODE", OR(tres_per_node(job), "N/A")},
    {0, "tres-per-socket", "TRES_PER_SOCKET", kNa},
    {0, "tres-per-step", "TRES_PER_STEP", kNa},
    {0, "tres-per-task", "TRES_PER_TASK", kNa},
    {'U', "UserID", "UID", NUMBER(job.uid)},
    {'u', "UserName", "USER", TEXT(job.user)},
    {0, "Wait4Switch", "WAIT4SWITCH", TEXT("0:00")},
    {'w', "WCKey", "WCKEY", OR_NULL(wckey)},
    {'Z', "WorkDir", "WORK_DIR", TEXT(job.work_dir)},
    // Ours: what it holds of each GPU, and the sentence behind the reason.
    {0, "GpuShare", "GPU_SHARE", OR(gpu_share_text(job), "N/A")},
    {0, "Why", "WHY", TEXT(job.reason_detail)},
});

#undef TEXT
#undef OR
#undef OR_NULL
#undef NUMBER
#undef TIME
// clang-format on

void step_id(Out& out, const StepRow& row, const Context&) {
  append_job_id(out, *row.job);
  out += '.';
  out += row.step->id;
}
void step_time(Out& out, const StepRow& row, const Context& context) {
  const auto end = row.step->end_ms.value_or(context.now.ms());
  out += format_duration(Millis(std::max<std::int64_t>(0, end - row.step->start_ms)),
                         TimeStyle::squeue);
}

// clang-format off
#define TEXT(expression) [](Out& out, const StepRow& row, const Context&) { (void)row; out += expression; }
#define NUMBER(expression) [](Out& out, const StepRow& row, const Context&) { number(out, expression); }

constexpr auto kStepFields = std::to_array<ViewField<StepRow>>({
    {'A', "ArrayJobID", "ARRAY_JOB_ID", NUMBER(row.job->array_job_id.value_or(row.job->id))},
    {'b', "gres", "TRES_PER_NODE", TEXT("N/A")},
    {'i', "StepID", "STEPID", step_id},
    {'j', "StepName", "NAME", TEXT(row.step->name)},
    {0, "Name", "NAME", TEXT(row.step->name)},
    {'l', "TimeLimit", "TIME_LIMIT", TEXT("UNLIMITED")},
    {'M', "TimeUsed", "TIME", step_time},
    {'N', "Nodes", "NODELIST", TEXT(row.job->node)},
    {'n', "NumTasks", "TASKS", NUMBER(row.step->ntasks)},
    {'C', "NumCPUs", "CPUS", NUMBER(row.step->cpus)},
    {'P', "Partition", "PARTITION", TEXT(row.job->partition)},
    {'S', "StartTime", "START_TIME", [](Out& out, const StepRow& row, const Context&) { append_time(out, row.step->start_ms, "N/A"); }},
    {'t', "StateCompact", "ST", TEXT(compact_state(row.step->state))},
    {'T', "StepState", "STATE", TEXT(row.step->state)},
    {'u', "UserName", "USER", TEXT(row.job->user)},
    {'U', "UserID", "USER", NUMBER(row.job->uid)},
});

#undef TEXT
#undef NUMBER
// clang-format on

using Order = std::strong_ordering;

// What has no time yet comes after everything that has one.
std::int64_t time_key(std::optional<std::int64_t> ms) {
  return ms && *ms > 0 ? *ms : std::numeric_limits<std::int64_t>::max();
}

// The letters of -S. Two jobs of ours never differ in the other fields.
struct SortField {
  std::string_view letters;
  Order (*compare)(const JobInfo& a, const JobInfo& b);
};
// clang-format off
#define BY(field) [](const JobInfo& a, const JobInfo& b) -> Order { return a.field <=> b.field; }
#define BY_TIME(field) [](const JobInfo& a, const JobInfo& b) -> Order { return time_key(a.field) <=> time_key(b.field); }
constexpr auto kSortFields = std::to_array<SortField>({
    {"a", BY(account)}, {"c", BY(cpus_per_task)}, {"C", BY(cpus)}, {"e", BY_TIME(end_ms)}, {"f", BY(constraint)},
    {"g", BY(group)}, {"G", BY(gid)}, {"iAF", BY(id)}, {"j", BY(name)}, {"K", BY(array_task_id.value_or(-1))},
    {"l", BY_TIME(time_limit_ms)}, {"m", BY(memory)}, {"NB", BY(node)}, {"o", BY(command)}, {"pQ", BY(priority)},
    {"P", BY(partition)}, {"q", BY(qos)}, {"rR", BY(reason)}, {"S", [](const JobInfo& a, const JobInfo& b) -> Order { return time_key(start(a)) <=> time_key(start(b)); }}, {"T", BY(state)},
    {"u", BY(user)}, {"U", BY(uid)}, {"V", BY(submit_ms)}, {"y", BY(nice)},
    // The later it started the less it has run.
    {"M", [](const JobInfo& a, const JobInfo& b) -> Order { return b.start_ms.value_or(0) <=> a.start_ms.value_or(0); }},
    {"t", [](const JobInfo& a, const JobInfo& b) -> Order { return compact_state(a.state) <=> compact_state(b.state); }},
});
#undef BY
#undef BY_TIME
// clang-format on

}  // namespace

std::span<const ViewField<JobInfo>> squeue_fields() { return kSqueueFields; }
std::span<const ViewField<StepRow>> squeue_step_fields() { return kStepFields; }

Result<std::vector<SortKey>> parse_sort_keys(std::string_view text) {
  std::vector<SortKey> keys;
  bool descending = false;
  for (const char c : text) {
    if (c == ',' || c == '+' || c == '#' || c == '%') {
      descending = c == ',' ? false : descending;
    } else if (c == '-') {
      descending = true;
    } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      const auto* const field = std::ranges::find_if(kSortFields, [c](const SortField& known) {
        return known.letters.find(c) < known.letters.npos;
      });
      if (field != kSortFields.end()) keys.push_back({field->compare, descending});
      descending = false;
    } else {
      return fail(Error::Code::invalid_argument, "Invalid sort specification: {}",
                  make_plain(text));
    }
  }
  return keys;
}

void sort_jobs(std::vector<JobInfo>& jobs, const std::vector<SortKey>& keys) {
  // A JobInfo is large: the order is found first, then each job moves once.
  std::vector<std::size_t> order(jobs.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, [&](std::size_t i, std::size_t j) {
    const auto& a = jobs[i];
    const auto& b = jobs[j];
    for (const auto& key : keys) {
      const auto way = key.compare(a, b);
      if (way != 0) return key.descending ? way > 0 : way < 0;
    }
    if (a.id != b.id) return a.id < b.id;
    return i < j;
  });
  std::vector<JobInfo> sorted;
  sorted.reserve(jobs.size());
  for (const auto i : order) sorted.push_back(std::move(jobs[i]));
  jobs = std::move(sorted);
}

}  // namespace aliquot::cli
