#include "node/share_meter.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace aliquot::node {
namespace {

// Over less a rate says little: looks may be a quarter of a second apart.
constexpr Millis kLeast = Millis(900);

}  // namespace

void ShareMeter::note_time(Seen& seen, std::int64_t gpu_ns, MonoTime now) {
  const bool fresh = !std::exchange(seen.timed, true);
  const Millis elapsed = now - seen.when;
  if (!fresh && elapsed < kLeast) return;
  if (!fresh) {
    constexpr std::int64_t kNsPerMs = 1'000'000;
    const std::int64_t busy = std::max<std::int64_t>(gpu_ns - seen.gpu_ns, 0);
    const std::int64_t parts = busy / (elapsed.value() * (kNsPerMs / kWholeGpu.value()));
    seen.utilisation = std::min(Compute(parts), kWholeGpu);
  }
  seen.gpu_ns = gpu_ns;
  seen.when = now;
}

std::vector<ShareUse> ShareMeter::look(const std::vector<GpuView>& views,
                                       const std::vector<Enforcer::Told>& told, MonoTime now) {
  std::map<Place, ShareUse> uses;
  const auto use_at = [&](const Place& place) -> ShareUse& {
    return uses.try_emplace(place, ShareUse{.job = place.first, .gpu = place.second}).first->second;
  };
  for (const GpuView& view : views) {
    std::set<HolderId> here;
    for (const GpuProcess& process : view.processes) {
      if (!process.holder) continue;
      here.insert(*process.holder);
      use_at({*process.holder, view.sample.id}).memory += process.memory;
    }
    if (here.size() == 1)
      use_at({*here.begin(), view.sample.id}).utilisation = view.sample.utilisation;
  }
  for (const Enforcer::Told& one : told) {
    const Place place{one.job, one.gpu};
    ShareUse& use = use_at(place);
    use.memory = std::max(use.memory, one.usage.memory);
    use.memory_peak = one.usage.memory_peak;
    use.waited = Millis(one.usage.waited_ns / 1'000'000);
    use.refusals = one.usage.refusals;
    if (one.usage.launches == 0) continue;
    use.gpu_time = Millis(one.usage.gpu_ns / 1'000'000);
    Seen& seen = seen_[place];
    note_time(seen, one.usage.gpu_ns, now);
    use.utilisation = seen.utilisation;
  }
  std::erase_if(seen_, [&](const auto& one) { return !uses.contains(one.first); });
  std::vector<ShareUse> all;
  for (auto& [place, use] : uses) {
    Seen& seen = seen_[place];
    seen.peak = std::max({seen.peak, use.memory, use.memory_peak});
    use.memory_peak = seen.peak;
    all.push_back(std::move(use));
  }
  return all;
}

}  // namespace aliquot::node
