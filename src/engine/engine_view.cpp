// What is shown, and to whom.
#include <algorithm>
#include <set>

#include "api/json.hpp"
#include "base/size.hpp"
#include "core/explain.hpp"
#include "core/placement.hpp"
#include "engine/engine.hpp"
#include "node/job_grant.hpp"

namespace aliquot::engine {

namespace {

// Of records that are read for one answer: nobody waits long for another's question.
constexpr Bytes kPage = mib(1);

std::string as_sentence(std::string words) {
  if (words[0] >= 'a' && words[0] <= 'z') words[0] = static_cast<char>(words[0] - 'a' + 'A');
  return words + ".";
}

}  // namespace

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
  for (const auto& [run, left] : unknown_) {
    if (!left.stuck.empty())
      return fmt::format("of job {}, {}: nothing starts until it does", run.job, left.stuck);
  }
  if (!unknown_.empty()) return "what runs and is not on record is ended first";
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

Answer<std::string> Engine::list(const Caller& caller, const ListQuery& wanted) {
  if (const auto fine = admit(caller); !fine) return tl::make_unexpected(fine.error());
  AccountingQuery query;
  query.only_over = true;
  query.start = clock_.wall() - settings_.min_job_age;
  query.after = wanted.after;
  query.most = kPage;
  if (!wanted.id.empty()) {
    const auto named = parse_id(caller, wanted.id);
    if (!named) return tl::make_unexpected(named.error());
    query.id = named->head.value();
  }
  const auto other = [&](const api::JobInfo& job) {
    return !wanted.user.empty() && job.user != wanted.user;
  };
  const bool brief = wanted.brief;
  auto over = wanted.live ? Result<JobPage>(JobPage{}) : store_.query(query);
  if (!over) return try_again(over.error());
  // First, since it may be over by the last page; and last, since what is over may be back by then.
  const bool queue = wanted.after == 0 || !over->next;
  api::JobListWriter list(over->jobs.size() + (queue ? jobs_.size() : 0), brief);
  for (api::JobInfo& job : over->jobs) {
    if (other(job)) continue;
    redact(caller, job);
    list.add(job);
  }
  for (const auto& [live, job] : jobs_) {
    if (!queue) break;
    if (other(job.info)) continue;
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
  return list.take(over->next);
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
  if (!job->spec.batch) {
    return refuse(404, "ESLURM_JOB_SCRIPT_MISSING", "an interactive job has no script");
  }
  return payload->script;
}

std::optional<Engine::WaiterId> Engine::wait(const Caller& caller, const std::string& id,
                                             Ended ended) {
  const auto at_once = [&](Answer<api::JobInfo> answer) {
    ended(std::move(answer));
    return std::nullopt;
  };
  auto info = show(caller, id);
  if (!info) return at_once(std::move(info));
  const auto named = parse_id(caller, id);
  if (!named) return at_once(tl::make_unexpected(named.error()));
  const auto facts = store_.facts(named->head, named->task);
  if (!facts) return at_once(try_again(facts.error()));
  if (*facts && (*facts)->ended) return at_once(std::move(info));
  const WaiterId waiter{named->head, ++last_waiter_};
  waiting_[waiter.job][waiter.number] = {
      named->task, [this, caller, ended = std::move(ended)](Answer<api::JobInfo> last) {
        if (last) redact(caller, *last);
        ended(std::move(last));
      }};
  return waiter;
}

void Engine::stop_waiting(const WaiterId& waiter) {
  const auto waiters = waiting_.find(waiter.job);
  if (waiters == waiting_.end()) return;
  waiters->second.erase(waiter.number);
  if (waiters->second.empty()) waiting_.erase(waiters);
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
  const bool room = !not_yet(*job) && job->info.reason != kUserGpuLimit &&
                    job->info.reason != core::reason::kTaskLimit && unknown_.empty();
  if (!room) {
    const std::string& detail = job->info.reason_detail;  // of a start that failed, its owner's
    auto words = detail.empty() ? wait_sentence(*job) : owns(caller, job->info) ? detail : "";
    if (words.empty()) words = fmt::format("it waits for {}, not for room", info->reason);
    why.sentences.push_back(as_sentence(std::move(words)));
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

Answer<api::JobList> Engine::accounting(const Caller& caller, AccountingQuery query) {
  if (const auto fine = admit(caller); !fine) return tl::make_unexpected(fine.error());
  query.steps = true;
  query.most = kPage;
  auto page = store_.query(query);
  if (!page) return try_again(page.error());
  for (api::JobInfo& job : page->jobs) {
    // What runs is fresher in memory.
    if (const Job* live = find(JobId(job.id))) {
      auto steps = std::move(job.steps);
      job = live->info;
      job.steps = std::move(steps);
    }
    redact(caller, job);
  }
  return api::JobList{std::move(page->jobs), page->next};
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
      for (const node::GpuProcess& process : views_[i].processes) {
        const auto job = process.holder ? node::job_of(*process.holder) : std::nullopt;
        shown.processes.push_back({.pid = process.pid,
                                   .user = process.user,
                                   .command = process.command,
                                   .memory = process.memory.value(),
                                   .job_id = job ? std::optional(job->value()) : std::nullopt});
      }
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
      {"AliquotFaultDomain", std::string(core::to_string(settings_.enforce.domain))},
      {"AliquotEscape", settings_.enforce.kill_escapes ? "kill" : "report"},
  };
  const Limits& limits = settings_.limits;
  info.config["MaxArraySize"] = std::to_string(limits.array_size);
  info.config["MaxJobCount"] = std::to_string(limits.job_count);
  info.config["MaxStepCount"] = std::to_string(limits.steps);
  info.config["MaxSubmitJobsPerUser"] = std::to_string(limits.most_per_user());
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
