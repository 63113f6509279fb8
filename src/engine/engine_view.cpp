// What is shown, and to whom.
#include <algorithm>
#include <set>

#include "api/json.hpp"
#include "base/size.hpp"
#include "core/explain.hpp"
#include "core/placement.hpp"
#include "engine/engine.hpp"

namespace aliquot::engine {

// Everybody may see who uses the machine and why a job waits; what a job does is its owner's.
void Engine::redact(const Caller& caller, api::JobInfo& info) const {
  if (owns(caller, info)) return;
  info.command.clear();
  info.work_dir.clear();
  info.std_out.clear();
  info.std_err.clear();
  info.std_in.clear();
  info.comment.clear();
  info.reason_detail.clear();  // it may name its files
}

// Slurm's word in ours. `aliquot why` looks closer, for one job.
std::string Engine::wait_sentence(const Job& job) const {
  namespace reason = core::reason;
  const api::JobInfo& info = job.info;
  const std::string& why = info.reason;
  if (job.state != core::JobState::pending || !info.reason_detail.empty()) return "";
  if (why == reason::kResources) return "there is not enough room for it now";
  if (why == reason::kPriority) return "jobs before it wait for the room it needs";
  if (why == reason::kDependency) return "it waits for " + info.dependency;
  if (why == reason::kDependencyNever) return "what it waits for cannot happen any more";
  if (why == reason::kBeginTime) return "it is not to start yet";
  if (why == reason::kHeldUser) return fmt::format("held: 'scontrol release {}'", info.id);
  if (why == reason::kHeldAdmin) return "held by an administrator";
  if (why == reason::kBadConstraints) return job.unfit;
  if (why == reason::kTaskLimit) return "as many of its array run as may run at once";
  if (why == reason::kTimeLimit) return "its time limit is longer than the partition's";
  if (why == reason::kNotAvailable && drained_)
    return "the machine is drained: " + drained_->reason;
  if (why == kUserGpuLimit) {
    return fmt::format("its user may hold {} GPUs at once", settings_.gpus_per_user.value_or(0));
  }
  return "";
}

Answer<std::string> Engine::list(const Caller& caller, const std::string& id,
                                 const std::string& user, bool brief) {
  if (const auto fine = admit(caller); !fine) return tl::make_unexpected(fine.error());
  AccountingQuery query;
  query.only_over = true;
  query.start = clock_.wall() - settings_.min_job_age;
  if (!id.empty()) {
    const auto named = parse_id(caller, id);
    if (!named) return tl::make_unexpected(named.error());
    query.id = named->head.value();
  }
  auto over = store_.query(query, false);
  if (!over) return try_again(over.error());
  api::JobListWriter list(over->size() + jobs_.size(), brief);
  for (api::JobInfo& job : *over) {
    if (!user.empty() && job.user != user) continue;
    redact(caller, job);
    list.add(job);
  }
  for (const auto& [live, job] : jobs_) {
    if (!user.empty() && job.info.user != user) continue;
    if (query.id && job.info.id != *query.id && job.info.array_job_id != *query.id) continue;
    const auto steps = steps_.find(live);
    if (owns(caller, job.info) && steps == steps_.end()) {
      list.add(job.info, brief ? std::string() : wait_sentence(job));
      continue;
    }
    api::JobInfo shown = job.info;
    redact(caller, shown);
    if (steps != steps_.end()) {
      for (const auto& [number, step] : steps->second) shown.steps.push_back(step);
    }
    list.add(shown);
  }
  return list.take();
}

Answer<api::JobInfo> Engine::show(const Caller& caller, const std::string& id) {
  if (const auto fine = admit(caller); !fine) return tl::make_unexpected(fine.error());
  const auto named = parse_id(caller, id);
  if (!named) return tl::make_unexpected(named.error());
  const JobId wanted = named->record;
  api::JobInfo info;
  if (const Job* job = find(wanted)) {
    info = job->info;
    if (auto why = wait_sentence(*job); !why.empty()) info.reason_detail = std::move(why);
  } else {
    const auto over = store_.load(wanted);
    if (!over && over.error().code == Error::Code::unavailable) return try_again(over.error());
    if (!over) return refuse(404, "ESLURM_INVALID_JOB_ID", over.error().message);
    info = over->info;
  }
  auto steps = store_.steps(wanted);
  if (!steps) return try_again(steps.error());
  info.steps = std::move(*steps);
  redact(caller, info);
  return info;
}

Answer<std::string> Engine::script(const Caller& caller, const std::string& id) {
  const auto info = show(caller, id);
  if (!info) return tl::make_unexpected(info.error());
  if (!owns(caller, *info)) return refuse(403, "ESLURM_ACCESS_DENIED", "the job is not yours");
  const auto job = store_.load(JobId(info->id));
  if (!job) {
    if (job.error().code != Error::Code::not_found) return try_again(job.error());
    return refuse(404, "ESLURM_INVALID_JOB_ID", job.error().message);
  }
  const auto payload = store_.payload(job->payload);
  if (!payload && payload.error().code == Error::Code::unavailable) {
    return try_again(payload.error());
  }
  if (!payload) return refuse(404, "ESLURM_JOB_SCRIPT_MISSING", payload.error().message);
  return payload->script;
}

void Engine::wait(const Caller& caller, const std::string& id, Ended ended) {
  auto info = show(caller, id);
  if (!info) return ended(tl::make_unexpected(info.error()));
  const auto named = parse_id(caller, id);
  const auto facts = store_.facts(named->head, named->task);
  if (!facts) return ended(try_again(facts.error()));
  if (*facts && (*facts)->ended) return ended(*info);
  waiting_[named->record].push_back(
      [this, caller, ended = std::move(ended)](Answer<api::JobInfo> last) {
        if (last) redact(caller, *last);
        ended(std::move(last));
      });
}

Answer<api::WhyInfo> Engine::why(const Caller& caller, const std::string& id) {
  const auto info = show(caller, id);
  if (!info) return tl::make_unexpected(info.error());
  api::WhyInfo why{.job_id = info->id,
                   .state = info->state,
                   .reason = info->reason,
                   .sentences = {},
                   .earliest_start_ms = std::nullopt};
  const Job* job = find(JobId(info->id));
  if (job == nullptr) {
    why.sentences.push_back(fmt::format("Job {} is over: {}.", info->id, info->state));
    if (!info->reason_detail.empty()) why.sentences.push_back(info->reason_detail + ".");
    return why;
  }
  if (job->state != core::JobState::pending) {
    why.sentences.push_back(fmt::format("Job {} is {}.", info->id, info->state));
    if (!info->reason_detail.empty()) why.sentences.push_back(info->reason_detail + ".");
    return why;
  }
  why.earliest_start_ms = info->start_ms;
  if (const auto early = not_yet(*job)) {
    why.sentences.push_back(fmt::format("It waits for {}, not for room.", *early));
    if (!info->dependency.empty()) {
      why.sentences.push_back(
          fmt::format("What is left of its dependencies: {}.", info->dependency));
    }
    if (drained_) why.sentences.push_back("The machine is drained: " + drained_->reason);
    return why;
  }
  if (job->info.reason == kUserGpuLimit) {
    why.sentences.push_back(fmt::format("It waits because {}.", wait_sentence(*job)));
    return why;
  }
  const auto refusal = core::explain_refusal(ledger_.cluster(), job->shape);
  if (core::place_by_scan(ledger_.cluster(), job->shape, *policy_)) {
    why.sentences.emplace_back(
        "There is room for it, but a job before it is waiting for that room.");
  } else {
    why.sentences = core::explain(ledger_, job->request, refusal).sentences;
  }
  return why;
}

Answer<std::vector<api::JobInfo>> Engine::accounting(const Caller& caller, AccountingQuery query) {
  if (const auto fine = admit(caller); !fine) return tl::make_unexpected(fine.error());
  auto jobs = store_.query(query, true);
  if (!jobs) return try_again(jobs.error());
  for (api::JobInfo& job : *jobs) {
    // What runs is fresher in memory.
    if (const Job* live = find(JobId(job.id))) {
      auto steps = std::move(job.steps);
      job = live->info;
      job.steps = std::move(steps);
    }
    redact(caller, job);
  }
  return std::move(*jobs);
}

api::ClusterInfo Engine::cluster_info() const {
  const core::Cluster& cluster = ledger_.cluster();
  const core::Node& node = cluster.node(0);
  const core::NodeState& state = cluster.state(0);
  api::ClusterInfo info;
  info.daemon_version = ALIQUOT_VERSION;
  info.cluster = settings_.cluster;
  info.one_user = owner_ != Uid(0);
  info.simulated = simulated_;
  info.policy = policy_->name();
  info.cgroup = executor_.fence();
  for (const core::Backend& backend : backends_) {
    info.enforcement.push_back({backend.name, backend.used, backend.detail});
  }
  info.node.name = machine_.name;
  info.node.os = machine_.os;
  info.node.cpus = node.cpus / kOneCpu;
  info.node.cpus_allocated = (node.cpus - state.cpus_free) / kOneCpu;
  info.node.memory = node.memory.value();
  info.node.memory_allocated = (node.memory - state.memory_free).value();
  info.node.boot_ms = machine_.boot.ms();
  info.node.daemon_start_ms = started_.ms();
  const bool busy = ledger_.size() > 0;
  bool full = state.cpus_free == CpuMilli(0);
  for (std::size_t i = 0; i < machine_.gpus.size(); ++i) {
    const gpu::Device& device = machine_.gpus[i];
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
    shown.stale = gpu.stale || views_stale_;
    for (const JobId job : ledger_.jobs_on(0, static_cast<core::GpuIndex>(i))) {
      shown.jobs.push_back(job.value());
    }
    if (i < views_.size()) {
      shown.memory_used = views_[i].sample.memory_used.value();
      shown.utilisation = views_[i].sample.utilisation.value();
      shown.processes = views_[i].processes;
    }
    info.node.gpus.push_back(std::move(shown));
  }
  info.node.state = drained_ ? (busy ? "draining" : "drained")
                    : full   ? "allocated"
                    : busy   ? "mixed"
                             : "idle";
  if (drained_) {
    info.node.reason = drained_->reason;
    const auto user = users_.find(Uid(drained_->uid));
    info.node.reason_user = user ? user->name : std::to_string(drained_->uid);
    info.node.reason_ms = drained_->since_ms;
  }
  for (const Partition& partition : settings_.partitions) {
    api::PartitionInfo shown{.name = partition.name,
                             .is_default = partition.is_default,
                             .up = partition.up,
                             .max_time_ms = std::nullopt,
                             .default_time_ms = std::nullopt};
    if (partition.max_time.length) shown.max_time_ms = partition.max_time.length->value();
    if (partition.default_time.length)
      shown.default_time_ms = partition.default_time.length->value();
    info.partitions.push_back(std::move(shown));
  }
  info.config = {
      {"ClusterName", settings_.cluster},
      {"MinJobAge", fmt::format("{} sec", settings_.min_job_age / seconds(1))},
      {"KillWait", fmt::format("{} sec", settings_.kill_wait / seconds(1))},
      {"SchedulerType", "sched/aliquot"},
      {"SLURM_VERSION", "22.05.8"},
      {"AliquotVersion", ALIQUOT_VERSION},
      {"AliquotPolicy", std::string(policy_->name())},
      {"AliquotFaultDomain", settings_.fault_domain},
      {"AliquotEscape", settings_.escape},
  };
  const Limits& limits = settings_.limits;
  info.config["MaxArraySize"] = std::to_string(limits.array_size);
  info.config["MaxJobCount"] = std::to_string(limits.job_count);
  info.config["MaxSubmitJobsPerUser"] = std::to_string(
      limits.jobs_per_user.value_or(std::max<std::int64_t>(limits.job_count / 2, 1)));
  info.config["AliquotMaxScriptSize"] = format_size(limits.script);
  info.config["AliquotMaxEnvironmentSize"] = format_size(limits.environment);
  if (settings_.purge_after) {
    info.config["PurgeJobAfter"] = fmt::format("{} sec", *settings_.purge_after / seconds(1));
  }
  if (settings_.gpus_per_user) {
    info.config["MaxGpusPerUser"] = std::to_string(*settings_.gpus_per_user);
  }
  return info;
}

}  // namespace aliquot::engine
