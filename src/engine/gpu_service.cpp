#include "engine/gpu_service.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "base/text.hpp"
#include "engine/admission.hpp"

namespace aliquot::engine {
namespace {

// One line each: "UUID MILLISECONDS UID REASON".
constexpr const char* kGpusNote = "drained gpus";

}  // namespace

Result<void> GpuService::read() {
  auto& service = state_.gpu_service;
  for (auto& [gpu, one] : service) one.drain.reset();
  const std::string note = TRY(state_.store.note(kGpusNote)).value_or("");
  for (const std::string_view line : split(note, '\n')) {
    const auto words = split(line, ' ');
    if (words.size() < 4) continue;
    const auto gpu = std::ranges::find(state_.machine.gpus, words[0], [](const gpu::Device& one) {
      return std::string_view(one.gpu.id.value());
    });
    if (gpu == state_.machine.gpus.end()) continue;  // gone from the machine
    const std::size_t before = words[0].size() + words[1].size() + words[2].size() + 3;
    service[static_cast<core::GpuIndex>(gpu - state_.machine.gpus.begin())].drain =
        Drained{std::string(line.substr(before)),
                Uid(static_cast<std::uint32_t>(parse_digits(words[2]).value_or(0))),
                WallTime(parse_digits(words[1]).value_or(0))};
  }
  for (core::GpuIndex gpu = 0; gpu < state_.machine.gpus.size(); ++gpu) apply(gpu);
  return {};
}

void GpuService::save() {
  std::string text;
  for (const auto& [gpu, one] : state_.gpu_service) {
    if (!one.drain) continue;
    text += fmt::format("{} {} {} {}\n", state_.machine.gpus[gpu].gpu.id, one.drain->since,
                        one.drain->uid, one.drain->reason);
  }
  state_.require(
      state_.store.save_note(kGpusNote, text.empty() ? std::nullopt : std::optional(text)));
}

void GpuService::apply(core::GpuIndex gpu) {
  const GpuOutage& one = state_.gpu_service[gpu];
  core::Health health = one.seen;
  if (one.drain && health == core::Health::ok) health = core::Health::draining;
  State::must(state_.ledger.cluster().set_health(0, gpu, health));
  state_.schedule_needed = true;
}

Answer<std::vector<core::GpuIndex>> GpuService::find(const std::vector<std::int64_t>& gpus) const {
  std::vector<core::GpuIndex> found;
  for (const std::int64_t index : gpus) {
    const auto devices = state_.machine.devices_of(index);
    if (devices.empty()) {
      return refuse(Why::bad_change, fmt::format("there is no GPU {}", index));
    }
    found.insert(found.end(), devices.begin(), devices.end());
  }
  return found;
}

Answer<std::vector<core::GpuIndex>> GpuService::drain(const Caller& caller,
                                                      const api::DrainSpec& spec) {
  if (!state_.is_admin(caller)) return refuse(Why::access_denied, "only root may do this");
  TRY(check_shown(spec.reason));
  const auto found = TRY(find(spec.gpus));
  for (const core::GpuIndex gpu : found) {
    state_.gpu_service[gpu].drain = Drained{spec.reason, caller.uid, state_.clock.wall()};
    apply(gpu);
    spdlog::info("GPU {} is drained by {}: {}", state_.machine.gpus[gpu].index,
                 state_.users.name(caller.uid), spec.reason);
  }
  save();
  return found;
}

Answer<void> GpuService::resume(const Caller& caller, const std::vector<std::int64_t>& gpus) {
  if (!state_.is_admin(caller)) return refuse(Why::access_denied, "only root may do this");
  for (const core::GpuIndex gpu : TRY(find(gpus))) {
    state_.gpu_service[gpu].drain.reset();
    apply(gpu);
    spdlog::info("GPU {} is back in service, by {}", state_.machine.gpus[gpu].index,
                 state_.users.name(caller.uid));
  }
  save();
  return {};
}

void GpuService::saw(core::GpuIndex gpu, core::Health health, const std::string& trouble) {
  GpuOutage& one = state_.gpu_service[gpu];
  if (health != one.seen || (health != core::Health::ok && trouble != one.trouble)) {
    one.since = state_.clock.wall();
    const std::int64_t index = state_.machine.gpus[gpu].index;
    if (health == core::Health::ok) {
      spdlog::info("GPU {} is well again", index);
    } else {
      spdlog::error("GPU {} takes no more jobs: {}", index,
                    trouble.empty() ? "it cannot be used" : trouble);
    }
  }
  one.seen = health;
  one.trouble = trouble;
  core::Health now = health;
  if (one.drain && now == core::Health::ok) now = core::Health::draining;
  State::must(state_.ledger.cluster().set_health(0, gpu, now));
}

}  // namespace aliquot::engine
