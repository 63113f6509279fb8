#include "node/enforcer.hpp"

#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "enforce/abi.h"
#include "sys/file.hpp"
#include "sys/folder.hpp"
#include "sys/system_clock.hpp"

namespace aliquot::node {
namespace {

namespace fs = std::filesystem;

std::uint64_t group_of(const std::optional<fs::path>& pipes) {
  return pipes ? std::hash<std::string>{}(pipes->string()) | 1U : 0;
}

HeldHow how_of(const core::EnforcementPlan& plan, const fs::path& pipes, bool late) {
  return {plan.domain, plan.library, pipes, plan.thread_percentage, plan.pinned_limit, late};
}

bool has_lease(const GrantFolder& folder) {
  return std::ranges::any_of(folder.gpus(),
                             [](const LeasedGpu& gpu) { return gpu.lease.has_value(); });
}

gpu::MpsKey key_of(const core::Grant& grant, core::FaultDomain domain) {
  gpu::MpsKey key{grant.gpus.front().gpu, std::nullopt};
  if (domain == core::FaultDomain::user) key.user = grant.owner;
  return key;
}

}  // namespace

Enforcer::Enforcer(EnforcerOptions options)
    : options_(std::move(options)),
      grants_(options_.run / "grants"),
      boards_(options_.run / "boards"),
      arbiter_(grants_) {
  if (options_.mps) servers_.emplace(*options_.mps, options_.run / "mps");
}

Enforcer::~Enforcer() = default;

MonoTime Enforcer::now() const {
  return options_.clock != nullptr ? options_.clock->mono() : sys::SystemClock().mono();
}

std::int64_t Enforcer::lane_of(const fs::path& server) {
  return static_cast<std::int64_t>(std::hash<std::string>{}(server.string()));
}

Result<std::unique_ptr<Enforcer>> Enforcer::create(EnforcerOptions options) {
  const mode_t mode = ::geteuid() == 0 ? 0711 : 0700;
  TRY(sys::make_own_folder(options.run / "grants", options.walled ? 0700 : mode));
  TRY(sys::make_own_folder(options.run / "boards", mode));
  auto enforcer = std::unique_ptr<Enforcer>(new Enforcer(std::move(options)));
  if (enforcer->servers_) TRY(enforcer->servers_->recover());
  if (enforcer->servers_ && enforcer->options_.devices != nullptr) {
    enforcer->exclusive_.emplace(TRY(
        ExclusiveGpus::create(*enforcer->options_.devices, enforcer->options_.run / "exclusive")));
    enforcer->restore_gpus();
  }
  return enforcer;
}

std::optional<LeasePlace> Enforcer::take_lease(const GpuId& gpu, const HolderId& holder) {
  auto& slots = leases_[gpu];
  for (std::uint32_t slot = 0; slot < ALIQUOT_BOARD_SLOTS; ++slot) {
    if (slots.try_emplace(slot, holder).second) return LeasePlace{boards_ / gpu.value(), slot};
  }
  return std::nullopt;
}

// The pipe directory, where there is to be one.
std::optional<fs::path> Enforcer::serve(Held& held) {
  if (!held.plan.mps || !servers_) return std::nullopt;
  const core::Grant& grant = held.grant;
  const auto key = key_of(grant, held.plan.domain);
  fs::path pipes;
  bool kept = false;
  {
    const std::lock_guard lock(mps_mutex_);
    kept = keep_for_server(key, grant.processes);
    // Started early, before the job is there: its first process could have the GPU instead.
    pipes = servers_->reserve(
        {grant.holder, key, grant.processes, held.plan.pinned_limit.value_or(Bytes(0)), kept});
    busy_ = true;
  }
  const auto up = servers_->bring_up(grant.holder, pipes);
  const std::lock_guard lock(mps_mutex_);
  if (up) {
    for (const std::string& remark : up->remarks) spdlog::warn("{}", remark);
    if (kept && !up->early) exclusive_->restore(key.gpu);
    return pipes;
  }
  restore_gpus();
  spdlog::warn("job {} starts without MPS: {}", grant.holder, up.error().message);
  core::drop_mps(held.plan);
  return std::nullopt;
}

bool Enforcer::keep_for_server(const gpu::MpsKey& key, std::int64_t clients) {
  if (!exclusive_ || key.user || servers_->has_room(key, clients)) return false;
  const auto on_it = [&](const gpu::MpsServers::View& server) {
    return server.key.gpu == key.gpu && !(server.leaving && server.key == key);
  };
  bool alone = std::ranges::none_of(servers_->view(), on_it);
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [job, held] : held_) {
      if (held.limit(key.gpu) && !held.plan.mps) alone = false;
    }
  }
  if (alone) return exclusive_->make(key.gpu);
  // A second server, or jobs without one, need the GPU as well.
  exclusive_->restore(key.gpu);
  return false;
}

void Enforcer::open_gpus(const core::Grant& grant) {
  if (!exclusive_) return;
  const std::lock_guard lock(mps_mutex_);
  for (const core::GrantedGpu& held : grant.gpus) exclusive_->restore(held.gpu);
}

void Enforcer::restore_gpus() {
  if (!exclusive_) return;
  std::set<GpuId> served;
  for (const gpu::MpsServers::View& server : servers_->view()) served.insert(server.key.gpu);
  exclusive_->restore_others(served);
}

void Enforcer::describe(Held& held, const std::optional<fs::path>& pipes) const {
  Enforced& enforced = held.enforced;
  enforced.words = held.plan.words;
  if (held.plan.library && held.folder) {
    enforced.preload = options_.library;
    enforced.environment.push_back(ALIQUOT_GRANT_VARIABLE "=" + held.folder->path().string());
  }
  if (!pipes) return;
  enforced.environment.push_back("CUDA_MPS_PIPE_DIRECTORY=" + pipes->string());
  if (held.plan.thread_percentage) {
    enforced.environment.push_back(
        fmt::format("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={}", *held.plan.thread_percentage));
  }
  if (held.plan.pinned_limit) {
    // The server has one GPU, so it is number 0 whichever it is.
    const std::int64_t size =
        (held.plan.pinned_limit->value() + mib(1).value() - 1) / mib(1).value();
    enforced.environment.push_back(fmt::format("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0={}M", size));
  }
}

void Enforcer::keep(Held held, const std::optional<fs::path>& pipes) {
  const HolderId holder = held.grant.holder;
  if (pipes) held.mps = options_.mps->pipe(pipes->parent_path());
  const bool lease = held.folder && has_lease(*held.folder);
  {
    const std::lock_guard lock(mutex_);
    held_.insert_or_assign(holder, std::move(held));
  }
  if (lease) arbiter_.add(holder, group_of(pipes));
}

Result<Enforcer::Enforced> Enforcer::grant(const core::Grant& grant, Reach reach) {
  const HolderId& holder = grant.holder;
  drop_files(holder);
  Held held;
  held.grant = grant;
  held.plan = core::plan_enforcement(options_.facts, grant);
  if (!held.plan.watchdog) {  // nothing to hold
    open_gpus(grant);
    return Enforced{{}, "", held.plan.words};
  }
  held.late = reach == Reach::late;
  if (reach == Reach::none) {
    held.plan.library = false;
    core::drop_mps(held.plan);
  }
  const auto pipes = serve(held);
  if (!held.plan.mps) open_gpus(grant);
  std::vector<std::optional<LeasePlace>> leases(grant.gpus.size());
  if (held.plan.lease) {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < leases.size(); ++i) {
      if (!grant.gpus[i].whole) leases[i] = take_lease(grant.gpus[i].gpu, holder);
    }
  }
  const auto failed = [&](const Error& error) {
    drop_files(holder);
    return tl::make_unexpected(error);
  };
  // The board must be there before the job looks for it; the arbiter opens it again. Jobs start
  // side by side, and a board is made once: a second one would take the place of the first.
  {
    const std::lock_guard making(making_boards_);
    for (const auto& lease : leases) {
      if (!lease || fs::exists(lease->board)) continue;
      if (const auto board = LeaseBoard::open(lease->board); !board) return failed(board.error());
    }
  }
  auto folder = GrantFolder::create(grants_, grant, leases,
                                    how_of(held.plan, pipes.value_or(fs::path()), held.late));
  if (!folder) return failed(folder.error());
  held.folder.emplace(std::move(*folder));
  describe(held, pipes);
  Enforced enforced = held.enforced;
  keep(std::move(held), pipes);
  return enforced;
}

Result<void> Enforcer::correct(const core::Grant& grant) {
  const HolderId& holder = grant.holder;
  const fs::path pipes = GrantFolder::read_how(grants_, holder, {}).pipes;
  const auto plan = core::plan_enforcement(options_.facts, grant);
  {
    const std::lock_guard lock(mutex_);
    const auto found = held_.find(holder);
    if (found == held_.end()) {
      return fail(Error::Code::not_found, "job {} is not held: its share stays as it is", holder);
    }
    Held& held = found->second;
    core::EnforcementPlan corrected = held.plan;
    if (held.plan.mps) {
      corrected.thread_percentage = plan.thread_percentage;
      corrected.pinned_limit = plan.pinned_limit;
    }
    // The library reads the folder, and the watchdog goes by the same.
    if (held.folder) {
      TRY(held.folder->correct(grant, how_of(corrected, pipes, held.late)));
    }
    held.grant = grant;
    held.plan = corrected;
    held.enforced = {};
    describe(held, pipes.empty() ? std::nullopt : std::optional(pipes));
    if (!held.folder || !has_lease(*held.folder)) return {};
  }
  // It reads them anew.
  arbiter_.add(holder, group_of(pipes.empty() ? std::nullopt : std::optional(pipes)));
  return {};
}

Bytes Enforcer::in_use(const HolderId& job) const {
  Bytes held(0);
  auto folder = GrantFolder::open(grants_, job);
  if (!folder) return held;
  folder->find_dead();
  for (const GpuUsage& usage : folder->usage()) held += usage.memory;
  return held;
}

void Enforcer::adopt(const core::Grant& grant) {
  const HolderId& holder = grant.holder;
  Held held;
  held.grant = grant;
  held.plan = core::plan_enforcement(options_.facts, grant);
  auto folder = GrantFolder::open(grants_, holder);
  if (!folder) {
    if (!held.plan.watchdog) return;
    // What it was granted is on record, and that is what it is held to.
    spdlog::warn("job {}: {}: only the watchdog holds it to its limits", holder,
                 folder.error().message);
  }
  held.plan.watchdog = true;
  // As it was started, whatever the settings say now.
  const auto how = GrantFolder::read_how(grants_, holder, how_of(held.plan, {}, false));
  held.late = how.late;
  held.plan.domain = how.domain;
  held.plan.library = how.library;
  held.plan.thread_percentage = how.thread_percentage;
  held.plan.pinned_limit = how.pinned_limit;
  held.plan.lease = folder && has_lease(*folder);
  std::optional<fs::path> pipes;
  if (!how.pipes.empty() && servers_) {
    const auto key = key_of(grant, how.domain);
    const auto taken = [&]() -> Result<gpu::MpsServers::Up> {
      {
        const std::lock_guard lock(mps_mutex_);
        const bool kept = exclusive_ && exclusive_->contains(key.gpu);
        TRY(servers_->adopt(
            {holder, key, grant.processes, held.plan.pinned_limit.value_or(Bytes(0)), kept},
            how.pipes));
      }
      return servers_->bring_up(holder, how.pipes);
    }();
    if (taken) {
      pipes = how.pipes;
      for (const std::string& remark : taken->remarks) spdlog::warn("{}", remark);
    } else {
      spdlog::warn("job {} has lost its MPS server: {}", holder, taken.error().message);
    }
  }
  held.plan.mps = pipes.has_value();
  held.plan.words = core::words_of(held.plan);
  if (folder) {
    const std::lock_guard lock(mutex_);
    for (const LeasedGpu& gpu : folder->gpus()) {
      if (gpu.lease) leases_[gpu.gpu][gpu.lease->slot] = holder;
    }
    held.folder.emplace(std::move(*folder));
  }
  describe(held, pipes);
  keep(std::move(held), pipes);
}

void Enforcer::recovered() {
  for (const HolderId& job : GrantFolder::list(grants_)) {
    const std::lock_guard lock(mutex_);
    if (held_.contains(job)) continue;
    // It may run, and is ended then.
    const auto pipes = GrantFolder::read_how(grants_, job, {}).pipes;
    if (options_.mps && !pipes.empty()) {
      unknown_.emplace(job, options_.mps->pipe(pipes.parent_path()));
    }
    GrantFolder::remove(grants_, job);
  }
}

Result<Enforcer::Enforced> Enforcer::of(const core::Grant& grant, bool just_started) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto held = held_.find(grant.holder); held != held_.end()) {
      return held->second.enforced;
    }
  }
  if (just_started && core::plan_enforcement(options_.facts, grant).watchdog) {
    return fail(Error::Code::unavailable, "job {} is only just being started: try again",
                grant.holder);
  }
  return Enforced{};
}

std::optional<gpu::MpsPipe> Enforcer::mps_of(const HolderId& job) {
  const std::lock_guard lock(mutex_);
  if (const auto held = held_.find(job); held != held_.end()) return held->second.mps;
  const auto unknown = unknown_.find(job);
  return unknown == unknown_.end() ? std::nullopt : std::optional(unknown->second);
}

void Enforcer::suspend(const HolderId& job, bool suspended) {
  arbiter_.suspend(job, suspended);
  const std::lock_guard lock(mutex_);
  if (suspended) {
    suspended_.insert(job);
  } else {
    suspended_.erase(job);
  }
}

std::optional<Enforcer::Measured> Enforcer::measure(const HolderId& job) {
  const std::lock_guard lock(mutex_);
  const auto held = held_.find(job);
  if (held == held_.end() || !held->second.plan.library || !held->second.folder) {
    return std::nullopt;
  }
  std::int64_t ns = 0;
  std::int64_t launches = 0;
  Bytes peak(0);
  for (const GpuUsage& use : held->second.folder->usage()) {
    ns += use.gpu_ns;
    launches += use.launches;
    peak += use.memory_peak;
  }
  // Nothing was heard of it: it did not use the GPU, or got around us.
  if (launches == 0 && peak == Bytes(0)) return std::nullopt;
  return Measured{Millis(ns / 1'000'000), peak};
}

std::vector<Enforcer::Told> Enforcer::told() {
  std::vector<Told> all;
  const std::lock_guard lock(mutex_);
  for (auto& [job, held] : held_) {
    if (!held.plan.library || !held.folder) continue;
    auto usage = held.folder->usage();
    const auto& gpus = held.folder->gpus();
    for (std::size_t i = 0; i < usage.size() && i < gpus.size(); ++i) {
      if (usage[i].launches == 0 && usage[i].memory_peak == Bytes(0)) continue;
      all.push_back({job, gpus[i].gpu, std::move(usage[i])});
    }
  }
  return all;
}

void Enforcer::drop_files(const HolderId& job) {
  arbiter_.remove(job);
  if (servers_) servers_->release(job, now());
  const std::lock_guard lock(mutex_);
  held_.erase(job);
  suspended_.erase(job);
  for (auto& [gpu, slots] : leases_) {
    std::erase_if(slots, [&](const auto& slot) { return slot.second == job; });
  }
  watchdog_.forget(job);
  GrantFolder::remove(grants_, job);
}

void Enforcer::release(const HolderId& job, std::optional<std::int64_t> attempt) {
  {
    const std::lock_guard lock(mutex_);
    turned_out_.erase(job);
    suspended_.erase(job);
    unknown_.erase(job);
    const auto held = held_.find(job);
    if (held == held_.end() || (attempt && held->second.grant.attempt != *attempt)) return;
  }
  drop_files(job);
}

// Each server in a lane of its own, and slow: its user can see to it that it does not end. Not in
// the one in which its clients are killed: they do not wait for a control daemon to start again.
void Enforcer::tick() {
  if (!servers_ || ticking_.exchange(true)) return;
  lanes_.post(Uid(0), 0, [this] {
    for (gpu::MpsServers::Chore& chore : servers_->tick(now())) {
      lanes_.post(
          chore.key.user.value_or(Uid(0)), ~lane_of(chore.folder),
          [run = std::move(chore.run)] {
            for (const std::string& event : run()) spdlog::info("{}", event);
          },
          Lanes::Pace::slow);
    }
    const std::lock_guard lock(mps_mutex_);
    restore_gpus();
    busy_ = !servers_->view().empty();
    ticking_ = false;
  });
}

void Enforcer::stop(const std::set<HolderId>& active) {
  // The end of some may be on record and not yet have come to us.
  std::vector<HolderId> over;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, held] : held_) {
      if (!active.contains(id)) over.push_back(id);
    }
  }
  for (const HolderId& id : over) drop_files(id);
  if (!servers_) return;
  for (const gpu::MpsServers::Chore& chore : servers_->take_empty()) chore.run();
  const std::lock_guard lock(mps_mutex_);
  restore_gpus();
}

}  // namespace aliquot::node
