#include "engine/monitor.hpp"

#include <pwd.h>
#include <sys/stat.h>

#include <array>
#include <fstream>
#include <map>
#include <string>
#include <unordered_map>

#include "node/process.hpp"

namespace aliquot::engine {
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

}  // namespace

Result<std::vector<GpuView>> look_at_gpus(gpu::Devices& devices,
                                          const std::vector<Engine::RunningJob>& running) {
  std::map<std::string, JobId> jobs;
  for (const auto& job : running) jobs.emplace(job.mark, job.id);
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
        const auto mark =
            node::environment_of(node::Pid(static_cast<pid_t>(process.pid)), node::kMarkVariable);
        if (mark) {
          const auto job = jobs.find(*mark);
          if (job != jobs.end()) seen.job_id = job->second.value();
        }
      }
      seen.memory = process.memory.value();
      view.processes.push_back(seen);
    }
    view.sample = std::move(sample);
    views.push_back(std::move(view));
  }
  return views;
}

}  // namespace aliquot::engine
