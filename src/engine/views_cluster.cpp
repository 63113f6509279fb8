// The machine as it is shown.
#include <fmt/format.h>

#include "base/size.hpp"
#include "base/slurm_time.hpp"
#include "base/text.hpp"
#include "engine/accounts.hpp"
#include "engine/queue.hpp"
#include "engine/quotas.hpp"
#include "engine/views.hpp"
#include "gpu/trouble.hpp"
#include "node/gpu_shown.hpp"
#include "node/job_grant.hpp"

namespace aliquot::engine {
namespace {

void add_priority_config(const PrioritySettings& priority,
                         std::map<std::string, std::string>& config) {
  const auto span = [](Millis length) { return format_duration(length, TimeStyle::scontrol); };
  const core::PriorityWeights& weights = priority.weights;
  config["PriorityType"] = "priority/multifactor";
  config["PriorityFavorSmall"] = "No";
  config["PriorityWeightAssoc"] = "0";
  config["PriorityWeightTRES"] = "(null)";
  config["PriorityDecayHalfLife"] = span(priority.half_life);
  config["PriorityMaxAge"] = span(weights.max_age);
  config["PriorityWeightAge"] = std::to_string(weights.age);
  config["PriorityWeightFairShare"] = std::to_string(weights.fair_share);
  config["PriorityWeightJobSize"] = std::to_string(weights.job_size);
  config["PriorityWeightPartition"] = std::to_string(weights.partition);
  config["PriorityWeightQOS"] = std::to_string(weights.qos);
}

}  // namespace

void Views::observe(std::optional<std::vector<node::GpuView>> views, const Measures& measures) {
  stale_ = !views;
  if (!views) return;
  views_ = std::move(*views);
  measures_ = measures;
  for (node::GpuView& view : views_) {
    for (node::GpuProcess& process : view.processes) {
      process.command = make_plain(process.command);           // whoever runs a process names it
      if (process.uid) (void)state_.users.find(*process.uid);  // asked for before it is shown
    }
  }
  remember();
}

void Views::show_gpus(api::NodeInfo& shown_node) const {
  const core::Cluster& cluster = state_.ledger.cluster();
  const core::Node& node = cluster.node(0);
  for (std::size_t i = 0; i < state_.machine.gpus.size(); ++i) {
    const gpu::Device& device = state_.machine.gpus[i];
    const core::GpuState& gpu = cluster.gpus(0)[i];
    api::GpuInfo shown;
    shown.index = device.index;
    shown.uuid = device.gpu.id.value();
    shown.model = core::model_name(device.gpu);
    shown.simulated = device.simulated;
    shown.health = gpu.usable ? "ok" : "unusable";
    shown.memory = device.gpu.memory.value();
    shown.memory_granted = (device.gpu.memory - gpu.memory_free).value();
    shown.compute_limit = node.compute_limit.value();
    shown.compute_granted = (node.compute_limit - gpu.compute_free).value();
    shown.whole = gpu.whole;
    shown.mig = device.gpu.mig_profile;
    shown.stale = gpu.stale || stale_;
    for (const JobId job : state_.ledger.jobs_on(0, static_cast<core::GpuIndex>(i))) {
      shown.jobs.push_back(job.value());
    }
    if (i < views_.size()) {
      const std::string& trouble = views_[i].sample.trouble;
      if (!gpu.usable && !trouble.empty()) shown.health = gpu::trouble_text(trouble);
      node::show_sample(views_[i].sample, shown);
      for (const node::GpuProcess& process : views_[i].processes) {
        const auto job = process.holder ? node::job_of(*process.holder) : std::nullopt;
        shown.processes.push_back({.pid = process.pid,
                                   .user = process.uid ? state_.users.name(*process.uid) : "",
                                   .command = process.command,
                                   .memory = process.memory.value(),
                                   .job_id = job ? std::optional(job->value()) : std::nullopt});
      }
    }
    for (const node::ShareUse& use : measures_.uses) {
      const auto job = node::job_of(use.job);
      if (use.gpu == device.gpu.id && job) shown.uses.push_back(node::shown_use(use, job->value()));
    }
    if (const auto outage = state_.gpu_service.find(static_cast<core::GpuIndex>(i));
        outage != state_.gpu_service.end()) {
      const GpuOutage& one = outage->second;
      if (one.drain) {
        shown.reason = one.drain->reason;
        shown.reason_user = state_.users.name(one.drain->uid);
        shown.reason_ms = one.drain->since.ms();
        if (one.seen == core::Health::ok) {
          shown.health = (gpu.jobs > 0 ? "draining: " : "drained: ") + one.drain->reason;
        }
      } else if (one.seen != core::Health::ok) {
        shown.reason = one.trouble.empty() ? "it cannot be used" : one.trouble;
        shown.reason_user = "root";  // whom the daemon runs as
        shown.reason_ms = one.since.ms();
      }
    }
    shown_node.gpus.push_back(std::move(shown));
  }
}

api::ClusterInfo Views::cluster_info() const {
  const core::Cluster& cluster = state_.ledger.cluster();
  const core::Node& node = cluster.node(0);
  const core::NodeState& state = cluster.state(0);
  const auto& drained = queue_.drained();
  api::ClusterInfo info;
  info.daemon_version = ALIQUOT_VERSION;
  info.cluster = state_.settings.cluster;
  info.one_user = state_.owner != Uid(0);
  info.simulated = facts_.simulated;
  info.policy = state_.policy->name();
  info.cgroup = state_.executor.fence();
  for (const core::Backend& backend : facts_.backends) {
    info.enforcement.push_back({backend.name, backend.used, backend.detail});
  }
  info.node.name = state_.machine.name;
  info.node.os = state_.machine.os;
  info.node.driver = facts_.driver;
  info.node.mps_restarts = measures_.mps_restarts;
  info.node.cpus = node.cpus / kOneCpu;
  info.node.cpus_allocated = (node.cpus - state.cpus_free) / kOneCpu;
  info.node.memory = node.memory.value();
  info.node.memory_allocated = (node.memory - state.memory_free).value();
  info.node.boot_ms = state_.machine.boot.ms();
  info.node.daemon_start_ms = started_.ms();
  const bool busy = state_.ledger.size() > 0;
  bool full = state.cpus_free == CpuMilli(0);
  show_gpus(info.node);
  info.node.state = drained ? (busy ? "draining" : "drained")
                    : full  ? "allocated"
                    : busy  ? "mixed"
                            : "idle";
  if (drained) {
    info.node.reason = drained->reason;
    info.node.reason_user = state_.users.name(drained->uid);
    info.node.reason_ms = drained->since.ms();
  }
  for (const Partition& partition : state_.settings.partitions) {
    api::PartitionInfo shown{.name = partition.name,
                             .is_default = partition.is_default,
                             .up = partition.up,
                             .max_time_ms = std::nullopt,
                             .default_time_ms = std::nullopt,
                             .users = partition.users,
                             .groups = partition.groups,
                             .gpus = partition.gpus,
                             .gpu_count = partition.gpu_count,
                             .qos = partition.qos,
                             .tier = partition.tier,
                             .job_factor = partition.job_factor,
                             .preempt_mode = std::string(to_string(partition.preempt)),
                             .grace_ms = partition.grace.value()};
    if (partition.max_time.length) shown.max_time_ms = partition.max_time.length->value();
    if (partition.default_time.length)
      shown.default_time_ms = partition.default_time.length->value();
    info.partitions.push_back(std::move(shown));
  }
  info.config = {
      {"ClusterName", state_.settings.cluster},
      {"FirstJobId", std::to_string(state_.settings.first_id)},
      {"MinJobAge", fmt::format("{} sec", state_.settings.min_job_age / seconds(1))},
      {"KillWait", fmt::format("{} sec", state_.settings.kill_wait / seconds(1))},
      {"SchedulerType", "sched/aliquot"},
      {"StateSaveLocation", facts_.state},
      {"AliquotVersion", ALIQUOT_VERSION},
      {"AliquotPolicy", std::string(state_.policy->name())},
      {"AliquotFaultDomain", std::string(core::to_string(state_.settings.enforce.domain))},
      {"AliquotEscape", state_.settings.enforce.kill_escapes ? "kill" : "report"},
  };
  add_priority_config(state_.settings.priority, info.config);
  const Limits& limits = state_.settings.limits;
  info.config["MaxArraySize"] = std::to_string(limits.array_size);
  info.config["MaxJobCount"] = std::to_string(limits.job_count);
  info.config["MaxStepCount"] = std::to_string(limits.steps);
  info.config["MaxSubmitJobsPerUser"] = std::to_string(limits.most_per_user());
  info.config["AliquotMaxScriptSize"] = format_size(limits.script);
  info.config["AliquotMaxEnvironmentSize"] = format_size(limits.environment);
  if (state_.settings.purge_after) {
    info.config["PurgeJobAfter"] = fmt::format("{} sec", *state_.settings.purge_after / seconds(1));
  }
  const auto* qos = find_qos(state_.book, kNormalQos);
  const auto own = qos == nullptr ? std::nullopt : qos->max_tres_per_user.gpus;
  if (own || state_.settings.gpus_per_user) {
    info.config["MaxGpusPerUser"] =
        format_gpus(own ? Compute(*own) : *state_.settings.gpus_per_user);
  }
  return info;
}

}  // namespace aliquot::engine
