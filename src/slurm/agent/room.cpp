#include "slurm/agent/room.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/size.hpp"
#include "gpu/trouble.hpp"

namespace aliquot::slurm {
namespace {

// A process may be about to go: the step asks again meanwhile.
constexpr Millis kGoing = seconds(2);

}  // namespace

std::int64_t Room::number_of(const GpuId& gpu) const { return node_.number_of(gpu).value_or(-1); }

Bytes Room::foreign_on(const GpuId& gpu) const {
  const auto found = foreign_.find(gpu);
  const Bytes held = found == foreign_.end() ? Bytes(0) : found->second;
  return held < node_.share.unit ? Bytes(0) : held;
}

Bytes Room::free_on(const GpuId& gpu, const Granted& granted) const {
  const auto device = std::ranges::find_if(
      node_.devices, [&](const gpu::Device& one) { return one.gpu.id == gpu; });
  if (device == node_.devices.end()) return Bytes(0);
  const auto given = granted.find(gpu);
  const Bytes taken = foreign_on(gpu) + (given == granted.end() ? Bytes(0) : given->second);
  return std::max(device->gpu.memory - taken, Bytes(0));
}

void Room::observe(const std::vector<node::GpuView>& views, const Granted& granted) {
  for (const node::GpuView& view : views) {
    const GpuId& gpu = view.sample.id;
    broken_.erase(gpu);
    if (!view.sample.trouble.empty()) broken_[gpu] = view.sample.trouble;
    Bytes held(0);
    for (const node::GpuProcess& process : view.processes) {
      if (!process.holder) held += process.memory;
    }
    foreign_[gpu] = held;
  }
  std::erase_if(wanted_, [&](const auto& one) {
    return foreign_on(one.first) == Bytes(0) || one.second.memory <= free_on(one.first, granted);
  });
}

Result<void> Room::check(const core::Grant& grant, const Granted& others) {
  for (const core::GrantedGpu& held : grant.gpus) {
    if (const auto broken = broken_.find(held.gpu); broken != broken_.end()) {
      return fail(Error::Code::unavailable, "GPU {} of {} is broken: {}", number_of(held.gpu),
                  node_.node, gpu::trouble_text(broken->second));
    }
    const Bytes foreign = foreign_on(held.gpu);
    const Bytes free = free_on(held.gpu, others);
    if (foreign == Bytes(0) || held.portion.memory <= free) continue;
    const auto [wanted, fresh] =
        wanted_.try_emplace(held.gpu, Wanted{held.portion.memory, clock_.mono()});
    wanted->second.memory = std::min(wanted->second.memory, held.portion.memory);
    return fail(Error::Code::unavailable,
                "processes of no job hold {} MiB of GPU {} of {}: of the {} MiB that the job was "
                "given, {} are free",
                foreign / mib(1), number_of(held.gpu), node_.node, held.portion.memory / mib(1),
                free / mib(1));
  }
  return {};
}

std::string Room::keep_away() const {
  std::map<std::int64_t, std::string> words;
  for (const auto& [gpu, wanted] : wanted_) {
    if (clock_.mono() - wanted.since < kGoing) continue;
    words[number_of(gpu)] = fmt::format(
        "processes of no job hold memory of GPU {} that was given to jobs", number_of(gpu));
  }
  for (const auto& [gpu, trouble] : broken_) {
    words[number_of(gpu)] =
        fmt::format("GPU {} is broken: {}", number_of(gpu), gpu::trouble_text(trouble));
  }
  std::string text;
  for (const auto& [number, what] : words) text += (text.empty() ? "" : "; ") + what;
  return text;
}

}  // namespace aliquot::slurm
