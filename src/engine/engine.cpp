#include "engine/engine.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "base/text.hpp"
#include "node/job_grant.hpp"

namespace aliquot::engine {

tl::unexpected<Refused> try_again(const Error& error) {
  return refuse(503, "EAGAIN", error.message + "; try again later");
}

tl::unexpected<Refused> refuse(int status, std::string code, std::string message) {
  return tl::unexpected<Refused>(Refused{status, {std::move(code), std::move(message)}});
}

Answer<void> check_shown(std::string_view text) {
  constexpr std::size_t kLongest = 1'024;
  if (text.size() > kLongest) {
    return refuse(400, "ESLURM_PATHNAME_TOO_LONG", "a name or text of the job is too long");
  }
  if (!is_plain_line(text)) {
    return refuse(400, "ESLURM_INVALID_JOB_TEXT",
                  "a name or text of the job holds control characters");
  }
  return {};
}

Engine::Engine(Parts parts, core::Ledger ledger, std::unique_ptr<core::Policy> policy)
    : settings_(std::move(parts.settings)),
      machine_(std::move(parts.machine)),
      clock_(parts.clock),
      executor_(parts.executor),
      users_(parts.users),
      store_(std::move(parts.store)),
      owner_(parts.owner),
      simulated_(parts.simulated),
      backends_(std::move(parts.backends)),
      ledger_(std::move(ledger)),
      policy_(std::move(policy)),
      started_(clock_.wall()) {}

Result<std::unique_ptr<Engine>> Engine::create(Parts parts) {
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
  auto policy = TRY(core::make_policy(settings.policy, core::generic_profile()));
  auto engine = std::unique_ptr<Engine>(
      new Engine(std::move(parts), core::Ledger(std::move(cluster)), std::move(policy)));
  TRY(engine->recover());
  return engine;
}

Answer<void> Engine::admit(const Caller& caller) const {
  if (ahead_) return try_again(*trouble_);
  if (owner_ == Uid(0) || is_admin(caller)) return {};
  return refuse(403, "ESLURM_ACCESS_DENIED", "this daemon serves the user who started it alone");
}

void Engine::set_state(Job& job, core::JobState state) {
  if (!core::may_change(job.state, state)) {
    fmt::print(stderr, "aliquotd: job {} is {} and cannot become {}\n", job.id(),
               core::long_name(job.state), core::long_name(state));
    std::abort();
  }
  job.state = state;
  job.info.state = core::long_name(state);
}

// A change that cannot be written spoils the transaction, which commit() will say.
void Engine::save(const Job& job) {
  touched_.insert(job.id());
  facts_.erase(job.id());
  if (job.info.array_job_id) facts_.erase(JobId(*job.info.array_job_id));
  note_times(job);
  require(store_.save(job));
}

void Engine::note_times(const Job& job) {
  const bool timed = job.info.deadline_ms || job.spec.begin_ms || job.not_before > WallTime() ||
                     !job.dependencies.empty() || !job.spec.batch ||
                     (job.state == core::JobState::running && job.info.time_limit_ms);
  if (timed) timed_.insert(job.id());
}

void Engine::save_step(const api::StepInfo& step) {
  touched_.insert(JobId(step.job_id));
  require(store_.save_step(step));
}

Job* Engine::find(JobId id) {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? nullptr : &found->second;
}

void Engine::require(const Result<void>& result) {
  if (!result && !unread_) unread_ = result.error();
}

void Engine::must(const Result<void>& result) {
  if (result) return;
  fmt::print(stderr, "aliquotd: cannot go on: {}\n", result.error().message);
  std::abort();
}

namespace {

// Of a pass over a queue so long that it takes this: the next one comes after so many times that,
// and meanwhile requests are answered.
constexpr Millis kLongPass(5);
constexpr std::int64_t kPassShare = 4;

// Jobs that are purged, or whose payload is dropped, in one transaction: it must not keep anybody
// waiting.
constexpr std::int64_t kPurgedAtOnce = 500;
constexpr std::int64_t kDroppedAtOnce = 200;

}  // namespace

void Engine::settle() {
  bool failed = false;
  // Actions may find new work (a start that failed), and every round is committed before it acts.
  for (int round = 0; round < 100; ++round) {
    if (const auto back = restore(); !back) return give_up(back.error());
    for (std::size_t i = 0; i < events_.size(); ++i) events_[i]();
    enforce_times();
    const WallTime now = clock_.wall();
    if (!schedule_needed_) {
      const auto due = next_due();
      schedule_needed_ = due && *due <= now;
    }
    const MonoTime begun = clock_.mono();
    const bool look = schedule_needed_ && begun >= schedule_after_;
    if (look) {
      schedule();
      const Millis took = clock_.mono() - begun;
      if (took >= kLongPass) schedule_after_ = clock_.mono() + took * kPassShare;
    }
    const bool changes = store_.dirty();
    auto committed = unread_ ? Result<void>(tl::make_unexpected(*unread_)) : store_.commit();
    if (!committed) {
      give_up(committed.error());
      // Once more without the requests, which were refused: one that is too large for the disk must
      // not keep the ends of jobs from being recorded.
      if (!std::exchange(failed, true)) continue;
      (void)restore();  // else the next call tries
      return;
    }
    if (changes) trouble_.reset();
    try_again_at_.reset();
    events_.clear();
    refusals_.clear();
    touched_.clear();
    if (actions_.empty() && (!schedule_needed_ || !look)) return;
    for (const auto& action : std::exchange(actions_, {})) action();
  }
}

std::optional<WallTime> Engine::next_due() const {
  // Whatever else is due cannot be recorded before.
  if (try_again_at_) return try_again_at_;
  std::optional<WallTime> due;
  if (schedule_needed_) due = clock_.wall() + (schedule_after_ - clock_.mono());
  const auto at = [&](WallTime time) {
    if (!due || time < *due) due = time;
  };
  const auto in = [&](Millis left) { at(clock_.wall() + left); };
  for (auto timed = timed_.begin(); timed != timed_.end();) {
    const auto found = jobs_.find(*timed);
    if (found == jobs_.end()) {
      timed = timed_.erase(timed);
      continue;
    }
    ++timed;
    const auto& [id, job] = *found;
    if (job.state == core::JobState::pending) {
      if (job.info.deadline_ms) at(WallTime(*job.info.deadline_ms));
      if (const auto client = clients_.find(id); client != clients_.end()) {
        if (client->second.start_by) in(*client->second.start_by - clock_.mono());
      }
      if (job.hold != Hold::none) continue;
      if (job.info.reason == core::reason::kBeginTime) {
        at(std::max(WallTime(job.spec.begin_ms.value_or(0)), job.not_before));
      }
      if (job.dependency_state.next) at(*job.dependency_state.next);
    } else if (!job.spec.batch && job.state != core::JobState::completing) {
      const auto left = time_left(job);
      if (left && job.state == core::JobState::running) in(*left);
      const auto client = clients_.find(id);
      if (job.state == core::JobState::running && client != clients_.end() &&
          client->second.reattach_by) {
        in(*client->second.reattach_by - clock_.mono());
      }
    } else if (const auto left = patience_left(job)) {
      in(std::max(*left, Millis(0)));
    }
  }
  return due;
}

Reloaded Engine::reload(const Settings& next) {
  schedule_needed_ = true;
  return reload_settings(settings_, next);
}

std::vector<node::RunningJob> Engine::running() const {
  std::vector<node::RunningJob> jobs;
  for (const JobId id : ledger_.jobs()) {
    const Job& job = jobs_.at(id);
    std::vector<GpuId> gpus;
    for (const api::GpuHold& held : job.info.gpus) gpus.emplace_back(held.uuid);
    jobs.push_back({holder_of(id), Uid(job.info.uid), job.mark, job.info.restarts, std::move(gpus),
                    Gid(job.info.gid)});
  }
  return jobs;
}

std::vector<api::JobInfo> Engine::active() const {
  std::vector<api::JobInfo> jobs;
  for (const auto& [id, job] : jobs_) {
    if (core::is_active(job.state)) jobs.push_back(job.info);
  }
  return jobs;
}

void Engine::report(const std::vector<node::Escape>& escapes) {
  for (const node::Escape& escape : escapes) {
    const auto id = node::job_of(escape.job);
    Job* job = id ? find(*id) : nullptr;
    if (job == nullptr || !core::is_active(job->state)) continue;
    job->info.reason_detail = make_plain(escape.what);
    save(*job);
  }
}

void Engine::observe(std::vector<node::GpuView> views) {
  views_stale_ = false;
  core::Cluster& cluster = ledger_.cluster();
  const std::uint64_t version = cluster.version();
  std::unordered_map<JobId, std::int64_t> memory;
  for (std::size_t gpu = 0; gpu < views.size() && gpu < machine_.gpus.size(); ++gpu) {
    const node::GpuView& view = views[gpu];
    Bytes foreign(0);
    for (const node::GpuProcess& process : view.processes) {
      const auto job = process.holder ? node::job_of(*process.holder) : std::nullopt;
      if (!process.holder) foreign += process.memory;
      if (job) memory[*job] += process.memory.value();
    }
    const auto index = static_cast<core::GpuIndex>(gpu);
    must(cluster.set_health(0, index, view.sample.health));
    must(cluster.observe(0, index, {view.sample.utilisation, foreign, clock_.mono()}));
  }
  for (auto& [id, job] : jobs_) {
    if (job.state != core::JobState::running || job.info.gpus.empty()) continue;
    GpuUse& use = gpu_use_[id];
    std::int64_t utilisation = 0;
    for (const api::GpuHold& held : job.info.gpus) {
      for (const node::GpuView& view : views) {
        if (view.sample.id.value() == held.uuid) utilisation += view.sample.utilisation.value();
      }
    }
    use.samples += 1;
    use.utilisation += utilisation / std::ssize(job.info.gpus);
    use.memory_peak = std::max(use.memory_peak, memory[id]);
  }
  // Whoever runs a process names it.
  for (node::GpuView& view : views) {
    for (node::GpuProcess& process : view.processes) process.command = make_plain(process.command);
  }
  views_ = std::move(views);
  if (cluster.version() != version) schedule_needed_ = true;
  tidy_record();
}

// Once in a minute, and not while the record cannot be written.
void Engine::tidy_record() {
  const WallTime now = clock_.wall();
  const auto lately = [&](WallTime then) { return now - then <= minutes(1) && now >= then; };
  if (trouble_ || lately(payloads_dropped_)) return;
  payloads_dropped_ = now;
  facts_.clear();  // of what nobody waits for any more, above all
  // The script and environment of what left squeue's sight are not needed any more.
  const WallTime out_of_sight = now - settings_.min_job_age;
  bool more = require_value(store_.drop_payloads(out_of_sight, kDroppedAtOnce)) == kDroppedAtOnce;
  const std::int64_t most = settings_.limits.records_per_user;
  // All records are counted for it: not each time while there is more to purge.
  if (!lately(crowded_counted_)) {
    crowded_counted_ = now;
    crowded_ = require_value(store_.crowded(most));
  }
  if (settings_.purge_after || !crowded_.empty()) {
    std::set<JobId> needed;
    for (const auto& [id, job] : jobs_) {
      for (const core::Dependency& one : job.dependencies.all) needed.insert(one.job);
    }
    const auto purge = [&](WallTime before, std::int64_t at_once, std::optional<Uid> uid) {
      const auto purged = require_value(store_.purge(
          before, at_once, [&](JobId id) { return needed.contains(id) || find(id) != nullptr; },
          uid));
      more = more || purged >= kPurgedAtOnce;
      return purged;
    };
    if (settings_.purge_after) {
      purge(now - std::max(*settings_.purge_after, settings_.min_job_age), kPurgedAtOnce, {});
    }
    for (auto& [uid, count] : crowded_) {
      if (count > most) count -= purge(out_of_sight, std::min(count - most, kPurgedAtOnce), uid);
    }
  }
  // The rest follows soon.
  if (more) payloads_dropped_ = WallTime();
}

void Engine::observe_failure() {
  views_stale_ = true;
  ledger_.cluster().expire_samples(clock_.mono(), settings_.stale_after);
}

}  // namespace aliquot::engine
