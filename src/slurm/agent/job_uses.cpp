#include "slurm/agent/job_uses.hpp"

#include <algorithm>

#include "slurm/agent/step_parts.hpp"

namespace aliquot::slurm {
namespace {

using JobMemory = std::map<HolderId, Bytes>;

JobMemory memory_of_jobs(const node::GpuView& view) {
  JobMemory memory;
  for (const node::GpuProcess& process : view.processes) {
    if (process.holder) memory[*process.holder] += process.memory;
  }
  return memory;
}

}  // namespace

std::optional<Compute> JobUses::rate(const HolderId& job, const Measure& measure, MonoTime now,
                                     std::int64_t gpus) {
  const auto measured = measure(job);
  if (!measured) return std::nullopt;
  const auto [found, fresh] = seen_.try_emplace(job, Seen{*measured, now});
  Seen& before = found->second;
  const std::int64_t elapsed = (now - before.when).value() * gpus;
  if (fresh || elapsed <= 0) return before.utilisation;
  const std::int64_t busy = std::max<std::int64_t>((*measured - before.gpu_time).value(), 0);
  before = {*measured, now, std::min(Compute(busy * kWholeGpu.value() / elapsed), kWholeGpu)};
  return before.utilisation;
}

void JobUses::add(NodeSample& sample, const NodeGpus& node, const std::vector<node::GpuView>& views,
                  const Measure& measure, MonoTime now) {
  std::map<HolderId, std::int64_t> gpus;  // that each is on
  for (const node::GpuView& view : views) {
    for (const auto& [job, memory] : memory_of_jobs(view)) ++gpus[job];
  }
  std::erase_if(seen_, [&](const auto& one) { return !gpus.contains(one.first); });
  std::map<HolderId, std::optional<Compute>> rates;
  for (const auto& [job, count] : gpus) rates[job] = rate(job, measure, now, count);
  for (const node::GpuView& view : views) {
    const auto number = node.number_of(view.sample.id);
    const auto load = std::ranges::find(sample.gpus, number.value_or(-1), &GpuLoad::index);
    if (load == sample.gpus.end()) continue;
    const JobMemory memory = memory_of_jobs(view);
    for (const auto& [job, bytes] : memory) {
      const auto id = job_of_holder(job);
      const auto& measured = rates[job];
      if (!id) continue;
      load->jobs.push_back({id->value(),
                            measured             ? *measured
                            : memory.size() == 1 ? view.sample.utilisation
                                                 : Compute(0),
                            bytes});
    }
    std::ranges::stable_sort(load->jobs, std::ranges::greater{}, &JobUse::memory);
    if (load->jobs.size() > kMostJobs) load->jobs.resize(kMostJobs);
  }
}

}  // namespace aliquot::slurm
