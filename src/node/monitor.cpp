#include "node/monitor.hpp"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "node/job_grant.hpp"
#include "node/process_tree.hpp"
#include "sys/ancestors.hpp"

namespace aliquot::node {

namespace {

// A server runs as the user it serves; its parent, the control daemon, as we do. That nobody can
// imitate.
bool is_our_server(const GpuProcess& process) {
  constexpr std::string_view kMps = "nvidia-cuda-mps";
  if (!process.command.starts_with(kMps)) return false;
  const auto server = sys::read_process(Pid(static_cast<pid_t>(process.pid)));
  if (!server) return false;
  const auto parent = server->parent;
  return sys::owner_of(parent) == Uid(::geteuid()) && sys::command_of(parent).starts_with(kMps);
}

class Owners {
 public:
  Owners(const std::vector<RunningJob>& running, const FencedJob& fenced, bool by_mark)
      : fenced_(fenced), marks_(by_mark) {
    for (const auto& job : running) {
      by_mark_.emplace(job.mark, &job);
      by_id_.emplace(job.id, &job);
    }
  }

  // A slice is fenced by the driver itself, and is nobody's but its job's.
  [[nodiscard]] std::optional<Trespasser> trespasser(const GpuProcess& process,
                                                     const GpuId& gpu) const {
    if (!process.holder || gpu.value().starts_with("MIG-")) return std::nullopt;
    const auto found = by_id_.find(*process.holder);
    if (found == by_id_.end()) return std::nullopt;
    const RunningJob& job = *found->second;
    // A mark may have come to it by an environment that was copied: only who is in the job's group.
    if (fenced_(Pid(static_cast<pid_t>(process.pid))) != job.id) return std::nullopt;
    if (!job.gpus || std::ranges::find(*job.gpus, gpu) != job.gpus->end()) return std::nullopt;
    return Trespasser{process.pid, job.id, job.uid, job.gid};
  }

  std::optional<HolderId> job_of(Pid pid) {
    if (const auto job = fenced_(pid)) return job;
    if (!marks_) return std::nullopt;
    if (const auto job = marked(pid)) return job;
    // A process that has thrown its environment away still has parents.
    return sys::ask_ancestors(pid, [this](Pid parent) { return marked(parent); });
  }

 private:
  // Anyone can write any mark into an environment of their own: only the job's user counts.
  std::optional<HolderId> marked(Pid pid) const {
    const auto mark = sys::environment_of(pid, kMarkVariable);
    if (!mark) return std::nullopt;
    const auto job = by_mark_.find(*mark);
    if (job == by_mark_.end() || sys::owner_of(pid) != job->second->uid) return std::nullopt;
    return job->second->id;
  }
  const FencedJob& fenced_;
  const bool marks_;
  std::map<std::string, const RunningJob*> by_mark_;
  std::map<HolderId, const RunningJob*> by_id_;
};

}  // namespace

FencedJob fenced_by(Cgroups& cgroups, const std::vector<RunningJob>& running) {
  auto members = std::make_shared<std::optional<std::unordered_map<pid_t, HolderId>>>();
  return [&cgroups, &running, members](Pid pid) -> std::optional<HolderId> {
    if (!cgroups.available()) return std::nullopt;
    if (!*members) {
      members->emplace();
      for (const auto& job : running) {
        const auto number = job_of(job.id);
        if (!number) continue;
        const auto found = cgroups.processes({{*number, job.attempt}});
        if (!found) continue;
        for (const Pid member : *found) (*members)->emplace(member.value(), job.id);
      }
    }
    const auto found = (*members)->find(pid.value());
    if (found == (*members)->end()) return std::nullopt;
    return found->second;
  };
}

JobMembers members_by(const std::vector<RunningJob>& running, const FencedJob& fenced,
                      bool by_mark) {
  return [&running, &fenced, by_mark](const HolderId& job) {
    std::vector<sys::ProcessRef> members;
    for (const Pid pid : sys::all_pids()) {
      const auto process = fenced(pid) == job ? sys::read_process(pid) : std::nullopt;
      if (process) members.push_back(process->ref);
    }
    const auto known = std::ranges::find(running, job, &RunningJob::id);
    if (!members.empty() || !by_mark || known == running.end()) return members;
    return find_processes({.mark = known->mark, .marked_uid = known->uid});
  };
}

Result<std::vector<GpuView>> look_at_gpus(gpu::Devices& devices,
                                          const std::vector<RunningJob>& running,
                                          const FencedJob& fenced, bool by_mark,
                                          const UserName& name) {
  Owners owners(running, fenced, by_mark);
  std::unordered_map<std::int64_t, GpuProcess> known;  // a process may sit on several GPUs
  std::vector<GpuView> views;
  for (gpu::Sample& sample : TRY(devices.sample())) {
    GpuView view;
    for (const gpu::Process& process : sample.processes) {
      auto [entry, fresh] = known.try_emplace(process.pid);
      GpuProcess& seen = entry->second;
      if (fresh) {
        const Pid pid(static_cast<pid_t>(process.pid));
        seen.pid = process.pid;
        seen.uid = sys::owner_of(pid);
        if (name && seen.uid) seen.user = name(*seen.uid);
        seen.command = sys::command_of(pid);
        seen.holder = owners.job_of(pid);
      }
      if (!seen.holder && is_our_server(seen)) continue;
      seen.memory = process.memory;
      view.processes.push_back(seen);
      if (const auto one = owners.trespasser(seen, sample.id)) view.trespassers.push_back(*one);
    }
    view.sample = std::move(sample);
    views.push_back(std::move(view));
  }
  return views;
}

}  // namespace aliquot::node
