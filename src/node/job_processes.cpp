#include "node/job_processes.hpp"

#include <utility>

namespace aliquot::node {

JobProcesses::JobProcesses(Cgroups& cgroups, Group group, std::string mark, std::set<Pid> clients)
    : cgroups_(cgroups), group_(group), mark_(std::move(mark)), clients_(std::move(clients)) {}

Search JobProcesses::search() const {
  Search search;
  search.mark = mark_;
  search.step = group_.step;
  return search;
}

std::vector<ProcessRef> JobProcesses::find() const {
  if (!cgroups_.available()) return find_processes(search());
  std::vector<ProcessRef> found;
  for (const Pid pid : cgroups_.processes(group_).value_or(std::vector<Pid>{})) {
    if (clients_.contains(pid)) continue;
    const auto process = read_process(pid);
    if (process && process->state != 'Z') found.push_back(process->ref);
  }
  return found;
}

void JobProcesses::signal(int number) const { signal_processes(find(), number); }

bool JobProcesses::gone() const {
  if (!cgroups_.available()) return find_processes(search()).empty();
  const auto left = cgroups_.processes(group_);
  return !left || left->empty();
}

Killed JobProcesses::kill(bool clients, Millis patience) const {
  if (!cgroups_.available()) return kill_tree(search(), patience);
  return cgroups_.kill(group_, patience, clients ? std::set<Pid>{} : clients_).value_or(Killed{});
}

}  // namespace aliquot::node
