#include "node/gpu_faults.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "gpu/trouble.hpp"
#include "node/last_words.hpp"

namespace aliquot::node {
namespace {

bool holds(const RunningJob& job, const GpuId& gpu) {
  return job.gpus && std::ranges::find(*job.gpus, gpu) != job.gpus->end();
}

void tell_first(const RunningJob& job, const JobMembers& members, const std::string& what) {
  std::vector<sys::ProcessRef> its = members ? members(job.id) : std::vector<sys::ProcessRef>();
  std::erase_if(its, [&](const sys::ProcessRef& one) { return !sys::runs_as(one.pid, job.uid); });
  if (its.empty()) return;
  tell_process(std::ranges::min(its, {}, &sys::ProcessRef::start_time), job.uid, job.gid,
               fmt::format("aliquot: job {}: {}\n", job.id, what));
}

}  // namespace

std::vector<Escape> GpuFaults::look(const std::vector<GpuView>& views,
                                    const std::vector<RunningJob>& running,
                                    const JobMembers& members) {
  std::vector<Escape> words;
  for (std::size_t i = 0; i < views.size(); ++i) {
    const gpu::Sample& sample = views[i].sample;
    if (sample.trouble.empty()) {
      told_.erase(sample.id);
      if (troubles_.erase(sample.id) > 0) {
        spdlog::info("GPU {} ({}) is well again, and takes jobs", i, sample.id);
      }
      continue;
    }
    const auto [known, fresh] = troubles_.try_emplace(sample.id, sample.trouble);
    if (fresh || known->second != sample.trouble) {
      known->second = sample.trouble;
      spdlog::error("GPU {} ({}) takes no more jobs: {}", i, sample.id,
                    gpu::trouble_text(sample.trouble));
    }
    std::vector<HolderId>& told = told_[sample.id];
    for (const RunningJob& job : running) {
      if (!holds(job, sample.id) || std::ranges::find(told, job.id) != told.end()) continue;
      told.push_back(job.id);
      const std::string what = fmt::format("GPU {} ({}), which it holds, is broken: {}", i,
                                           sample.id, gpu::trouble_text(sample.trouble));
      tell_first(job, members, what);
      words.push_back({job.id, what});
    }
  }
  return words;
}

}  // namespace aliquot::node
