#include "cli/view/slurm_json.hpp"

#include "cli/view/job_text.hpp"
#include "cli/view/json_writer.hpp"
#include "cli/view/node_text.hpp"
#include "cli/view/slurm_version.hpp"

namespace aliquot::cli {
namespace {

using api::JobInfo;

std::int64_t epoch(std::optional<std::int64_t> ms) { return ms.value_or(0) / 1'000; }

void begin(JsonWriter& json, std::string_view type, std::string_view name) {
  json.begin_object().key("meta").begin_object();
  json.key("plugin").begin_object().field("type", type).field("name", name).end_object();
  json.key("Slurm").begin_object().key("version").begin_object();
  json.field("major", kSlurmMajor).field("micro", kSlurmMicro).field("minor", kSlurmMinor);
  json.end_object().field("release", kSlurmRelease).end_object();
  json.end_object().key("errors").begin_array().end_array();
}

void optional_number(JsonWriter& json, std::string_view key, std::optional<std::int64_t> value) {
  json.key(key);
  if (value) {
    json.value(*value);
  } else {
    json.null();
  }
}

// Which GPU it is: the first fields of an object about one.
JsonWriter& begin_gpu(JsonWriter& json, const auto& gpu) {
  json.begin_object().field("index", gpu.index).field("uuid", gpu.uuid);
  return json.field("model", gpu.model);
}

void gpu_share(JsonWriter& json, const JobInfo& job) {
  json.key("gpu_share").begin_array();
  for (const auto& gpu : job.gpus) {
    begin_gpu(json, gpu).field("memory", gpu.memory).field("compute", gpu.compute);
    json.field("whole", gpu.whole).end_object();
  }
  json.end_array();
}

void queue_job(JsonWriter& json, const JobInfo& job, const std::string& cluster) {
  json.begin_object().field("account", job.account).field("accrue_time", epoch(job.eligible_ms));
  json.field("array_job_id", job.array_job_id.value_or(0));
  optional_number(json, "array_task_id", job.array_task_id);
  json.field("array_task_string", job.array_pending);
  json.field("batch_flag", job.batch).field("batch_host", is_pending(job) ? "" : job.node);
  json.field("cluster", cluster).field("command", job.command).field("comment", job.comment);
  json.field("cpus", job.cpus).field("cpus_per_task", job.cpus_per_task);
  json.field("current_working_directory", job.work_dir);
  json.field("deadline", epoch(job.deadline_ms)).field("dependency", job.dependency);
  json.field("derived_exit_code", job.derived_exit_code);
  json.field("eligible_time", epoch(job.eligible_ms)).field("end_time", epoch(job.end_ms));
  json.field("exit_code", job.exit_code).field("features", job.constraint);
  json.key("gres_detail").begin_array();
  if (const auto detail = gres_detail(job.gpus); !detail.empty()) json.value(detail);
  json.end_array();
  json.field("group_id", job.gid).field("group_name", job.group);
  json.field("job_id", job.id).field("job_state", job.state);
  json.field("memory_per_node", job.memory / 1'048'576).field("name", job.name);
  json.field("nice", job.nice).field("node_count", 1).field("nodes", job.node);
  json.field("partition", job.partition).field("priority", job.priority).field("qos", job.qos);
  json.field("requeue", job.requeue).field("restart_cnt", job.restarts);
  json.field("standard_error", job.std_err).field("standard_input", job.std_in);
  json.field("standard_output", job.std_out).field("start_time", epoch(job.start_ms));
  json.field("state_description", "").field("state_reason", job.reason);
  json.field("submit_time", epoch(job.submit_ms)).field("suspend_time", epoch(job.suspend_ms));
  json.field("tasks", job.ntasks);
  optional_number(json, "time_limit",
                  job.time_limit_ms ? std::optional(*job.time_limit_ms / 60'000) : std::nullopt);
  json.field("tres_alloc_str", has_started(job) ? allocated_tres(job) : "");
  json.field("tres_per_node", tres_per_node(job)).field("tres_req_str", requested_tres(job));
  json.field("user_id", job.uid).field("user_name", job.user);
  json.field("reason_detail", job.reason_detail);
  gpu_share(json, job);
  json.end_object();
}

void exit_object(JsonWriter& json, std::string_view key, int code, int signal) {
  json.key(key).begin_object();
  json.field("status", signal != 0 ? "SIGNALED" : code != 0 ? "ERROR" : "SUCCESS");
  json.field("return_code", code);
  if (signal != 0) json.key("signal").begin_object().field("signal_id", signal).end_object();
  json.end_object();
}

void cpu_time(JsonWriter& json, std::string_view key, std::int64_t ms) {
  json.key(key).begin_object().field("seconds", ms / 1'000);
  json.field("microseconds", ms % 1'000 * 1'000).end_object();
}

void accounting_step(JsonWriter& json, const JobInfo& job, const api::StepInfo& step,
                     WallTime now) {
  json.begin_object().key("time").begin_object();
  json.field("elapsed", (step.end_ms.value_or(now.ms()) - step.start_ms) / 1'000);
  json.field("end", epoch(step.end_ms)).field("start", step.start_ms / 1'000);
  cpu_time(json, "system", step.system_cpu_ms);
  cpu_time(json, "total", step.system_cpu_ms + step.user_cpu_ms);
  cpu_time(json, "user", step.user_cpu_ms);
  json.end_object();
  exit_object(json, "exit_code", step.exit_code, step.exit_signal);
  json.key("nodes").begin_object().field("count", 1).field("range", job.node).end_object();
  json.key("tasks").begin_object().field("count", step.ntasks).end_object();
  json.field("max_rss", step.max_rss).field("state", step.state);
  json.key("step").begin_object();
  json.field("id", job_id_text(job) + "." + step.id).field("name", step.name).end_object();
  json.end_object();
}

void accounting_job(JsonWriter& json, const JobInfo& job, const std::string& cluster,
                    WallTime now) {
  json.begin_object().field("account", job.account);
  json.key("comment").begin_object().field("job", job.comment).end_object();
  json.field("allocation_nodes", has_started(job) ? 1 : 0);
  json.key("array").begin_object().field("job_id", job.array_job_id.value_or(0));
  json.field("task", job.array_pending);
  optional_number(json, "task_id", job.array_task_id);
  json.end_object();
  json.key("association").begin_object().field("account", job.account);
  json.field("cluster", cluster).field("user", job.user).end_object();
  json.field("cluster", cluster).field("constraints", job.constraint);
  exit_object(json, "derived_exit_code", job.derived_exit_code, job.derived_exit_signal);
  json.key("time").begin_object().field("elapsed", time_used(job, now) / seconds(1));
  json.field("eligible", epoch(job.eligible_ms));
  json.field("end", is_finished(job) ? epoch(job.end_ms) : 0);
  json.field("start", has_started(job) ? epoch(job.start_ms) : 0);
  json.field("submission", epoch(job.submit_ms)).field("suspended", job.suspended_total_ms / 1'000);
  cpu_time(json, "system", job.system_cpu_ms);
  optional_number(json, "limit",
                  job.time_limit_ms ? std::optional(*job.time_limit_ms / 60'000) : std::nullopt);
  cpu_time(json, "total", job.system_cpu_ms + job.user_cpu_ms);
  cpu_time(json, "user", job.user_cpu_ms);
  json.end_object();
  exit_object(json, "exit_code", job.exit_code, job.exit_signal);
  json.field("group", job.group).field("job_id", job.id).field("name", job.name);
  json.field("nodes", job.node.empty() ? "None assigned" : job.node);
  json.field("partition", job.partition).field("priority", job.priority).field("qos", job.qos);
  json.key("required").begin_object().field("CPUs", job.cpus);
  json.field("memory", job.memory / 1'048'576).end_object();
  optional_number(json, "kill_request_user", job.cancelled_by);
  json.key("state").begin_object().field("current", job.state).field("reason", job.reason);
  json.end_object().key("steps").begin_array();
  for (const auto& step : job.steps) accounting_step(json, job, step, now);
  json.end_array();
  json.key("tres").begin_object().field("requested_str", requested_tres(job));
  json.field("allocated_str", has_started(job) ? allocated_tres(job) : "").end_object();
  json.field("user", job.user).field("working_directory", job.work_dir);
  json.key("gpu").begin_object().field("time_ms", job.gpu_ms);
  json.field("memory_peak", job.gpu_memory_peak).field("utilisation", job.gpu_utilisation);
  json.end_object();
  gpu_share(json, job);
  json.end_object();
}

}  // namespace

std::string squeue_json(const std::vector<JobInfo>& jobs, const std::string& cluster) {
  JsonWriter json;
  begin(json, "openapi/v0.0.38", "Slurm OpenAPI v0.0.38");
  json.key("jobs").begin_array();
  for (const auto& job : jobs) queue_job(json, job, cluster);
  return json.end_array().end_object().text();
}

std::string sinfo_json(const api::ClusterInfo& cluster) {
  JsonWriter json;
  begin(json, "openapi/v0.0.38", "Slurm OpenAPI v0.0.38");
  const auto& node = cluster.node;
  json.key("nodes").begin_array().begin_object();
  json.field("boot_time", node.boot_ms / 1'000).field("cores", node.cpus).field("cpus", node.cpus);
  json.field("alloc_cpus", node.cpus_allocated).field("idle_cpus", node.cpus - node.cpus_allocated);
  json.field("features", "").field("active_features", "");
  json.field("gres", node_gres(node)).field("gres_used", node_gres_used(node));
  json.field("name", node.name).field("address", node.name).field("hostname", node.name);
  json.field("state", node_base_state(node)).key("state_flags").begin_array();
  if (node_is_drained(node)) json.value("DRAIN");
  json.end_array().field("operating_system", node.os).key("partitions").begin_array();
  for (const auto& partition : cluster.partitions) json.value(partition.name);
  json.end_array().field("real_memory", node.memory / 1'048'576);
  json.field("alloc_memory", node.memory_allocated / 1'048'576).field("reason", node.reason);
  json.field("slurmd_start_time", node.daemon_start_ms / 1'000).field("sockets", 1);
  json.field("threads", 1).field("slurmd_version", cluster.daemon_version);
  json.field("tres", node_configured_tres(node)).field("tres_used", node_allocated_tres(node));
  json.field("simulated", cluster.simulated).key("gpus").begin_array();
  for (const auto& gpu : node.gpus) {
    begin_gpu(json, gpu).field("simulated", gpu.simulated).field("memory", gpu.memory);
    json.field("memory_granted", gpu.memory_granted);
    json.field("compute_granted", gpu.compute_granted).end_object();
  }
  return json.end_array().end_object().end_array().end_object().text();
}

std::string sacct_json(const std::vector<JobInfo>& jobs, const std::string& cluster, WallTime now) {
  JsonWriter json;
  begin(json, "openapi/dbv0.0.38", "Slurm OpenAPI DB v0.0.38");
  json.key("jobs").begin_array();
  for (const auto& job : jobs) accounting_job(json, job, cluster, now);
  return json.end_array().end_object().text();
}

}  // namespace aliquot::cli
