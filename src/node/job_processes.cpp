#include "node/job_processes.hpp"

#include <signal.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "node/monitor.hpp"
#include "node/parting.hpp"

namespace aliquot::node {

JobProcesses::JobProcesses(Cgroups& cgroups, Group group, std::string mark,
                           std::optional<gpu::MpsPipe> mps, std::set<Pid> clients)
    : cgroups_(cgroups),
      group_(group),
      mark_(std::move(mark)),
      mps_(std::move(mps)),
      clients_(std::move(clients)) {}

Search JobProcesses::search() const {
  Search search;
  search.mark = mark_;
  search.step = group_.step;
  return search;
}

std::vector<sys::ProcessRef> JobProcesses::find() const { return find(clients_); }

std::vector<sys::ProcessRef> JobProcesses::find(const std::set<Pid>& spared) const {
  if (!cgroups_.available()) return find_processes(search());
  std::vector<sys::ProcessRef> found;
  for (const Pid pid : cgroups_.processes(group_).value_or(std::vector<Pid>{})) {
    if (spared.contains(pid)) continue;
    const auto process = sys::read_process(pid);
    if (process && process->state != 'Z') found.push_back(process->ref);
  }
  return found;
}

void JobProcesses::signal(int number) const { warn(signal_parted(mps_, find(), number)); }

void JobProcesses::warn(const std::string& complaint) const {
  if (!complaint.empty()) spdlog::warn("job {}: {}", group_.run.job, complaint);
}

bool JobProcesses::gone() const {
  if (!cgroups_.available()) return find_processes(search()).empty();
  const auto left = cgroups_.processes(group_);
  return left && left->empty();  // what cannot be read is not known to be gone
}

std::string JobProcesses::describe_left() const {
  constexpr std::size_t kMost = 3;
  const auto left = find({});
  std::string text;
  for (std::size_t i = 0; i < std::min(left.size(), kMost); ++i) {
    const Pid pid = left[i].pid;
    const auto now = sys::read_process(pid);
    if (!now) continue;
    const std::string state =
        now->state == 'D' ? "in uninterruptible sleep" : fmt::format("in state {}", now->state);
    text += fmt::format("{}process {} ({}, user {}, {})", text.empty() ? "" : ", ", pid,
                        quote(sys::command_of(pid)), sys::user_of(pid), state);
  }
  if (left.size() > kMost) text += fmt::format(" and {} more", left.size() - kMost);
  return text;
}

Killed JobProcesses::kill(bool clients, Millis patience) const {
  const std::set<Pid> spared = clients ? std::set<Pid>{} : clients_;
  if (mps_) warn(part(mps_, find(spared), SIGKILL));
  if (!cgroups_.available()) return kill_tree(search(), patience);
  return cgroups_.kill(group_, patience, spared).value_or(Killed{});
}

}  // namespace aliquot::node
