#include "engine/engine.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "engine/fair_share.hpp"
#include "gpu/trouble.hpp"

namespace aliquot::engine {
namespace {

// A file may have been written for another machine.
void warn_of_unknown_gpus(const State& state) {
  for (const Partition& partition : state.settings.partitions) {
    for (const std::int64_t index : partition.gpus) {
      if (std::ranges::find(state.machine.gpus, index, &gpu::Device::index) ==
          state.machine.gpus.end()) {
        spdlog::warn("partition {} names GPU {}, which this machine does not have", partition.name,
                     index);
      }
    }
  }
}

// Actions may find new work (a start that failed): so many rounds of one call.
constexpr int kMostRounds = 100;

}  // namespace

Engine::Engine(State state, Views::Facts facts)
    : state_(std::move(state)),
      queue_(state_, runs_, forecast_),
      forecast_(state_, queue_),
      runs_(state_, queue_, clients_, views_),
      clients_(state_, queue_, runs_),
      views_(state_, queue_, forecast_, runs_, clients_, std::move(facts)),
      upkeep_(state_),
      tokens_(state_) {}

Result<std::unique_ptr<Engine>> Engine::create(Parts parts, Views::Facts facts) {
  const Settings& settings = parts.settings;
  core::Node node{.id = NodeId(parts.machine.name),
                  .cpus = kOneCpu * parts.machine.cpus,
                  .memory = parts.machine.memory,
                  .gpus = {},
                  .compute_limit = settings.compute_limit,
                  .mps_per_gpu = settings.mps_per_gpu,
                  .shards_per_gpu = settings.shards_per_gpu};
  for (const gpu::Device& device : parts.machine.gpus) node.gpus.push_back(device.gpu);
  core::Cluster cluster = TRY(core::Cluster::create({node}));
  auto policy = TRY(machine_policy(settings));
  auto engine = std::unique_ptr<Engine>(new Engine(
      {std::move(parts), core::Ledger(std::move(cluster)), std::move(policy)}, std::move(facts)));
  warn_of_unknown_gpus(engine->state_);
  engine->count_anew();
  TRY(engine->tokens_.read());
  TRY(engine->views_.recall());
  TRY(engine->runs_.recover());
  return engine;
}

void Engine::settle() {
  bool failed = false;
  unsettled_ = false;
  forecast_.go_on();
  // Every round is committed before it acts.
  for (int round = 0; round < kMostRounds; ++round) {
    if (const auto back = restore(); !back) return give_up(back.error());
    for (std::size_t i = 0; i < state_.events.size(); ++i) state_.events[i]();
    runs_.enforce_times();
    clients_.enforce_times();
    runs_.notices().enforce_times();
    upkeep_.tidy();
    if (!state_.schedule_needed) {
      const auto due = next_due();
      state_.schedule_needed = due && *due <= state_.clock.wall();
    }
    const bool looked = queue_.schedule_if_due();
    const bool changes = state_.store.dirty();
    auto committed =
        state_.unread ? Result<void>(tl::make_unexpected(*state_.unread)) : state_.store.commit();
    if (!committed) {
      give_up(committed.error());
      // Once more without the requests, which were refused: one that is too large for the disk must
      // not keep the ends of jobs from being recorded.
      if (!std::exchange(failed, true)) continue;
      (void)restore();  // else the next call tries
      return;
    }
    if (changes) state_.trouble.reset();
    try_again_at_.reset();
    state_.events.clear();
    state_.refusals.clear();
    state_.touched.clear();
    if (state_.actions.empty() && (!state_.schedule_needed || !looked)) return;
    for (const auto& action : std::exchange(state_.actions, {})) action();
  }
  spdlog::warn("after {} rounds there is still something to do for the jobs: it is done next",
               kMostRounds);
  unsettled_ = true;
}

void Engine::give_up(const Error& why) {
  state_.trouble = why;
  state_.ahead = true;
  state_.unread.reset();
  state_.store.rollback();
  state_.known_facts.clear();
  state_.actions.clear();
  for (const auto& refusal : std::exchange(state_.refusals, {})) refusal();
  try_again_at_ = state_.clock.wall() + kRecordPause;
}

// All that is kept in memory of a job is on record, or follows from it: what was touched is read
// back. Ids are not given twice: connections may still name what is gone.
Result<void> Engine::restore() {
  if (!state_.ahead) return {};
  std::vector<Job> before;
  for (const JobId id : state_.touched) {
    auto job = state_.store.load(id);
    if (!job && job.error().code == Error::Code::not_found) continue;
    before.push_back(TRY(std::move(job)));
  }
  TRY(queue_.read_drained());
  TRY(read_usage(state_));
  TRY(queue_.accounts().read());
  TRY(queue_.gpu_service().read());
  TRY(queue_.reservations().read());
  TRY(tokens_.read());
  for (const JobId id : state_.touched) {
    if (state_.ledger.find(id) != nullptr) (void)state_.ledger.release(id);
    state_.jobs.erase(id);
    clients_.roll_back(id);
  }
  for (Job& job : before) {
    if (!core::is_final(job.state)) TRY(runs_.take_up(std::move(job)));
  }
  for (const JobId id : std::exchange(state_.touched, {})) clients_.roll_back_done(id);
  state_.counts.reset();
  state_.dependencies_changed = true;
  state_.schedule_needed = true;
  state_.ahead = false;
  return {};
}

std::optional<WallTime> Engine::next_due() {
  // Whatever else is due cannot be recorded before.
  if (try_again_at_) return try_again_at_;
  const WallTime now = state_.clock.wall();
  if (unsettled_ || forecast_.unfinished()) return now;
  std::optional<WallTime> due;
  const auto at = [&](const std::optional<WallTime>& time) {
    if (time && (!due || *time < *due)) due = time;
  };
  if (state_.schedule_needed) at(now + (queue_.next_pass() - state_.clock.mono()));
  at(queue_.reservations().next_change());
  at(runs_.notices().due());
  for (auto timed = state_.timed.begin(); timed != state_.timed.end();) {
    const Job* job = state_.find(*timed);
    if (job == nullptr) {
      timed = state_.timed.erase(timed);
      continue;
    }
    ++timed;
    at(queue_.due(*job));
    at(clients_.due(*job));
    at(runs_.due(*job));
  }
  return due;
}

Answer<void> Engine::administer(const Caller& caller) const {
  if (state_.is_admin(caller)) return {};
  return refuse(Why::access_denied, "only root may do this");
}

Reloaded Engine::reload(const Settings& next) {
  state_.schedule_needed = true;
  Reloaded reloaded = reload_settings(state_.settings, next);
  warn_of_unknown_gpus(state_);
  state_.usage.set_half_life(state_.settings.priority.half_life);
  return reloaded;
}

std::vector<const Job*> Engine::active() const {
  std::vector<const Job*> jobs;
  for (const auto& [id, job] : state_.jobs) {
    if (core::is_active(job.state)) jobs.push_back(&job);
  }
  return jobs;
}

void Engine::observe(std::optional<std::vector<node::GpuView>> views, const Measures& measures) {
  core::Cluster& cluster = state_.ledger.cluster();
  const MonoTime now = state_.clock.mono();
  if (!views) {
    cluster.expire_samples(now, state_.settings.stale_after);
    return views_.observe(std::nullopt);
  }
  const std::uint64_t version = cluster.version();
  for (std::size_t gpu = 0; gpu < views->size() && gpu < state_.machine.gpus.size(); ++gpu) {
    const node::GpuView& view = (*views)[gpu];
    Bytes foreign(0);
    for (const node::GpuProcess& process : view.processes) {
      if (!process.holder) foreign += process.memory;
    }
    const auto index = static_cast<core::GpuIndex>(gpu);
    queue_.gpu_service().saw(
        index, view.sample.health,
        view.sample.trouble.empty() ? "" : gpu::trouble_text(view.sample.trouble));
    State::must(cluster.observe(0, index, {view.sample.utilisation, foreign, now}));
  }
  if (cluster.version() != version) state_.schedule_needed = true;
  runs_.observe(*views);
  views_.observe(std::move(views), measures);
}

}  // namespace aliquot::engine
