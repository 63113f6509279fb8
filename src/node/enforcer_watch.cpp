// The Enforcer's eye: compares what the driver counts with what jobs were granted, and ends what is
// over. Who that is, core/watchdog decides.
#include <signal.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <fstream>
#include <unordered_map>

#include "base/text.hpp"
#include "node/enforcer.hpp"
#include "node/last_words.hpp"

namespace aliquot::node {
namespace {

std::string gib_text(Bytes bytes) {
  return fmt::format("{:.1f} GiB",
                     static_cast<double>(bytes.value()) / static_cast<double>(gib(1).value()));
}

// One that is on its way out has left the library before the driver: its memory is gone already.
bool is_leaving(Pid pid) {
  const auto now = read_process(pid);
  if (!now || now->state == 'Z' || now->state == 'X') return true;
  std::ifstream file(fmt::format("/proc/{}/statm", pid.value()));
  std::int64_t pages = 0;
  return !(file >> pages) || pages == 0;
}

// Said the first time, the second, the fourth, …: who starts again and again fills no log.
bool worth_saying(std::int64_t times) { return (times & (times - 1)) == 0; }

std::string how_often(std::int64_t times) {
  return times == 1 ? "" : fmt::format(" ({} times now)", times);
}

}  // namespace

bool Enforcer::watching() {
  const std::lock_guard lock(mutex_);
  return !held_.empty();
}

struct Enforcer::Condemned {
  JobId job;
  Uid uid;
  Gid gid;
  std::vector<ProcessRef> processes = {};
  std::vector<std::pair<std::string, Fd>> words = {};
};

std::vector<Escape> Enforcer::inspect(const std::vector<GpuView>& views) {
  std::vector<Escape> escapes;
  std::vector<Condemned> condemned;
  std::unique_lock lock(mutex_);
  std::map<JobId, std::unordered_map<std::int64_t, std::vector<Bytes>>> members;
  const auto charged_by = [&](JobId job, Held& held, std::int64_t pid, const std::string& gpu) {
    auto [known, fresh] = members.try_emplace(job);
    if (fresh) {
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
    std::map<JobId, std::vector<core::WatchedProcess>> processes;
    for (const api::GpuProcess& process : view.processes) {
      if (!process.job_id) continue;
      const auto found = held_.find(JobId(*process.job_id));
      if (found == held_.end() || !found->second.limits.contains(gpu)) continue;
      if (is_leaving(Pid(static_cast<pid_t>(process.pid)))) continue;
      const auto charged = charged_by(found->first, found->second, process.pid, gpu);
      processes[found->first].push_back({.pid = process.pid,
                                         .memory = Bytes(process.memory),
                                         .registered = charged.has_value(),
                                         .charged = charged.value_or(Bytes(0))});
    }
    for (auto& [job, held] : held_) {
      const auto limit = held.limits.find(gpu);
      if (limit == held.limits.end()) continue;
      const auto verdict = watchdog_.look(job, gpu, limit->second, processes[job]);
      if (!verdict.condemned.empty()) {
        condemned.push_back(condemn(job, held, view, verdict, escapes));
      }
      if (!held.plan.library) continue;
      for (const std::int64_t pid : verdict.strangers) {
        const auto* const process = &*std::ranges::find(view.processes, pid, &api::GpuProcess::pid);
        escapes.push_back({job, fmt::format("process {} ({}) uses GPU {} without the library: only "
                                            "the watchdog holds it to the job's limits",
                                            pid, quote(process->command), gpu)});
      }
    }
  }
  lock.unlock();
  if (options_.facts.kill_escapes) {
    for (Condemned& one : condemned) end(std::move(one));
  }
  return escapes;
}

Enforcer::Condemned Enforcer::condemn(JobId job, const Held& held, const GpuView& view,
                                      const core::Watchdog::Verdict& verdict,
                                      std::vector<Escape>& escapes) const {
  const bool kills = options_.facts.kill_escapes;
  const bool says = worth_saying(verdict.times);
  const std::string& gpu = view.sample.id.value();
  Condemned condemned{.job = job, .uid = held.uid, .gid = held.gid};
  for (const std::int64_t pid : verdict.condemned) {
    const auto process = read_process(Pid(static_cast<pid_t>(pid)));
    const auto seen = std::ranges::find(view.processes, pid, &api::GpuProcess::pid);
    if (!process || seen == view.processes.end()) continue;
    condemned.processes.push_back(process->ref);
    if (!says) continue;
    const std::string what = fmt::format(
        "process {} ({}) held {} of GPU {}: the job held {} there and was granted {}; {}{}", pid,
        quote(seen->command), gib_text(Bytes(seen->memory)), gpu, gib_text(verdict.held),
        gib_text(held.limits.at(gpu)), kills ? "killed" : "left alone", how_often(verdict.times));
    escapes.push_back({job, what});
    if (kills) condemned.words.emplace_back(what, standard_error_of(process->ref, held.uid));
  }
  return condemned;
}

// Signals first, words later. A client of MPS is parted from its server before: killed in the
// middle of its work it could take the server's other clients along.
void Enforcer::end(Condemned condemned) {
  if (servers_) {
    std::vector<pid_t> clients;
    for (const ProcessRef& process : condemned.processes) clients.push_back(process.pid.value());
    // It does not wait for a server that is being started.
    const std::unique_lock lock(mps_mutex_, std::try_to_lock);
    if (lock.owns_lock()) servers_->terminate(condemned.job, clients);
  }
  signal_processes(condemned.processes, SIGKILL);
  for (auto& [what, to] : condemned.words) {
    write_as(condemned.uid, condemned.gid, std::move(to),
             fmt::format("aliquot: job {}: {}\n", condemned.job, what));
  }
}

}  // namespace aliquot::node
