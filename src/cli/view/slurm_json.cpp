#include "cli/view/slurm_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "base/size.hpp"
#include "base/text.hpp"
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

// What Slurm's objects have besides, and one machine says nothing about: as Slurm writes it where
// it is not set, so that whoever reads it finds it.
struct Unset {
  std::span<const std::string_view> texts;
  std::span<const std::string_view> zeros;
  std::span<const std::string_view> nulls;
};

void write_unset(JsonWriter& json, const Unset& unset) {
  for (const auto key : unset.texts) json.field(key, "");
  for (const auto key : unset.zeros) json.field(key, 0);
  for (const auto key : unset.nulls) json.key(key).null();
}

constexpr auto kJobTexts = std::to_array<std::string_view>({"admin_comment",
                                                            "batch_features",
                                                            "burst_buffer",
                                                            "burst_buffer_state",
                                                            "cluster_features",
                                                            "container",
                                                            "cpus_per_tres",
                                                            "excluded_nodes",
                                                            "federation_origin",
                                                            "federation_siblings_active",
                                                            "het_job_id_set",
                                                            "federation_siblings_viable",
                                                            "licenses",
                                                            "mcs_label",
                                                            "memory_per_tres",
                                                            "prefer",
                                                            "required_nodes",
                                                            "resv_name",
                                                            "system_comment",
                                                            "tres_bind",
                                                            "tres_freq",
                                                            "tres_per_job",
                                                            "tres_per_socket",
                                                            "tres_per_task",
                                                            "wckey"});
constexpr auto kJobZeros = std::to_array<std::string_view>(
    {"association_id", "delay_boot", "het_job_id", "het_job_offset", "max_cpus", "max_nodes",
     "minimum_tmp_disk_per_node", "pre_sus_time", "preempt_time", "resize_time",
     "sockets_per_board", "tasks_per_board", "time_minimum"});
constexpr auto kJobNulls = std::to_array<std::string_view>(
    {"core_spec", "cores_per_socket", "cpu_frequency_governor", "cpu_frequency_maximum",
     "cpu_frequency_minimum", "memory_per_cpu", "profile", "shared", "sockets_per_node",
     "tasks_per_core", "tasks_per_socket", "thread_spec", "threads_per_core"});
constexpr auto kNodeTexts = std::to_array<std::string_view>(
    {"burstbuffer_network_address", "comment", "extra", "mcs_label"});
constexpr auto kNodeZeros = std::to_array<std::string_view>(
    {"cpu_binding", "cpu_load", "free_memory", "last_busy", "port", "temporary_disk"});
constexpr auto kNodeNulls = std::to_array<std::string_view>({"owner"});

void empty_array(JsonWriter& json, std::string_view key) {
  json.key(key).begin_array().end_array();
}

// `cpu=4,mem=4G,gres/gpu=1` as the accounting has it: a type, a name, Slurm's number and a count.
void tres_list(JsonWriter& json, std::string_view key, std::string_view tres) {
  json.key(key).begin_array();
  for (const auto one : split(tres, ',')) {
    const auto equals = one.rfind('=');
    if (equals == one.npos) continue;
    const auto full = one.substr(0, equals);
    const auto slash = full.find('/');
    const auto type = full.substr(0, slash);
    const auto amount = one.substr(equals + 1);
    auto count = parse_digits(amount);
    if (const auto size = parse_size(amount); type == "mem" && size) {
      count = size->value() / 1'048'576;
    }
    constexpr auto kTypes =
        std::to_array<std::string_view>({"cpu", "mem", "energy", "node", "billing"});
    const auto known = std::ranges::find(kTypes, type) - kTypes.begin();
    json.begin_object().field("type", type).key("name");
    if (slash == full.npos) {
      json.null();
    } else {
      json.value(full.substr(slash + 1));
    }
    json.field("id", type == "gres" ? 1'001 : known + 1).field("count", count.value_or(0));
    json.end_object();
  }
  json.end_array();
}

void job_resources(JsonWriter& json, const JobInfo& job) {
  json.key("job_resources").begin_object();
  if (is_active(job)) {
    json.field("nodes", job.node).field("allocated_cores", job.cpus).field("allocated_hosts", 1);
    json.key("allocated_nodes").begin_array().begin_object().field("nodename", job.node);
    json.field("cpus_used", job.cpus).field("memory_used", 0);
    json.field("memory_allocated", job.memory / 1'048'576).end_object().end_array();
  }
  json.end_object();
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
  write_unset(json, {kJobTexts, kJobZeros, kJobNulls});
  json.field("array_max_tasks", job.array_throttle).field("billable_tres", job.cpus);
  json.field("contiguous", false).field("reboot", false);
  json.field("last_sched_evaluation", epoch(job.eligible_ms));
  json.field("minimum_cpus_per_node", job.cpus_per_task);
  json.field("tasks_per_node", job.ntasks_per_node);
  empty_array(json, "flags");
  empty_array(json, "show_flags");
  job_resources(json, job);
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
  json.field("suspended", 0).end_object();
  exit_object(json, "exit_code", step.exit_code, step.exit_signal);
  json.key("nodes").begin_object().key("list").begin_array().value(job.node).end_array();
  json.field("count", 1).field("range", job.node).end_object();
  json.key("tasks").begin_object().field("count", step.ntasks).end_object();
  json.key("tres").begin_object();
  for (const auto* which : {"requested", "consumed"}) {
    json.key(which).begin_object();
    for (const auto* of : {"max", "min", "average", "total"}) empty_array(json, of);
    json.end_object();
  }
  tres_list(json, "allocated", fmt::format("cpu={},node=1", step.cpus));
  json.end_object().key("pid").null().key("kill_request_user").null();
  json.key("CPU").begin_object().key("requested_frequency").begin_object();
  json.field("min", 0).field("max", 0).end_object();
  empty_array(json, "governor");
  json.end_object().key("statistics").begin_object();
  json.key("CPU").begin_object().field("actual_frequency", 0).end_object();
  json.key("energy").begin_object().field("consumed", 0).end_object().end_object();
  json.key("task").begin_object().field("distribution", "Unknown").end_object();
  json.field("max_rss", step.max_rss).field("state", step.state);
  json.key("step").begin_object();
  json.field("id", job_id_text(job) + "." + step.id).field("name", step.name);
  json.field("job_id", job.id);
  json.key("het").begin_object().key("component").null().end_object().end_object();
  json.end_object();
}

void accounting_job(JsonWriter& json, const JobInfo& job, const std::string& cluster,
                    WallTime now) {
  json.begin_object().field("account", job.account);
  json.key("comment").begin_object().field("job", job.comment);
  json.key("administrator").null().key("system").null().end_object().key("container").null();
  empty_array(json, "flags");
  json.key("het").begin_object().field("job_id", 0).key("job_offset").null().end_object();
  json.key("mcs").begin_object().field("label", "").end_object();
  json.key("reservation").begin_object().field("id", 0).field("name", 0).end_object();
  json.key("wckey").begin_object().field("wckey", "");
  empty_array(json, "flags");
  json.end_object();
  json.field("allocation_nodes", has_started(job) ? 1 : 0);
  json.key("array").begin_object().field("job_id", job.array_job_id.value_or(0));
  json.field("task", job.array_pending);
  optional_number(json, "task_id", job.array_task_id);
  json.key("limits").begin_object().key("max").begin_object().key("running").begin_object();
  json.field("tasks", job.array_throttle).end_object().end_object().end_object();
  json.end_object();
  json.key("association").begin_object().field("account", job.account);
  json.field("cluster", cluster).field("user", job.user).key("partition").null().end_object();
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
  json.field("allocated_str", has_started(job) ? allocated_tres(job) : "");
  tres_list(json, "requested", requested_tres(job));
  tres_list(json, "allocated", has_started(job) ? allocated_tres(job) : "");
  json.end_object();
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
  write_unset(json, {kNodeTexts, kNodeZeros, kNodeNulls});
  json.field("architecture", "x86_64").field("boards", 1).field("weight", 1);
  json.field("gres_drained", "N/A").field("next_state_after_reboot", "invalid");
  empty_array(json, "next_state_after_reboot_flags");
  json.field("reason_changed_at", node.reason_ms / 1'000);
  json.field("reason_set_by_user", node.reason_user).field("tres_weighted", node.cpus_allocated);
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
