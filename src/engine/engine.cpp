#include "engine/engine.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "base/text.hpp"

namespace aliquot::engine {

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

void Engine::save(const Job& job) { require(store_.save(job)); }

Job* Engine::find(JobId id) {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? nullptr : &found->second;
}

// Memory is ahead of the record now. The next start reads the record.
void Engine::require(const Result<void>& result) const {
  if (result) return;
  fmt::print(stderr, "aliquotd: cannot go on: {}\n", result.error().message);
  std::abort();
}

void Engine::settle() {
  // Actions may find new work (a start that failed), and every round is committed before it acts.
  for (int round = 0; round < 100; ++round) {
    enforce_times();
    const WallTime now = clock_.wall();
    if (const auto due = next_due(); due && *due <= now) schedule_needed_ = true;
    if (schedule_needed_) schedule();
    require(store_.commit());
    if (actions_.empty() && !schedule_needed_) return;
    for (const auto& action : std::exchange(actions_, {})) action();
  }
}

std::optional<WallTime> Engine::next_due() const {
  std::optional<WallTime> due;
  const auto at = [&](WallTime time) {
    if (!due || time < *due) due = time;
  };
  const auto in = [&](Millis left) { at(clock_.wall() + left); };
  for (const auto& [id, job] : jobs_) {
    if (job.state == core::JobState::pending) {
      if (job.info.deadline_ms) at(WallTime(*job.info.deadline_ms));
      if (const auto client = clients_.find(id); client != clients_.end()) {
        if (client->second.start_by) in(*client->second.start_by - clock_.mono());
      }
      if (job.hold != Hold::none) continue;
      if (job.info.reason == core::reason::kBeginTime) at(WallTime(job.spec.begin_ms.value_or(0)));
      if (job.dependency_state.next) at(*job.dependency_state.next);
    } else if (!job.spec.batch && job.state != core::JobState::completing) {
      const auto left = time_left(job);
      if (left && job.state == core::JobState::running) in(*left);
      const auto client = clients_.find(id);
      if (client != clients_.end() && client->second.reattach_by) {
        in(*client->second.reattach_by - clock_.mono());
      }
    }
  }
  return due;
}

std::vector<node::RunningJob> Engine::running() const {
  std::vector<node::RunningJob> jobs;
  for (const JobId id : ledger_.jobs()) {
    const Job& job = jobs_.at(id);
    jobs.push_back({id, Uid(job.info.uid), job.mark, job.info.restarts});
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
    Job* job = find(escape.job);
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
    for (const api::GpuProcess& process : view.processes) {
      if (!process.job_id) foreign += Bytes(process.memory);
      if (process.job_id) memory[JobId(*process.job_id)] += process.memory;
    }
    const auto index = static_cast<core::GpuIndex>(gpu);
    require(cluster.set_health(0, index, view.sample.health));
    require(cluster.observe(0, index, {view.sample.utilisation, foreign, clock_.mono()}));
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
    for (api::GpuProcess& process : view.processes) process.command = make_plain(process.command);
  }
  views_ = std::move(views);
  if (cluster.version() != version) schedule_needed_ = true;
  // The script and environment of what left squeue's sight are not needed any more.
  const WallTime now = clock_.wall();
  if (now - payloads_dropped_ > minutes(1)) {
    payloads_dropped_ = now;
    require(store_.drop_payloads(now - settings_.min_job_age));
  }
}

void Engine::observe_failure() {
  views_stale_ = true;
  ledger_.cluster().expire_samples(clock_.mono(), settings_.stale_after);
}

}  // namespace aliquot::engine
