#include "node/enforcer.hpp"

#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <set>
#include <utility>

#include "base/clock.hpp"
#include "base/text.hpp"
#include "enforce/abi.h"
#include "node/file.hpp"
#include "node/folder.hpp"

namespace aliquot::node {
namespace {

namespace fs = std::filesystem;

constexpr const char* kServerFile = "mps";  // in the grant folder: the pipe directory

std::uint64_t group_of(const std::optional<fs::path>& pipes) {
  return pipes ? std::hash<std::string>{}(pipes->string()) | 1U : 0;
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

Result<std::unique_ptr<Enforcer>> Enforcer::create(EnforcerOptions options) {
  const mode_t mode = ::geteuid() == 0 ? 0711 : 0700;
  TRY(make_own_folder(options.run / "grants", mode));
  TRY(make_own_folder(options.run / "boards", mode));
  auto enforcer = std::unique_ptr<Enforcer>(new Enforcer(std::move(options)));
  if (enforcer->servers_) TRY(enforcer->servers_->recover());
  if (enforcer->servers_ && enforcer->options_.devices != nullptr) {
    enforcer->exclusive_.emplace(TRY(
        ExclusiveGpus::create(*enforcer->options_.devices, enforcer->options_.run / "exclusive")));
    enforcer->restore_gpus();
  }
  return enforcer;
}

core::EnforcementPlan Enforcer::plan(const api::JobInfo& job) const {
  std::vector<core::GrantFacts> grant;
  for (const api::GpuHold& held : job.gpus) {
    core::GrantFacts facts{
        .memory = Bytes(held.memory), .compute = Compute(held.compute), .whole = held.whole};
    for (const gpu::Device& device : options_.gpus) {
      if (device.gpu.id.value() == held.uuid) facts.capability = device.capability;
    }
    grant.push_back(facts);
  }
  return core::plan_enforcement(options_.facts, grant, std::max<std::int64_t>(job.ntasks, 1));
}

std::optional<LeasePlace> Enforcer::take_lease(const std::string& gpu, JobId job) {
  auto& slots = leases_[gpu];
  for (std::uint32_t slot = 0; slot < ALIQUOT_BOARD_SLOTS; ++slot) {
    if (slots.try_emplace(slot, job).second) return node::LeasePlace{boards_ / gpu, slot};
  }
  return std::nullopt;
}

// The pipe directory, where there is to be one.
Result<std::optional<fs::path>> Enforcer::serve(const api::JobInfo& job, Held& held) {
  if (!held.plan.mps || !servers_) return std::optional<fs::path>();
  gpu::MpsKey key{GpuId(job.gpus.front().uuid), std::nullopt};
  if (options_.facts.domain == core::FaultDomain::user) key.user = Uid(job.uid);
  const std::int64_t clients = std::max<std::int64_t>(job.ntasks, 1);
  const std::lock_guard lock(mps_mutex_);
  const bool kept = keep_for_server(key, clients);
  const auto pipes =
      servers_->acquire(JobId(job.id), key, clients, held.plan.pinned_limit.value_or(Bytes(0)));
  if (pipes) {
    busy_ = true;
    // Before the job is there, or its first process could have the GPU instead of the server.
    if (kept) {
      if (const auto started = servers_->start_early(*pipes); !started) {
        spdlog::warn("GPU {}: {}", key.gpu, started.error().message);
        exclusive_->restore(key.gpu);
      }
    }
    return std::optional<fs::path>(*pipes);
  }
  if (kept) exclusive_->restore(key.gpu);
  spdlog::warn("job {} starts without MPS: {}", job.id, pipes.error().message);
  core::drop_mps(held.plan, options_.facts.domain);
  return std::optional<fs::path>();
}

bool Enforcer::keep_for_server(const gpu::MpsKey& key, std::int64_t clients) {
  if (!exclusive_ || key.user || servers_->has_room(key, clients)) return false;
  const auto on_it = [&](const gpu::MpsServers::View& server) { return server.key.gpu == key.gpu; };
  bool alone = std::ranges::none_of(servers_->view(), on_it);
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [job, held] : held_) {
      if (held.limits.contains(key.gpu.value()) && !held.plan.mps) alone = false;
    }
  }
  if (alone) return exclusive_->make(key.gpu);
  // A second server, or jobs without one, need the GPU as well.
  exclusive_->restore(key.gpu);
  return false;
}

void Enforcer::open_gpus(const api::JobInfo& job) {
  if (!exclusive_) return;
  const std::lock_guard lock(mps_mutex_);
  for (const api::GpuHold& gpu : job.gpus) exclusive_->restore(GpuId(gpu.uuid));
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

void Enforcer::keep(JobId job, Held held, const std::optional<fs::path>& pipes) {
  const bool lease = std::ranges::any_of(held.folder->gpus(),
                                         [](const GpuGrant& gpu) { return gpu.lease.has_value(); });
  {
    const std::lock_guard lock(mutex_);
    held_.insert_or_assign(job, std::move(held));
  }
  if (lease) arbiter_.add(job, group_of(pipes));
}

Result<Enforcer::Enforced> Enforcer::grant(const api::JobInfo& job) {
  const JobId id(job.id);
  drop_files(id);
  Held held;
  held.attempt = job.restarts;
  held.uid = Uid(job.uid);
  held.gid = Gid(job.gid);
  held.plan = plan(job);
  if (!held.plan.watchdog) {  // nothing to hold
    open_gpus(job);
    return Enforced{{}, "", held.plan.words};
  }
  const auto pipes = TRY(serve(job, held));
  if (!held.plan.mps) open_gpus(job);
  GrantSpec spec{
      .job = id, .attempt = job.restarts, .uid = Uid(job.uid), .gid = Gid(job.gid), .gpus = {}};
  {
    const std::lock_guard lock(mutex_);
    for (const api::GpuHold& gpu : job.gpus) {
      GpuGrant share{GpuId(gpu.uuid), Bytes(gpu.whole ? 0 : gpu.memory), Compute(gpu.compute)};
      if (held.plan.lease && !gpu.whole) share.lease = take_lease(gpu.uuid, id);
      if (!gpu.whole) held.limits[gpu.uuid] = Bytes(gpu.memory);
      spec.gpus.push_back(std::move(share));
    }
  }
  const auto failed = [&](const Error& error) {
    drop_files(id);
    return tl::make_unexpected(error);
  };
  // The board must be there before the job looks for it; the arbiter opens it again. Jobs start
  // side by side, and a board is made once: a second one would take the place of the first.
  {
    const std::lock_guard making(making_boards_);
    for (const GpuGrant& gpu : spec.gpus) {
      if (!gpu.lease || fs::exists(gpu.lease->board)) continue;
      if (const auto board = LeaseBoard::open(gpu.lease->board); !board) {
        return failed(board.error());
      }
    }
  }
  auto folder = GrantFolder::create(grants_, spec);
  if (!folder) return failed(folder.error());
  if (pipes) {
    if (const auto noted = write_whole(folder->path() / kServerFile, pipes->string(), 0600, false);
        !noted) {
      return failed(noted.error());
    }
  }
  held.folder.emplace(std::move(*folder));
  describe(held, pipes);
  Enforced enforced = held.enforced;
  keep(id, std::move(held), pipes);
  return enforced;
}

void Enforcer::adopt(const api::JobInfo& job) {
  const JobId id(job.id);
  auto folder = GrantFolder::open(grants_, id);
  if (!folder) {
    // It never had one, or the folder has gone with a reboot and the job with it.
    if (plan(job).watchdog && job.enforcement != "none" && !job.enforcement.empty()) {
      spdlog::warn("job {}: {}", id, folder.error().message);
    }
    return;
  }
  Held held;
  held.attempt = job.restarts;
  held.uid = Uid(job.uid);
  held.gid = Gid(job.gid);
  held.plan = plan(job);
  // As it was started, whatever the settings say now.
  const auto had = [&](std::string_view word) {
    return job.enforcement.find(word) != std::string::npos;
  };
  held.plan.watchdog = true;
  held.plan.library = job.enforcement.empty() ? held.plan.library : had("library");
  if (!job.enforcement.empty()) held.plan.words = job.enforcement;
  std::optional<fs::path> pipes;
  if (const auto noted = read_whole(folder->path() / kServerFile); noted && servers_) {
    gpu::MpsKey key{GpuId(job.gpus.front().uuid), std::nullopt};
    if (!had("mps(gpu)")) key.user = Uid(job.uid);
    const std::lock_guard lock(mps_mutex_);
    const auto taken = servers_->adopt(id, key, *noted, std::max<std::int64_t>(job.ntasks, 1),
                                       held.plan.pinned_limit.value_or(Bytes(0)));
    if (taken) {
      pipes = *noted;
      if (exclusive_ && exclusive_->contains(key.gpu)) (void)servers_->start_early(*pipes);
    } else {
      spdlog::warn("job {} has lost its MPS server: {}", id, taken.error().message);
    }
  }
  {
    const std::lock_guard lock(mutex_);
    for (const GpuGrant& gpu : folder->gpus()) {
      if (gpu.lease) leases_[gpu.lease->board.filename()][gpu.lease->slot] = id;
    }
  }
  for (const api::GpuHold& gpu : job.gpus) {
    if (!gpu.whole) held.limits[gpu.uuid] = Bytes(gpu.memory);
  }
  held.folder.emplace(std::move(*folder));
  describe(held, pipes);
  keep(id, std::move(held), pipes);
}

void Enforcer::recovered() {
  for (const JobId job : GrantFolder::list(grants_)) {
    const std::lock_guard lock(mutex_);
    if (!held_.contains(job)) GrantFolder::remove(grants_, job);
  }
}

Result<Enforcer::Enforced> Enforcer::of(const api::JobInfo& job) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto held = held_.find(JobId(job.id)); held != held_.end()) {
      return held->second.enforced;
    }
  }
  if (job.enforcement.empty() && plan(job).watchdog) {
    return fail(Error::Code::unavailable, "job {} is only just being started: try again", job.id);
  }
  return Enforced{};
}

void Enforcer::suspend(JobId job, bool suspended) { arbiter_.suspend(job, suspended); }

std::optional<Enforcer::Measured> Enforcer::measure(JobId job) {
  const std::lock_guard lock(mutex_);
  const auto held = held_.find(job);
  if (held == held_.end() || !held->second.plan.library) return std::nullopt;
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

void Enforcer::drop_files(JobId job) {
  arbiter_.remove(job);
  if (servers_) {
    const std::lock_guard lock(mps_mutex_);
    servers_->release(job, SystemClock().mono());
  }
  const std::lock_guard lock(mutex_);
  held_.erase(job);
  for (auto& [gpu, slots] : leases_) {
    std::erase_if(slots, [&](const auto& slot) { return slot.second == job; });
  }
  watchdog_.forget(job);
  GrantFolder::remove(grants_, job);
}

void Enforcer::release(JobId job, std::optional<std::int64_t> attempt) {
  {
    const std::lock_guard lock(mutex_);
    const auto held = held_.find(job);
    if (held == held_.end() || (attempt && held->second.attempt != *attempt)) return;
  }
  drop_files(job);
}

void Enforcer::tick() {
  if (!servers_) return;
  const std::lock_guard lock(mps_mutex_);
  for (const std::string& event : servers_->tick(SystemClock().mono())) {
    spdlog::info("{}", event);
  }
  restore_gpus();
  busy_ = !servers_->view().empty();
}

void Enforcer::stop(const std::vector<api::JobInfo>& active) {
  // The end of some may be on record and not yet have come to us.
  std::vector<JobId> over;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, held] : held_) {
      if (std::ranges::find(active, id.value(), &api::JobInfo::id) == active.end()) {
        over.push_back(id);
      }
    }
  }
  for (const JobId id : over) drop_files(id);
  if (!servers_) return;
  const std::lock_guard lock(mps_mutex_);
  servers_->stop_empty();
  restore_gpus();
}

Result<std::unique_ptr<Enforcer>> open_enforcer(const fs::path& run, const fs::path& library,
                                                core::EnforcementFacts wish, gpu::Devices& devices,
                                                const std::vector<gpu::Device>& gpus,
                                                const std::optional<gpu::StandIn>& standin) {
  EnforcerOptions options{.run = run,
                          .library = library,
                          .facts = std::move(wish),
                          .gpus = gpus,
                          .mps = nullptr,
                          .devices = &devices};
  core::EnforcementFacts& facts = options.facts;
  facts.driver_version = devices.driver_version();
  if (::access(library.c_str(), R_OK) != 0) {
    facts.no_library = fmt::format("there is no {}", library.string());
  } else if (library.string().find_first_of(" :$") != std::string::npos) {
    facts.no_library =
        fmt::format("{} has a space, a colon or a '$' in its name", library.string());
  }
  if (const auto program = gpu::find_mps_control(standin)) {
    std::vector<std::string> variables;
    if (standin) {
      variables = gpu::environment(*standin);
      variables.push_back("LD_LIBRARY_PATH=" + standin->directory.string());
    }
    options.mps = gpu::open_mps(*program, std::move(variables));
  } else {
    facts.no_mps = program.error().message;
  }
  if (gpus.empty()) facts.no_mps = "there is no GPU";
  for (const core::Backend& backend : core::list_backends(facts)) {
    spdlog::info("enforcement: {}: {}{}", backend.name,
                 backend.used ? "" : "not used: ", backend.detail);
  }
  return Enforcer::create(std::move(options));
}

}  // namespace aliquot::node
