// Who is next and why, in numbers: for sprio and sshare.
#include <fmt/format.h>

#include <cmath>

#include "base/slurm_time.hpp"
#include "engine/admission.hpp"
#include "engine/fair_share.hpp"
#include "engine/forecast.hpp"
#include "engine/queue.hpp"
#include "engine/views.hpp"

namespace aliquot::engine {
namespace {

std::int64_t in_parts(double part, double parts) { return std::llround(part * parts); }

api::FactorInfo factor(double factor, std::int64_t weighted) {
  return {in_parts(factor, 1e7), weighted};
}

// `4 GPUs`, `gpu:h200:1`, `2 shares of a GPU`, `8 CPUs`.
std::string wants(const Job& job) {
  if (!job.request.gpus) {
    const std::int64_t cpus = job.cpus / kOneCpu;
    return fmt::format("{} CPU{}", cpus, cpus == 1 ? "" : "s");
  }
  const core::GpuRequest& gpus = *job.request.gpus;
  const char* what = std::holds_alternative<core::WholeGpu>(gpus.what)
                         ? (gpus.count == 1 ? "GPU" : "GPUs")
                         : (gpus.count == 1 ? "share of a GPU" : "shares of GPUs");
  return fmt::format("{} {}", gpus.count, what);
}

std::string of_user(const Job& other, const Job& job) {
  return other.owner.uid == job.owner.uid ? "" : fmt::format(" of {}", other.owner.user);
}

}  // namespace

void Views::say_who_is_before(const Job& job, api::WhyInfo& why) {
  const auto before = queue_.before(job);
  if (!before || before->first == nullptr) return;
  if (before->count == 1) {
    why.sentences.push_back(fmt::format("One job is before it in the queue: job {}{}.",
                                        before->first->id, of_user(*before->first, job)));
  } else {
    why.sentences.push_back(
        fmt::format("{} jobs are before it in the queue, the first of them job {}{}.",
                    before->count, before->first->id, of_user(*before->first, job)));
  }
  if (before->reserved == nullptr) return;
  std::string kept = fmt::format("Job {}{} waits for {}", before->reserved->id,
                                 of_user(*before->reserved, job), wants(*before->reserved));
  if (!before->shorter) {
    why.sentences.push_back(kept + ": what is free goes to jobs that end before it can start.");
    return;
  }
  const std::string limit = format_duration(*before->shorter, TimeStyle::squeue);
  why.sentences.push_back(
      fmt::format("{}; add --time={} and yours can start now: 'scontrol update JobId={} "
                  "TimeLimit={}'.",
                  kept, limit, job.id, limit));
}

// It was not asked for, so it must be said.
void Views::say_default_time(const Job& job, api::WhyInfo& why) {
  if (job.spec.time_limit_ms || job.spec.no_time_limit || !job.time_limit) return;
  why.sentences.push_back(fmt::format("It said no --time and is ended after the default, {}.",
                                      format_duration(*job.time_limit, TimeStyle::squeue)));
}

api::PriorityList Views::priorities() const {
  const Sharers sharers(state_);
  const core::PriorityWeights& weights = sharers.model().weights();
  api::PriorityList list;
  list.weights.age.weighted = weights.age;
  list.weights.fair_share.weighted = weights.fair_share;
  list.weights.job_size.weighted = weights.job_size;
  list.weights.partition_factor.weighted = weights.partition;
  list.weights.qos_factor.weighted = weights.qos;
  for (const auto& [id, job] : state_.jobs) {
    // As in Slurm: what is held has no priority.
    if (job.state != core::JobState::pending || job.hold != Hold::none) continue;
    api::PriorityInfo shown;
    shown.job_id = id.value();
    shown.user = job.owner.user;
    shown.uid = job.owner.uid.value();
    shown.account = job.spec.account.empty() ? job.owner.user : job.spec.account;
    shown.partition = job.partition;
    shown.qos = job.spec.qos.empty() ? "normal" : job.spec.qos;
    shown.nice = job.spec.nice;
    const core::Urgency urgency = sharers.urgency(job);
    const core::Priority sum = sharers.model().priority(urgency);
    shown.priority = sum.total;
    if (urgency.fixed) {
      shown.site = sum.total;
    } else {
      const core::PriorityFactors factors = sharers.model().factors(urgency);
      shown.age = factor(factors.age, sum.age);
      shown.fair_share = factor(factors.fair_share, sum.fair_share);
      shown.job_size = factor(factors.job_size, sum.job_size);
      shown.partition_factor = factor(factors.partition, sum.partition);
      shown.qos_factor = factor(factors.qos, sum.qos);
    }
    list.jobs.push_back(std::move(shown));
  }
  return list;
}

api::Statistics Views::statistics() const {
  api::Statistics shown = state_.statistics.read(
      state_.tally->figures, [this](Uid user) { return state_.users.name(user); });
  shown.now_ms = state_.clock.wall().ms();
  for (const auto& [id, job] : state_.jobs) {
    if (job.state == core::JobState::pending) shown.pending += elements(job);
    if (job.state == core::JobState::running) ++shown.running;
  }
  return shown;
}

api::ShareList Views::shares(const std::optional<Caller>& caller) const {
  // Whoever asks is one of them, without any job.
  Job nothing;
  if (caller) {
    nothing.owner.uid = caller->uid;
    nothing.owner.user = state_.users.name(caller->uid);
  }
  const Sharers sharers(state_, caller ? &nothing : nullptr);
  api::ShareList list;
  const auto& all = sharers.model().sharers();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const core::Sharer& one = all[i];
    const core::Standing& standing = sharers.model().standing(i);
    api::ShareInfo shown;
    shown.user = state_.users.name(one.user);
    shown.uid = one.user.value();
    shown.account = shown.user;
    shown.shares = std::llround(one.shares);
    shown.norm_shares = in_parts(standing.norm_shares, 1e6);
    shown.usage_ms = in_parts(one.usage, 1e3);
    shown.norm_usage = in_parts(standing.norm_usage, 1e6);
    shown.factor = in_parts(standing.factor, 1e6);
    shown.held = one.held.value();
    list.users.push_back(std::move(shown));
  }
  for (const JobId id : state_.ledger.jobs()) {
    const Job& job = state_.jobs.at(id);
    const auto left = state_.time_left(job);
    if (!left) continue;
    api::ShareInfo& user = list.users[sharers.place(job.owner.uid)];
    const std::int64_t minutes_left = *left / minutes(1);
    user.held_cpu_min += job.cpus / kOneCpu * minutes_left;
    const Compute held = core::billed(state_.ledger.cluster(), *state_.ledger.find(id));
    user.held_gpu_min += held * minutes_left / kWholeGpu;
  }
  return list;
}

}  // namespace aliquot::engine
