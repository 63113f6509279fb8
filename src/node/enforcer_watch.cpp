// The Enforcer's eye: compares what the driver counts with what jobs were granted, and ends what is
// over. Who that is, core/watchdog decides.
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <unordered_map>

#include "base/text.hpp"
#include "enforce/abi.h"
#include "node/enforcer.hpp"
#include "node/last_words.hpp"
#include "node/parting.hpp"
#include "sys/clock.hpp"
#include "sys/system_clock.hpp"

namespace aliquot::node {
namespace {

std::string gib_text(Bytes bytes) {
  return fmt::format("{:.1f} GiB",
                     static_cast<double>(bytes.value()) / static_cast<double>(gib(1).value()));
}

// One that is on its way out has left the library before the driver: its memory is gone already.
bool is_leaving(Pid pid) {
  const auto now = sys::read_process(pid);
  if (!now || now->state == 'Z' || now->state == 'X') return true;
  if (now->headless) return false;  // its memory is not shown there
  const auto pages = sys::read_proc(pid, "statm");
  return !pages || pages->empty() || pages->starts_with("0 ");
}

// So many of a process's threads are looked at: all would take as long as its user likes.
constexpr int kMostThreads = 256;

// As Slurm suspends a job: all of its threads. One that is traced stands still for its tracer
// alone.
bool is_stopped(std::int64_t pid) {
  std::error_code gone;
  int looked = 0;
  for (const auto& thread :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), gone)) {
    std::ifstream file(thread.path() / "stat");
    std::string line;
    if (!std::getline(file, line)) continue;
    const auto behind = line.rfind(')');
    if (behind == line.npos || line.compare(behind, 4, ") T ") != 0) return false;
    if (++looked == kMostThreads) break;
  }
  return looked > 0;
}

// What was killed is gone by then, or sleeps in the kernel.
constexpr Millis kDying(200);

// Said the first time, the second, the fourth, …: who starts again and again fills no log.
bool worth_saying(std::int64_t times) { return (times & (times - 1)) == 0; }

std::string how_often(std::int64_t times) {
  return times == 1 ? "" : fmt::format(" ({} times now)", times);
}

}  // namespace

bool Enforcer::watching() {
  const std::lock_guard lock(mutex_);
  return !held_.empty() || !trespasses_.empty();
}

struct Enforcer::Condemned {
  HolderId job;
  Uid uid;
  Gid gid;
  bool any_user = false;
  std::optional<gpu::MpsPipe> mps = {};
  std::vector<sys::ProcessRef> processes = {};
  std::vector<std::pair<sys::ProcessRef, std::string>> words = {};
  std::string what = {};  // for the oldest of them
};

std::vector<Escape> Enforcer::inspect(const std::vector<GpuView>& views,
                                      const JobMembers& members_of) {
  std::vector<Escape> escapes;
  std::vector<Condemned> condemned;
  std::unique_lock lock(mutex_);
  const MonoTime now = this->now();
  const Millis elapsed = now - std::exchange(inspected_, now);
  watchdog_.pass(elapsed);
  auto whole = find_ending(escapes);
  const auto before = std::exchange(trespasses_, {});
  std::map<HolderId, std::unordered_map<std::int64_t, std::vector<Bytes>>> members;
  const auto charged_by = [&](const HolderId& job, Held& held, std::int64_t pid,
                              const std::string& gpu) {
    auto [known, fresh] = members.try_emplace(job);
    if (fresh && held.folder) {
      for (auto& member : held.folder->members()) {
        known->second.emplace(member.pid.value(), std::move(member.charged));
      }
    }
    const auto found = known->second.find(pid);
    if (found == known->second.end()) return std::optional<Bytes>();
    const auto& gpus = held.folder->gpus();
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      if (gpus[i].gpu.value() == gpu) return std::optional(found->second[i]);
    }
    return std::optional(Bytes(0));
  };
  for (const GpuView& view : views) {
    const std::string& gpu = view.sample.id.value();
    for (const Trespasser& one : view.trespassers) turn_out(one, view, before, escapes, condemned);
    std::map<HolderId, std::vector<core::WatchedProcess>> processes;
    for (const GpuProcess& process : view.processes) {
      if (!process.holder) continue;
      const auto found = held_.find(*process.holder);
      if (found == held_.end() || !found->second.limit(view.sample.id)) continue;
      const Pid pid(static_cast<pid_t>(process.pid));
      if (is_leaving(pid) || is_ending(pid)) continue;
      const auto charged = charged_by(found->first, found->second, process.pid, gpu);
      processes[found->first].push_back({.pid = process.pid,
                                         .memory = process.memory,
                                         .registered = charged.has_value(),
                                         .charged = charged.value_or(Bytes(0)),
                                         .stopped = !charged && is_stopped(process.pid)});
    }
    look_for_residue(view, elapsed, processes);
    for (auto& [job, held] : held_) {
      const auto limit = held.limit(view.sample.id);
      if (!limit) continue;
      const bool judged = held.plan.library && !held.late && held.folder && held.folder->heard() &&
                          !suspended_.contains(job);
      const auto verdict = watchdog_.look(job, held.grant.owner, gpu, *limit, processes[job],
                                          judged && others_compute(job, gpu, processes));
      if (!verdict.condemned.empty()) {
        condemned.push_back(condemn(job, held, view, verdict, escapes));
      }
      hold_up(job, held, view, verdict, escapes, condemned);
      held.hopeless |= verdict.hopeless;
      if (!held.plan.library) continue;
      for (const std::int64_t pid : verdict.strangers) {
        const auto* const process = &*std::ranges::find(view.processes, pid, &GpuProcess::pid);
        escapes.push_back({job, fmt::format("process {} ({}) uses GPU {} without the library: only "
                                            "the watchdog holds it to the job's limits",
                                            pid, quote(process->command), gpu)});
      }
    }
  }
  lock.unlock();
  if (!options_.facts.kill_escapes) return escapes;
  for (Condemned& one : whole) {
    if (!members_of) break;
    // Ours and the engine's are among them that look after it.
    for (const sys::ProcessRef& member : members_of(one.job)) {
      if (one.any_user || sys::runs_as(member.pid, one.uid)) one.processes.push_back(member);
    }
    if (!one.what.empty() && !one.processes.empty()) {
      one.words.emplace_back(std::ranges::min(one.processes, {}, &sys::ProcessRef::start_time),
                             one.what);
    }
    condemned.push_back(std::move(one));
  }
  end(std::move(condemned));
  return escapes;
}

// What jobs say that they hold beyond what the driver attributes to their processes (managed
// memory, memory of which only a descriptor is left) is theirs; more than its limit no job accounts
// for.
void Enforcer::look_for_residue(
    const GpuView& view, Millis elapsed,
    const std::map<HolderId, std::vector<core::WatchedProcess>>& processes) {
  const std::string& gpu = view.sample.id.value();
  Bytes explained(0);
  for (const gpu::Process& process : view.sample.processes) explained += process.memory;
  bool shared = false;
  for (auto& [job, held] : held_) {
    const auto limit = held.limit(view.sample.id);
    if (!limit) continue;
    shared = true;
    Bytes shown(0);
    if (const auto its = processes.find(job); its != processes.end()) {
      for (const core::WatchedProcess& process : its->second) shown += process.memory;
    }
    if (!held.folder) continue;
    held.folder->find_dead();
    const auto usage = held.folder->usage();
    for (std::size_t i = 0; i < usage.size(); ++i) {
      if (held.folder->gpus()[i].gpu.value() != gpu) continue;
      const Bytes said = std::min(usage[i].memory + usage[i].orphaned, *limit);
      explained += std::max(said - shown, Bytes(0));
    }
  }
  const Bytes rest = std::max(view.sample.memory_used - explained, Bytes(0));
  if (!residue_.look(gpu, rest, elapsed, shared)) return;
  spdlog::warn(
      "GPU {}: {} of its memory is in use and held by no process and no job that says so: somebody "
      "may keep a descriptor of exported memory; see docs/enforcement.md, 'The watchdog'",
      gpu, gib_text(rest));
}

// Whether a job other than this one is on the GPU and has launched something just now, or may have:
// who has the library says so itself.
bool Enforcer::others_compute(
    const HolderId& job, const std::string& gpu,
    const std::map<HolderId, std::vector<core::WatchedProcess>>& processes) {
  constexpr std::int64_t kJustNowMs = 2'000;
  const auto own = processes.find(job);
  if (own == processes.end() ||
      std::ranges::all_of(own->second, &core::WatchedProcess::registered)) {
    return false;  // nobody needs to know
  }
  for (const auto& [other, theirs] : processes) {
    if (other == job || theirs.empty() || suspended_.contains(other)) continue;
    if (std::ranges::any_of(theirs, [](const core::WatchedProcess& process) {
          return !process.registered && !process.stopped;
        })) {
      return true;
    }
    if (std::ranges::none_of(theirs, &core::WatchedProcess::registered)) continue;
    auto& folder = held_.at(other).folder;  // registered: it has one
    const auto usage = folder->usage();
    for (std::size_t i = 0; i < usage.size(); ++i) {
      if (folder->gpus()[i].gpu.value() != gpu) continue;
      // What lies ahead is nobody's launch.
      const std::int64_t ago = sys::mono_ms() - usage[i].last_launch_ns / 1'000'000;
      if (ago >= 0 && ago < kJustNowMs) return true;
    }
  }
  return false;
}

// Jobs that end as a whole. Once is enough: they are ended in every look until they are gone,
// whoever forks meanwhile.
std::vector<Enforcer::Condemned> Enforcer::find_ending(std::vector<Escape>& escapes) {
  std::vector<Condemned> all;
  const bool kills = options_.facts.kill_escapes;
  for (auto& [job, held] : held_) {
    std::string what;
    if (held.folder && held.folder->cut_back()) {
      ++held.grown;
      what = fmt::format(
          "the job has made its {} larger than it is to be, which is the daemon's disk; {}",
          (held.folder->path() / ALIQUOT_USAGE_FILE).string(),
          kills ? "cut back, and the job is ended" : "cut back");
    } else if (held.hopeless && kills && !std::exchange(held.given_up, true)) {
      what =
          fmt::format("{} of its processes had to be ended, and it starts more: the job is ended",
                      core::kMostCondemned);
    }
    if (what.empty() && !(kills && (held.grown > 0 || held.given_up))) continue;
    Condemned condemned{.job = job,
                        .uid = held.grant.owner,
                        .gid = held.grant.group,
                        .any_user = held.grant.any_user,
                        .mps = held.mps};
    if (!what.empty() && (held.grown == 0 || worth_saying(held.grown))) {
      condemned.what = what;
      escapes.push_back({job, std::move(what)});
    }
    all.push_back(std::move(condemned));
  }
  return all;
}

// All that it holds is over. Once seen may be a process that ends with the job it was of.
void Enforcer::turn_out(const Trespasser& one, const GpuView& view, const Trespasses& before,
                        std::vector<Escape>& escapes, std::vector<Condemned>& condemned) {
  const std::string& gpu = view.sample.id.value();
  const auto process = sys::read_process(Pid(static_cast<pid_t>(one.pid)));
  const auto seen = std::ranges::find(view.processes, one.pid, &GpuProcess::pid);
  if (!process || is_leaving(process->ref.pid) || is_ending(process->ref.pid) ||
      seen == view.processes.end()) {
    return;
  }
  const auto known = before.find({gpu, process->ref});
  const int looks = known == before.end() ? 1 : known->second + 1;
  trespasses_[{gpu, process->ref}] = looks;
  if (looks < 2) return;
  Condemned out{.job = one.job, .uid = one.uid, .gid = one.gid, .processes = {process->ref}};
  // It may be a client of a server that has others.
  for (const auto& [job, held] : held_) {
    if (!held.mps || !held.limit(view.sample.id)) continue;
    if (!out.mps || held.grant.owner == one.uid) out.mps = held.mps;
  }
  const bool kills = options_.facts.kill_escapes;
  const std::int64_t times = looks == 2 ? ++turned_out_[one.job] : 0;
  if (times > 0 && worth_saying(times)) {
    const std::string what =
        fmt::format("process {} ({}) held {} of GPU {}: the job was granted nothing of it; {}{}",
                    one.pid, quote(seen->command), gib_text(seen->memory), gpu,
                    kills ? "killed" : "left alone", how_often(times));
    escapes.push_back({one.job, what});
    if (kills) out.words.emplace_back(process->ref, what);
  }
  condemned.push_back(std::move(out));
}

void Enforcer::hold_up(const HolderId& job, const Held& held, const GpuView& view,
                       const core::Watchdog::Verdict& verdict, std::vector<Escape>& escapes,
                       std::vector<Condemned>& condemned) const {
  const bool kills = options_.facts.kill_escapes;
  Condemned out{.job = job,
                .uid = held.grant.owner,
                .gid = held.grant.group,
                .any_user = held.grant.any_user,
                .mps = held.mps};
  for (const auto& [pid, times] : verdict.unheld) {
    const auto process = sys::read_process(Pid(static_cast<pid_t>(pid)));
    const auto seen = std::ranges::find(view.processes, pid, &GpuProcess::pid);
    if (!process || seen == view.processes.end()) continue;
    out.processes.push_back(process->ref);
    if (times == 0 || !worth_saying(times)) continue;
    const std::string what = fmt::format(
        "process {} ({}) used GPU {} beside another job without the library, which holds a job to "
        "its share of the time; {}{}",
        pid, quote(seen->command), view.sample.id, kills ? "killed" : "left alone",
        how_often(times));
    escapes.push_back({job, what});
    if (kills) out.words.emplace_back(process->ref, what);
  }
  if (!out.processes.empty()) condemned.push_back(std::move(out));
}

Enforcer::Condemned Enforcer::condemn(const HolderId& job, const Held& held, const GpuView& view,
                                      const core::Watchdog::Verdict& verdict,
                                      std::vector<Escape>& escapes) const {
  const bool kills = options_.facts.kill_escapes;
  const bool says = worth_saying(verdict.times);
  const std::string& gpu = view.sample.id.value();
  Condemned condemned{.job = job,
                      .uid = held.grant.owner,
                      .gid = held.grant.group,
                      .any_user = held.grant.any_user,
                      .mps = held.mps};
  for (const std::int64_t pid : verdict.condemned) {
    const auto process = sys::read_process(Pid(static_cast<pid_t>(pid)));
    const auto seen = std::ranges::find(view.processes, pid, &GpuProcess::pid);
    if (!process || seen == view.processes.end()) continue;
    condemned.processes.push_back(process->ref);
    if (!says) continue;
    const std::string what = fmt::format(
        "process {} ({}) held {} of GPU {}: the job held {} there and was granted {}; {}{}", pid,
        quote(seen->command), gib_text(seen->memory), gpu, gib_text(verdict.held),
        gib_text(held.limit(view.sample.id).value_or(Bytes(0))), kills ? "killed" : "left alone",
        how_often(verdict.times));
    escapes.push_back({job, what});
    if (kills) condemned.words.emplace_back(process->ref, what);
  }
  return condemned;
}

// Each server in its own lane: its user can see to it that it does not answer.
void Enforcer::end(std::vector<Condemned> condemned) {
  std::map<std::string, std::vector<Condemned>> by_server;
  for (Condemned& one : condemned) {
    by_server[one.mps ? one.mps->folder : ""].push_back(std::move(one));
  }
  for (auto& [folder, all] : by_server) {
    if (folder.empty()) {
      kill(all);
      continue;
    }
    std::set<Pid> fresh;
    {
      const std::lock_guard lock(mutex_);
      for (Condemned& one : all) {
        // Those of a job that ends as a whole come again.
        std::erase_if(one.processes,
                      [&](const sys::ProcessRef& process) { return is_ending(process.pid); });
        for (const sys::ProcessRef& process : one.processes) fresh.insert(process.pid);
      }
      ending_.insert(fresh.begin(), fresh.end());
    }
    if (fresh.empty()) continue;
    const Uid user = all.front().uid;
    lanes_.post(user, lane_of(folder), [this, fresh = std::move(fresh), all = std::move(all)] {
      kill(all);
      const std::lock_guard lock(mutex_);
      for (const Pid pid : fresh) ending_.erase(pid);
    });
  }
}

// The words are somebody else's who may hang; it has to be there before the process is gone.
void Enforcer::kill(const std::vector<Condemned>& condemned) {
  std::vector<sys::ProcessRef> processes;
  for (const Condemned& one : condemned) {
    for (const auto& [process, what] : one.words) {
      const auto user = one.any_user ? sys::owner_of(process.pid) : std::optional(one.uid);
      if (!user) continue;
      tell_process(process, *user, one.gid, fmt::format("aliquot: job {}: {}\n", one.job, what));
    }
    processes.insert(processes.end(), one.processes.begin(), one.processes.end());
  }
  auto mps = condemned.front().mps;
  const MonoTime begin = sys::SystemClock().mono();
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(silent_, [&](const auto& one) { return one.second <= begin; });
    if (mps && silent_.contains(mps->folder)) mps.reset();
  }
  const std::string complaint = signal_parted(mps, processes, SIGKILL, options_.ending);
  if (!complaint.empty()) spdlog::warn("job {}: {}", condemned.front().job, complaint);
  for (const Condemned& one : condemned) let_die(one);
  const MonoTime done = sys::SystemClock().mono();
  if (!mps || done - begin < options_.ending.answer) return;
  const std::lock_guard lock(mutex_);
  silent_[mps->folder] = done + options_.silence;
}

// Under the first version of control groups what is frozen does not die: a suspended job goes on
// for the moment that it takes.
void Enforcer::let_die(const Condemned& condemned) {
  if (options_.cgroups == nullptr) return;
  const auto left = [&] {
    return std::ranges::find_if(
        condemned.processes, [](const sys::ProcessRef& process) { return sys::is_alive(process); });
  };
  std::optional<Run> run;
  {
    const std::lock_guard lock(mutex_);
    if (!suspended_.contains(condemned.job) || left() == condemned.processes.end()) return;
    run = options_.cgroups->run_of(left()->pid);
    if (!run || !options_.cgroups->freeze({*run}, false)) return;
  }
  const std::int64_t until = sys::mono_ms() + kDying.value();
  while (left() != condemned.processes.end() && sys::mono_ms() < until) ::usleep(1'000);
  const std::lock_guard lock(mutex_);
  // Who resumes it says so here before he does it.
  if (suspended_.contains(condemned.job)) static_cast<void>(options_.cgroups->freeze({*run}, true));
}

}  // namespace aliquot::node
