#include "show/job_metrics.hpp"

#include <cmath>

namespace aliquot::show {
namespace {

using Kind = Exposition::Kind;

double number(std::int64_t value) { return static_cast<double>(value); }

struct StateName {
  std::string_view slurm;  // in the metric's name
  std::string_view state;  // Slurm's long name
  std::string_view help;
};
constexpr std::array<StateName, 13> kStates{{
    {"cancelled", "CANCELLED", "Jobs that were cancelled"},
    {"completed", "COMPLETED", "Jobs that ended well"},
    {"completing", "COMPLETING", "Jobs that are ending"},
    {"configuring", "CONFIGURING", "Jobs whose nodes are being made ready"},
    {"deadline", "DEADLINE", "Jobs that missed their deadline"},
    {"failed", "FAILED", "Jobs that failed"},
    {"node_failed", "NODE_FAIL", "Jobs that their node failed"},
    {"outofmemory", "OUT_OF_MEMORY", "Jobs that ran out of memory"},
    {"pending", "PENDING", "Jobs that wait"},
    {"preempted", "PREEMPTED", "Jobs that made room"},
    {"running", "RUNNING", "Jobs that run"},
    {"suspended", "SUSPENDED", "Jobs that are suspended"},
    {"timeout", "TIMEOUT", "Jobs that reached their time limit"},
}};

std::int64_t in_state(const JobCounts& counts, std::string_view state) {
  const auto found = counts.states.find(state);
  return found == counts.states.end() ? 0 : found->second;
}

// The families of one kind of group: `slurm_partition_jobs_running{partition="main"}`.
void write_group(Exposition& out, const std::string& prefix, std::string_view label,
                 const std::map<std::string, JobCounts>& groups) {
  const auto each = [&](const std::string& name, std::string_view help, auto value) {
    out.family(name, Kind::gauge, help);
    for (const auto& [group, counts] : groups) out.sample({{label, group}}, value(counts));
  };
  each(prefix, "Jobs that are known", [](const JobCounts& one) { return number(one.jobs); });
  for (const StateName& state : kStates) {
    each(prefix + "_" + std::string(state.slurm), state.help,
         [&](const JobCounts& one) { return number(in_state(one, state.state)); });
  }
  each(prefix + "_hold", "Jobs that are held",
       [](const JobCounts& one) { return number(one.held); });
  each(prefix + "_cpus_alloc", "CPUs that jobs hold",
       [](const JobCounts& one) { return number(one.cpus); });
  each(prefix + "_gpus_alloc", "GPUs that jobs hold, shares as parts",
       [](const JobCounts& one) { return number(one.gpu_parts) / 10'000; });
  each(prefix + "_memory_alloc", "Memory that jobs hold, in bytes",
       [](const JobCounts& one) { return number(one.memory); });
  each(prefix + "_nodes_alloc", "Nodes that jobs are on",
       [](const JobCounts& one) { return number(one.nodes); });
}

void write_nodes(Exposition& out, const api::ClusterInfo& cluster) {
  const api::NodeInfo& node = cluster.node;
  out.single("slurm_nodes", Kind::gauge, "Nodes", 1);
  for (const std::string_view state :
       {"allocated", "mixed", "idle", "draining", "drained", "down"}) {
    out.single(std::string("slurm_nodes_") + std::string(state == "allocated" ? "alloc" : state),
               Kind::gauge, "Nodes in this state", node.state == state ? 1 : 0);
  }
  const auto one = [&](std::string_view name, std::string_view help, double value) {
    out.family(name, Kind::gauge, help);
    out.sample({{"node", node.name}}, value);
  };
  double held = 0;
  for (const api::GpuInfo& gpu : node.gpus) held += number(gpu.compute_granted) / 10'000;
  one("slurm_node_cpus", "CPUs of the node", number(node.cpus));
  one("slurm_node_cpus_alloc", "CPUs that jobs hold", number(node.cpus_allocated));
  one("slurm_node_cpus_idle", "CPUs that no job holds", number(node.cpus - node.cpus_allocated));
  one("slurm_node_gpus", "GPUs of the node", number(std::ssize(node.gpus)));
  one("slurm_node_gpus_alloc", "GPUs that jobs hold, shares as parts", held);
  one("slurm_node_memory_bytes", "Memory of the node", number(node.memory));
  one("slurm_node_memory_alloc_bytes", "Memory that jobs hold", number(node.memory_allocated));
  one("slurm_node_memory_free_bytes", "Memory that no job holds",
      number(node.memory - node.memory_allocated));
}

void write_scheduler(Exposition& out, const JobFigures& figures) {
  const PassCounts& passes = figures.passes;
  const auto one = [&](std::string_view name, std::string_view help, double value) {
    out.single(name, Kind::gauge, help, value);
  };
  // Slurm counts microseconds.
  const auto micro = [](double seconds) { return std::round(seconds * 1e6); };
  const auto count = static_cast<double>(passes.seconds.count());
  one("slurm_schedule_cycle_cnt", "Passes over the queue", count);
  one("slurm_schedule_cycle_last", "Microseconds of the last pass", micro(passes.last));
  one("slurm_schedule_cycle_max", "Microseconds of the longest pass", micro(passes.longest));
  one("slurm_schedule_cycle_tot", "Microseconds of all passes", micro(passes.seconds.sum()));
  one("slurm_sched_mean_cycle", "Microseconds of a pass on average",
      count == 0 ? 0 : micro(passes.seconds.sum() / count));
  one("slurm_schedule_queue_len", "Jobs that wait", number(passes.waiting));
  const auto finished = [&](std::string_view state) {
    const auto found = figures.finished.find(std::string(state));
    return found == figures.finished.end() ? 0.0 : static_cast<double>(found->second);
  };
  one("slurm_sdiag_jobs_submitted", "Jobs submitted since the start",
      static_cast<double>(figures.submitted));
  one("slurm_sdiag_jobs_started", "Jobs started since the start",
      static_cast<double>(figures.started));
  one("slurm_sdiag_jobs_completed", "Jobs that ended well since the start", finished("COMPLETED"));
  one("slurm_sdiag_jobs_canceled", "Jobs cancelled since the start", finished("CANCELLED"));
  one("slurm_sdiag_jobs_failed", "Jobs that failed since the start", finished("FAILED"));
  one("slurm_sdiag_jobs_pending", "Jobs that wait", number(in_state(figures.all, "PENDING")));
  one("slurm_sdiag_jobs_running", "Jobs that run", number(in_state(figures.all, "RUNNING")));
}

}  // namespace

void write_jobs(Exposition& out, const JobFigures& figures, const Detail& detail) {
  out.family("aliquot_jobs", Kind::gauge, "Jobs that wait, run, or were over lately.");
  for (const auto& [partition, counts] : figures.partitions) {
    for (const auto& [state, jobs] : counts.states) {
      out.sample({{"state", state}, {"partition", partition}}, number(jobs));
    }
  }
  out.single("aliquot_jobs_submitted_total", Kind::counter, "Jobs submitted.",
             static_cast<double>(figures.submitted));
  out.family("aliquot_jobs_finished_total", Kind::counter,
             "Jobs that are over, by how they ended.");
  for (const auto& [state, jobs] : figures.finished) {
    out.sample({{"state", state}}, static_cast<double>(jobs));
  }
  out.family("aliquot_job_wait_seconds", Kind::histogram,
             "How long jobs waited, from when they could have started.");
  out.sample(figures.waited);
  out.family("aliquot_gpu_seconds_total", Kind::counter,
             "GPU seconds granted, a share as the larger of its parts.");
  std::map<std::pair<std::string, std::string>, double> seconds;
  for (const auto& [whose, sum] : figures.gpu_seconds) {
    seconds[detail.users ? whose : std::pair<std::string, std::string>()] += sum;
  }
  for (const auto& [whose, sum] : seconds) {
    out.sample({{"user", whose.first}, {"account", whose.second}}, sum);
  }
  out.family("aliquot_scheduler_cycle_seconds", Kind::histogram,
             "How long a pass over the queue took.");
  out.sample(figures.passes.seconds);
  out.family("aliquot_scheduler_refusals_total", Kind::counter,
             "Submissions that were refused, by the error.");
  for (const auto& [reason, refusals] : figures.refused) {
    out.sample({{"reason", reason}}, static_cast<double>(refusals));
  }
}

std::string slurm_metrics(std::string_view name, const JobFigures& figures,
                          const api::ClusterInfo& cluster, const Detail& detail) {
  Exposition out;
  if (name == "jobs") {
    write_group(out, "slurm_jobs", "", {{"", figures.all}});
  } else if (name == "partitions") {
    out.single("slurm_partitions", Kind::gauge, "Partitions",
               number(std::ssize(cluster.partitions)));
    write_group(out, "slurm_partition_jobs", "partition", figures.partitions);
  } else if (name == "jobs-users-accts" && detail.users) {
    write_group(out, "slurm_user_jobs", "username", figures.users);
    write_group(out, "slurm_account_jobs", "account", figures.accounts);
  } else if (name == "nodes") {
    write_nodes(out, cluster);
  } else if (name == "scheduler") {
    write_scheduler(out, figures);
  }
  return out.take();
}

}  // namespace aliquot::show
