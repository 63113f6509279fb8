// What keeps jobs from GPUs or makes them give some up, beside a want of room: limits, jobs of a
// higher tier, and GPUs that are taken out of service.
#include <vector>

#include "engine/queue.hpp"
#include "engine/quotas.hpp"
#include "engine/runs.hpp"

namespace aliquot::engine {

std::vector<std::string> Queue::limit_sentences(const Job& job) const {
  Quotas quotas(state_);
  std::vector<std::string> first;
  for (const Partition* partition : admission_.find_partitions(job.partition)) {
    if (barred(job, *partition)) continue;
    auto text = quotas.sentences(job, *partition);
    if (text.empty()) return {};
    if (first.empty()) first = std::move(text);
  }
  return first;
}

// Jobs of a lower tier make room for what waits for room.
void Queue::evict_for(const std::vector<core::QueueEntry>& queue, const core::Decision& decision) {
  std::vector<core::Candidate> candidates;
  std::vector<core::Use> ending;
  for (const JobId id : state_.ledger.jobs()) {
    const Job& job = state_.jobs.at(id);
    const core::Use& use = *state_.ledger.find(id);
    if (job.state == core::JobState::completing || job.evicted) {
      ending.push_back(use);
      continue;
    }
    const auto partition = admission_.find_partitions(job.partition);
    if (partition.empty() || runs_.preempt_mode(job) == PreemptMode::off) continue;
    // What is lost: the seconds that it ran, by what it held.
    std::int64_t size = use.cpus.value() / 100;
    for (const core::GpuUse& gpu : use.gpus) size += gpu.portion.compute.value();
    candidates.push_back({.job = id,
                          .use = use,
                          .tier = partition.front()->tier,
                          .loss = state_.ran(job) / seconds(1) * size});
  }
  for (const core::Eviction& one : core::plan_evictions(state_.ledger.cluster(), queue, decision,
                                                        ending, candidates, *state_.policy)) {
    runs_.evict(state_.jobs.at(one.victim), one.by);
  }
}

Answer<void> Queue::drain_gpus(const Caller& caller, const api::DrainSpec& spec) {
  const auto gpus = TRY(gpu_service_.drain(caller, spec));
  if (!spec.down) return {};
  for (const core::GpuIndex gpu : gpus) {
    for (const JobId id : state_.ledger.jobs_on(0, gpu)) {
      runs_.take_down(state_.jobs.at(id), spec.reason);
    }
  }
  return {};
}

Answer<void> Queue::undrain_gpus(const Caller& caller, const std::vector<std::int64_t>& gpus) {
  return gpu_service_.resume(caller, gpus);
}

}  // namespace aliquot::engine
