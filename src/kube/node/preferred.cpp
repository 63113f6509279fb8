#include "kube/node/preferred.hpp"

#include <algorithm>
#include <tuple>

#include "kube/model/node_gpus.hpp"

namespace aliquot::kube {
namespace {

// Units by number, so that what is free stays together.
using Free = std::map<GpuId, std::vector<std::pair<std::int64_t, std::string>>>;

Free by_gpu(const DeviceIds& ids) {
  Free free;
  for (const std::string& id : ids) {
    const auto device = parse_device_id(id);
    if (device) free[device->first].emplace_back(device->second.value_or(0), id);
  }
  for (auto& [gpu, units] : free) std::ranges::sort(units);
  return free;
}

// Adds units of this GPU until there are enough.
void take(const Free& free, const GpuId& gpu, std::size_t size, DeviceIds& ids) {
  const auto found = free.find(gpu);
  if (found == free.end()) return;
  for (const auto& [unit, id] : found->second) {
    if (ids.size() >= size) return;
    if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  }
}

}  // namespace

Offer prefer(Kind kind, const Wanted& wanted, const std::vector<Candidate>& candidates,
             const std::map<GpuId, std::int64_t>& promised) {
  const Free free = by_gpu(wanted.available);
  const Free kept = by_gpu(wanted.must_include);
  DeviceIds fixed = wanted.must_include;
  if (fixed.size() > wanted.size) fixed.resize(wanted.size);

  for (const Candidate& candidate : candidates) {
    const bool has_kept = std::ranges::all_of(kept, [&](const auto& one) {
      return std::ranges::find(candidate.gpus, one.first) != candidate.gpus.end();
    });
    if (!has_kept) continue;
    DeviceIds ids = fixed;
    for (const GpuId& gpu : candidate.gpus) take(free, gpu, wanted.size, ids);
    if (ids.size() == wanted.size) return {sorted(std::move(ids)), candidate.key};
  }

  // Nobody we know of. For memory: the GPU that must be, else one that is large enough even with
  // what others were promised, else one that is large enough, the one with the least free first;
  // the rest, largest first, only where no GPU is. Whole ones: those that nobody was promised
  // first.
  const auto size = static_cast<std::int64_t>(wanted.size);
  std::vector<std::tuple<bool, bool, bool, std::int64_t, GpuId>> order;
  for (const auto& [gpu, units] : free) {
    const auto count = static_cast<std::int64_t>(units.size());
    const auto found = promised.find(gpu);
    const std::int64_t taken = found == promised.end() ? 0 : found->second;
    if (kind == Kind::whole) {
      order.emplace_back(!kept.contains(gpu), taken > 0, false, 0, gpu);
      continue;
    }
    const bool fits = count >= size;
    order.emplace_back(!kept.contains(gpu), !fits, count - taken < size, fits ? count : -count,
                       gpu);
  }
  std::ranges::sort(order);
  DeviceIds ids = fixed;
  for (const auto& one : order) take(free, std::get<GpuId>(one), wanted.size, ids);
  return {sorted(std::move(ids)), std::nullopt};
}

}  // namespace aliquot::kube
