#include "cli/control/scontrol_text.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "base/timestamp.hpp"
#include "cli/view/job_text.hpp"
#include "cli/view/node_text.hpp"
#include "cli/view/slurm_version.hpp"

namespace aliquot::cli {
namespace {

using api::JobInfo;

// The lines of a record, joined as the style wants them.
class Record {
 public:
  template <class... Args>
  Record& line(fmt::format_string<Args...> format, Args&&... args) {
    lines_.push_back(fmt::format(format, std::forward<Args>(args)...));
    return *this;
  }

  [[nodiscard]] std::string text(const ShowStyle& style) const {
    std::string out;
    for (const auto& line : lines_) {
      if (!out.empty()) out += style.one_line ? " " : "\n   ";
      out += line;
    }
    out += style.one_line ? "\n" : "\n\n";
    return out;
  }

 private:
  std::vector<std::string> lines_;
};

std::string_view or_null(std::string_view text) { return text.empty() ? "(null)" : text; }

std::string time_or(std::optional<std::int64_t> ms, std::string_view otherwise) {
  std::string text;
  append_time(text, ms, otherwise);
  return text;
}

std::string id_line(const JobInfo& job) {
  auto line = fmt::format("JobId={}", job.id);
  if (!job.array_pending.empty()) {
    line += fmt::format(" ArrayJobId={} ArrayTaskId={}", job.array_job_id.value_or(job.id),
                        job.array_pending);
    if (const auto percent = job.array_pending.find('%'); percent != std::string::npos) {
      line += fmt::format(" ArrayTaskThrottle={}", job.array_pending.substr(percent + 1));
    } else if (job.array_throttle > 0) {
      line += fmt::format(" ArrayTaskThrottle={}", job.array_throttle);
    }
  } else if (job.array_task_id) {
    line += fmt::format(" ArrayJobId={} ArrayTaskId={}", job.array_job_id.value_or(job.id),
                        *job.array_task_id);
  }
  return line + " JobName=" + job.name;
}

// In Slurm's order, whatever theirs is; ALL are these.
std::string mail_types(std::string_view words) {
  constexpr std::string_view kAll = "INVALID_DEPEND,BEGIN,END,FAIL,REQUEUE,STAGE_OUT";
  constexpr std::string_view kOrder =
      "ARRAY_TASKS,INVALID_DEPEND,BEGIN,END,FAIL,REQUEUE,STAGE_OUT,TIME_LIMIT_50,TIME_LIMIT_80,"
      "TIME_LIMIT_90,TIME_LIMIT";
  const auto has = [&](std::string_view list, std::string_view word) {
    return std::ranges::any_of(
        split(list, ','), [&](std::string_view one) { return equals_ignoring_case(one, word); });
  };
  std::string out;
  for (const auto word : split(kOrder, ',')) {
    if (!has(words, word) && !(has(words, "ALL") && has(kAll, word))) continue;
    out += (out.empty() ? "" : ",") + std::string(word);
  }
  return out;
}

std::string node_line(const JobInfo& job) {
  if (!is_pending(job)) return "NodeList=" + job.node;
  return job.start_ms && !job.node.empty() ? "NodeList= SchedNodeList=" + job.node : "NodeList=";
}

void gpu_details(Record& record, const JobInfo& job) {
  if (job.gpus.empty()) return;
  std::map<std::string, int> models;
  for (const auto& gpu : job.gpus) ++models[gres_type(gpu.model)];
  std::string gres;
  for (const auto& [model, count] : models) {
    gres += fmt::format("{}gpu:{}:{}", gres.empty() ? "" : ",", model, count);
  }
  record.line("JOB_GRES={}", gres);
}

}  // namespace

std::string show_job(const JobInfo& job, const ShowStyle& style, WallTime now) {
  constexpr auto kStyle = TimeStyle::scontrol;
  const bool pending = is_pending(job);
  const auto min_memory = job.min_memory.value_or(job.memory);
  Record record;
  record.line("{}", id_line(job))
      .line("UserId={}({}) GroupId={}({}) MCS_label=N/A", job.user, job.uid, job.group, job.gid)
      .line("Priority={} Nice={} Account={} QOS={}", job.priority, job.nice, or_null(job.account),
            or_null(job.qos))
      .line("JobState={} Reason={} Dependency={}", job.state, job.reason, or_null(job.dependency))
      .line("Requeue={} Restarts={} BatchFlag={} Reboot=0 ExitCode={}", job.requeue ? 1 : 0,
            job.restarts, job.batch ? 1 : 0, exit_code_text(job.exit_code, job.exit_signal));
  if (style.details) {
    record.line("DerivedExitCode={}",
                exit_code_text(job.derived_exit_code, job.derived_exit_signal));
  }
  record
      .line("RunTime={} TimeLimit={} TimeMin=N/A", format_duration(time_used(job, now), kStyle),
            format_time_limit(time_limit(job), kStyle))
      .line("SubmitTime={} EligibleTime={}", time_or(job.submit_ms, "Unknown"),
            time_or(job.eligible_ms, "Unknown"))
      .line("AccrueTime={}", time_or(job.eligible_ms, "Unknown"));
  // While it is pending both are forecasts.
  auto end = job.end_ms;
  if (pending && job.start_ms && job.time_limit_ms) end = *job.start_ms + *job.time_limit_ms;
  record
      .line("StartTime={} EndTime={} Deadline={}", time_or(job.start_ms, "Unknown"),
            time_or(end, "Unknown"), time_or(job.deadline_ms, "N/A"))
      .line("SuspendTime={} SecsPreSuspend=0 LastSchedEval={} Scheduler=Main",
            time_or(job.suspend_ms, "None"),
            time_or(pending ? job.eligible_ms : job.start_ms, "Unknown"))
      .line("Partition={} AllocNode:Sid={}:0", job.partition, or_null(job.submit_host))
      .line("ReqNodeList={} ExcNodeList={}", or_null(job.nodelist), or_null(job.exclude))
      .line("{}", node_line(job));
  if (!pending && job.batch && !job.node.empty()) record.line("BatchHost={}", job.node);
  record
      .line("NumNodes=1 NumCPUs={} NumTasks={} CPUs/Task={} ReqB:S:C:T=0:0:*:*", job.cpus,
            job.ntasks, job.cpus_per_task)
      .line("TRES={}", has_started(job) ? allocated_tres(job) : requested_tres(job))
      .line("Socks/Node=* NtasksPerN:B:S:C={}:0:*:* CoreSpec=*", job.ntasks_per_node);
  if (style.details) {
    gpu_details(record, job);
    if (!pending && !job.node.empty()) {
      record.line("  Nodes={} CPU_IDs=N/A Mem={} GRES={}", job.node, job.memory / 1'048'576,
                  gres_detail(job.gpus));
    }
  }
  record
      .line("MinCPUsNode={} MinMemory{}={} MinTmpDiskNode=0",
            std::max(job.min_cpus, job.cpus_per_task), job.memory_by_cpu ? "CPU" : "Node",
            min_memory > 0 ? memory_text(min_memory) : "0")
      .line("Features={} DelayBoot=00:00:00", or_null(job.constraint))
      .line("OverSubscribe={} Contiguous=0 Licenses=(null) Network=(null)", job.oversubscribe)
      .line("Command={}", or_null(job.command))
      .line("WorkDir={}", job.work_dir);
  if (!job.comment.empty()) record.line("Comment={}", job.comment);
  if (job.batch) {
    record.line("StdErr={}", job.std_err.empty() ? job.std_out : job.std_err)
        .line("StdIn={}", job.std_in.empty() ? "/dev/null" : job.std_in)
        .line("StdOut={}", job.std_out);
  }
  record.line("Power=");
  if (const auto tres = tres_per_node(job); !tres.empty()) record.line("TresPerNode={}", tres);
  if (job.kill_on_invalid_dependency) record.line("KillOInInvalidDependent=Yes");
  if (const auto types = mail_types(job.mail_type); !types.empty()) {
    record.line("MailUser={} MailType={}", job.mail_user.empty() ? job.user : job.mail_user, types);
  }
  if (!job.gpus.empty()) record.line("GpuShare={}", gpu_share_text(job));
  if (!job.enforcement.empty()) record.line("Enforcement={}", job.enforcement);
  record.line("");
  return record.text(style);
}

std::string show_step(const JobInfo& job, const api::StepInfo& step, const ShowStyle& style) {
  Record record;
  record
      .line("StepId={}.{} UserId={} StartTime={} TimeLimit=UNLIMITED", job_id_text(job), step.id,
            job.uid, time_or(step.start_ms, "Unknown"))
      .line("State={} Partition={} NodeList={}", step.state, job.partition, job.node)
      .line("Nodes=1 CPUs={} Tasks={} Name={} Network=(null)", step.id == "batch" ? 0 : step.cpus,
            step.ntasks, step.name)
      .line("TRES={}", step.id == "batch" ? "(null)" : fmt::format("cpu={},node=1", step.cpus))
      .line("ResvPorts=(null)")
      .line("CPUFreqReq=Default")
      .line("SrunHost:Pid=(null):0");
  return record.text(style);
}

std::string show_node(const api::ClusterInfo& cluster, const ShowStyle& style) {
  constexpr std::int64_t kMib = 1'048'576;
  const auto& node = cluster.node;
  std::string partitions;
  for (const auto& partition : cluster.partitions) {
    partitions += (partitions.empty() ? "" : ",") + partition.name;
  }
  Record record;
  record.line("NodeName={} Arch=x86_64 CoresPerSocket={} ", node.name, node.cpus)
      .line("CPUAlloc={} CPUEfctv={} CPUTot={} CPULoad=N/A", node.cpus_allocated, node.cpus,
            node.cpus)
      .line("AvailableFeatures=(null)")
      .line("ActiveFeatures=(null)")
      .line("Gres={}", node_gres(node));
  if (style.details)
    record.line("GresDrain={}", node_gres_drained(node)).line("GresUsed={}", node_gres_used(node));
  record
      .line("NodeAddr={} NodeHostName={} Version={}", node.name, node.name, cluster.daemon_version)
      .line("OS={} ", node.os)
      .line("RealMemory={} AllocMem={} FreeMem={} Sockets=1 Boards=1", node.memory / kMib,
            node.memory_allocated / kMib, (node.memory - node.memory_allocated) / kMib)
      .line("State={} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A",
            scontrol_node_state(node))
      .line("Partitions={} ", partitions)
      .line("BootTime={} SlurmdStartTime={}", time_or(node.boot_ms, "None"),
            time_or(node.daemon_start_ms, "None"))
      .line("LastBusyTime={}", time_or(node.daemon_start_ms, "None"))
      .line("CfgTRES={}", node_configured_tres(node))
      .line("AllocTRES={}", node_allocated_tres(node))
      .line("CapWatts=n/a")
      .line("CurrentWatts=0 AveWatts=0")
      .line("ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s");
  if (!node.reason_user.empty()) {
    record.line("Reason={} [{}@{}]", node.reason, node.reason_user,
                time_or(node.reason_ms, "Unknown"));
  } else if (!node.reason.empty()) {
    record.line("Reason={}", node.reason);
  }
  for (const auto& gpu : node.gpus) {
    if (gpu.reason.empty()) continue;
    record.line("GpuReason={}: {} [{}@{}]", gpu.index, gpu.reason, gpu.reason_user,
                time_or(gpu.reason_ms, "Unknown"));
  }
  if (cluster.simulated) record.line("GpuSimulated=yes");
  return record.text(style);
}

std::string show_partition(const api::ClusterInfo& cluster, const api::PartitionInfo& partition,
                           const ShowStyle& style) {
  constexpr auto kStyle = TimeStyle::scontrol;
  const auto limit = [&](std::optional<std::int64_t> ms, std::string_view none) {
    return ms ? format_duration(Millis(*ms), kStyle) : std::string(none);
  };
  Record record;
  record.line("PartitionName={}", partition.name)
      .line("AllowGroups={} AllowAccounts=ALL AllowQos=ALL",
            partition.groups.empty() ? "ALL" : fmt::format("{}", fmt::join(partition.groups, ",")))
      .line("AllocNodes=ALL Default={} QoS={}", partition.is_default ? "YES" : "NO",
            partition.qos.empty() ? "N/A" : partition.qos)
      .line("DefaultTime={} DisableRootJobs=NO ExclusiveUser=NO GraceTime={} Hidden=NO",
            limit(partition.default_time_ms, "NONE"), partition.grace_ms / 1'000)
      .line("MaxNodes=UNLIMITED MaxTime={} MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED",
            limit(partition.max_time_ms, "UNLIMITED"))
      .line("Nodes={}", cluster.node.name)
      .line("PriorityJobFactor={} PriorityTier={} RootOnly=NO ReqResv=NO OverSubscribe=NO",
            partition.job_factor, partition.tier)
      .line("OverTimeLimit=NONE PreemptMode={}", partition.preempt_mode)
      .line("State={} TotalCPUs={} TotalNodes=1 SelectTypeParameters=NONE",
            partition.up ? "UP" : "DOWN", cluster.node.cpus)
      .line("JobDefaults=(null)")
      .line("DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED")
      .line("TRES={}", node_configured_tres(partition_part(cluster.node, partition), true));
  if (!partition.users.empty()) record.line("AllowUsers={}", fmt::join(partition.users, ","));
  if (!partition.gpus.empty()) record.line("Gpus={}", fmt::join(partition.gpus, ","));
  return record.text(style);
}

std::string show_config(const api::ClusterInfo& cluster, WallTime now) {
  std::map<std::string, std::string> settings{{"ClusterName", cluster.cluster},
                                              {"MinJobAge", "300 sec"},
                                              {"SLURM_VERSION", std::string(kSlurmRelease)},
                                              {"SlurmctldHost[0]", cluster.node.name}};
  for (const auto& [key, value] : cluster.config) settings[key] = value;
  auto out = fmt::format("Configuration data as of {}\n", format_timestamp(now));
  for (const auto& [key, value] : settings) out += fmt::format("{:<23} = {}\n", key, value);
  out += fmt::format("\nSlurmctld(primary) at {} is UP\n", cluster.node.name);
  return out;
}

}  // namespace aliquot::cli
