#include "node/monitor.hpp"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "node/process.hpp"

namespace aliquot::node {
namespace {

std::string user_of(std::int64_t pid) {
  struct stat status {};
  if (::stat(fmt::format("/proc/{}", pid).c_str(), &status) != 0) return "";
  std::array<char, 4096> buffer;
  passwd entry{};
  passwd* found = nullptr;
  ::getpwuid_r(status.st_uid, &entry, buffer.data(), buffer.size(), &found);
  return found == nullptr ? std::to_string(status.st_uid) : std::string(found->pw_name);
}

std::string command_of(std::int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::string command;
  std::getline(file, command);
  return command;
}

std::optional<uid_t> owner_of(Pid pid) {
  struct stat status {};
  if (::stat(fmt::format("/proc/{}", pid.value()).c_str(), &status) != 0) return std::nullopt;
  return status.st_uid;
}

// A server runs as the user it serves; its parent, the control daemon, as we do. That nobody can
// imitate.
bool is_our_server(const api::GpuProcess& process) {
  constexpr std::string_view kMps = "nvidia-cuda-mps";
  if (!process.command.starts_with(kMps)) return false;
  const auto server = read_process(Pid(static_cast<pid_t>(process.pid)));
  if (!server) return false;
  const auto parent = server->parent;
  return owner_of(parent) == ::geteuid() && command_of(parent.value()).starts_with(kMps);
}

class Owners {
 public:
  Owners(const std::vector<RunningJob>& running, const FencedJob& fenced) : fenced_(fenced) {
    for (const auto& job : running) by_mark_.emplace(job.mark, &job);
  }

  std::optional<JobId> job_of(Pid pid) {
    if (const auto job = fenced_(pid)) return job;
    if (const auto job = marked(pid)) return job;
    // Who has thrown its environment away still has parents.
    for (int depth = 0; depth < 64; ++depth) {
      const auto process = read_process(pid);
      if (!process || process->parent.value() <= 1) return std::nullopt;
      pid = process->parent;
      if (const auto job = marked(pid)) return job;
    }
    return std::nullopt;
  }

 private:
  // Anyone can write any mark into an environment of their own: only the job's user counts.
  std::optional<JobId> marked(Pid pid) const {
    const auto mark = environment_of(pid, kMarkVariable);
    if (!mark) return std::nullopt;
    const auto job = by_mark_.find(*mark);
    if (job == by_mark_.end() || owner_of(pid) != job->second->uid.value()) return std::nullopt;
    return job->second->id;
  }
  const FencedJob& fenced_;
  std::map<std::string, const RunningJob*> by_mark_;
};

}  // namespace

FencedJob fenced_by(Cgroups& cgroups, const std::vector<RunningJob>& running) {
  auto members = std::make_shared<std::optional<std::unordered_map<pid_t, JobId>>>();
  return [&cgroups, &running, members](Pid pid) -> std::optional<JobId> {
    if (!cgroups.available()) return std::nullopt;
    if (!*members) {
      members->emplace();
      for (const auto& job : running) {
        const auto found = cgroups.processes({{job.id, job.attempt}});
        if (!found) continue;
        for (const Pid member : *found) (*members)->emplace(member.value(), job.id);
      }
    }
    const auto found = (*members)->find(pid.value());
    if (found == (*members)->end()) return std::nullopt;
    return found->second;
  };
}

Result<std::vector<GpuView>> look_at_gpus(gpu::Devices& devices,
                                          const std::vector<RunningJob>& running,
                                          const FencedJob& fenced) {
  Owners owners(running, fenced);
  std::unordered_map<std::int64_t, api::GpuProcess> known;  // a process may sit on several GPUs
  std::vector<GpuView> views;
  for (gpu::Sample& sample : TRY(devices.sample())) {
    GpuView view;
    for (const gpu::Process& process : sample.processes) {
      auto [entry, fresh] = known.try_emplace(process.pid);
      api::GpuProcess& seen = entry->second;
      if (fresh) {
        seen.pid = process.pid;
        seen.user = user_of(process.pid);
        seen.command = command_of(process.pid);
        const auto job = owners.job_of(Pid(static_cast<pid_t>(process.pid)));
        if (job) seen.job_id = job->value();
      }
      if (!seen.job_id && is_our_server(seen)) continue;
      seen.memory = process.memory.value();
      view.processes.push_back(seen);
    }
    view.sample = std::move(sample);
    views.push_back(std::move(view));
  }
  return views;
}

}  // namespace aliquot::node
