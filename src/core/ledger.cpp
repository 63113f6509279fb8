#include "core/ledger.hpp"

#include <algorithm>

namespace aliquot::core {

Result<void> Ledger::grant(JobId job, Use use) {
  if (job < JobId(0)) return fail(Error::Code::invalid_argument, "no job can be number {}", job);
  if (grants_.contains(job)) {
    return fail(Error::Code::already_exists, "job {} holds a grant already", job);
  }
  TRY(cluster_.take(use));
  grants_.emplace(job, std::move(use));
  return {};
}

Result<void> Ledger::take_up(JobId job, Use use) {
  if (grants_.contains(job)) {
    return fail(Error::Code::already_exists, "job {} holds a grant already", job);
  }
  TRY(cluster_.take_up(use));
  grants_.emplace(job, std::move(use));
  return {};
}

Result<Use> Ledger::release(JobId job) {
  const auto found = grants_.find(job);
  if (found == grants_.end()) return fail(Error::Code::not_found, "job {} holds no grant", job);
  TRY(cluster_.give_back(found->second));
  Use use = std::move(found->second);
  grants_.erase(found);
  return use;
}

Result<void> Ledger::resize(JobId job, Use use) {
  const auto found = grants_.find(job);
  if (found == grants_.end()) return fail(Error::Code::not_found, "job {} holds no grant", job);
  TRY(cluster_.give_back(found->second));
  if (auto taken = cluster_.take(use); !taken) {
    // What was just given back fits again, unless the ledger is broken.
    if (!cluster_.take(found->second)) std::abort();
    return taken;
  }
  found->second = std::move(use);
  return {};
}

const Use* Ledger::find(JobId job) const {
  const auto found = grants_.find(job);
  return found == grants_.end() ? nullptr : &found->second;
}

std::vector<JobId> Ledger::jobs() const {
  std::vector<JobId> jobs;
  jobs.reserve(grants_.size());
  for (const auto& [job, use] : grants_) jobs.push_back(job);
  std::ranges::sort(jobs);
  return jobs;
}

std::vector<JobId> Ledger::jobs_on(NodeIndex node, GpuIndex gpu) const {
  std::vector<JobId> jobs;
  for (const auto& [job, use] : grants_) {
    if (use.node == node &&
        std::ranges::any_of(use.gpus, [&](const GpuUse& held) { return held.gpu == gpu; })) {
      jobs.push_back(job);
    }
  }
  std::ranges::sort(jobs);
  return jobs;
}

}  // namespace aliquot::core
