// Taking up what the record says, when the daemon comes back.
#include <algorithm>

#include "base/text.hpp"
#include "engine/engine.hpp"

namespace aliquot::engine {
namespace {

// How long a client has to come back after the daemon was away.
constexpr Millis kReattach = seconds(60);

}  // namespace

Result<void> Engine::read_drained() {
  drained_.reset();
  const auto note = TRY(store_.note(std::string(kDrainNote)));
  if (!note) return {};
  const auto words = aliquot::split(*note, ' ');
  Drained drained;
  if (words.size() >= 3) {
    drained.since_ms = parse_digits(words[0]).value_or(0);
    drained.uid = static_cast<std::uint32_t>(parse_digits(words[1]).value_or(0));
    drained.reason = note->substr(words[0].size() + words[1].size() + 2);
  }
  drained_ = std::move(drained);
  return {};
}

// A job of the record into memory, with what it holds and the steps that run.
Result<void> Engine::take_up(Job loaded) {
  const core::Node& node = ledger_.cluster().node(0);
  const api::JobInfo was = loaded.info;
  if (const auto fine = read_spec(loaded); !fine) {
    // The machine has changed since: it stays visible, for its owner to cancel.
    loaded.hold = loaded.state == core::JobState::pending ? Hold::admin : loaded.hold;
    loaded.info.reason_detail = fine.error().error.message;
  }
  if (!was.array_pending.empty()) loaded.waiting = TRY(core::parse_array(was.array_pending));
  const JobId id = loaded.id();
  Job& job = jobs_.insert_or_assign(id, std::move(loaded)).first->second;
  counts_.reset();
  note_times(job);
  if (!core::is_active(job.state)) return {};

  // What it was granted, not what it would be granted now.
  job.info.cpus = was.cpus;
  job.info.memory = was.memory;
  core::Use use{.node = 0, .cpus = kOneCpu * was.cpus, .memory = Bytes(was.memory), .gpus = {}};
  for (const api::GpuHold& held : was.gpus) {
    const auto gpu = std::ranges::find(node.gpus, GpuId(held.uuid), &core::Gpu::id);
    if (gpu == node.gpus.end()) continue;  // gone, and so nobody else's
    use.gpus.push_back({.gpu = static_cast<core::GpuIndex>(gpu - node.gpus.begin()),
                        .portion = {Bytes(held.memory), Compute(held.compute)},
                        .whole = held.whole});
  }
  if (const auto granted = ledger_.grant(id, std::move(use)); !granted) {
    return fail(granted.error().code, "job {} cannot hold what it held: {}", id,
                granted.error().message);
  }
  for (api::StepInfo& step : TRY(store_.steps(id))) {
    if (step.id == "batch") continue;
    const std::int64_t number = std::stoll(step.id);
    next_step_[id] = std::max(next_step_[id], number + 1);
    if (!step.end_ms) steps_[id][number] = std::move(step);
  }
  return {};
}

Result<void> Engine::recover() {
  last_id_ = TRY(store_.last_id());
  TRY(read_drained());
  for (Job& loaded : TRY(store_.load_live())) TRY(take_up(std::move(loaded)));
  for (auto& [id, job] : jobs_) {
    if (!core::is_active(job.state)) continue;
    if (!job.spec.batch) {
      clients_[id] = {
          .granted = nullptr,
          .pid = {},
          .attached = false,
          .end = std::nullopt,
          .reattach_by = job.spec.detached ? std::optional<WallTime>() : clock_.wall() + kReattach};
    }
    if (job.spec.batch) executor_.adopt(job);
    if (job.state != core::JobState::completing) continue;
    if (job.spec.batch) {
      executor_.command(id, node::CancelCommand{});
    } else {
      executor_.end_allocation(job, kGonePatience);
    }
  }
  return {};
}

}  // namespace aliquot::engine
