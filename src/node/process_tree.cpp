#include "node/process_tree.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <unordered_set>

#include "sys/clock.hpp"
#include "sys/file.hpp"
#include "sys/random_name.hpp"

namespace aliquot::node {

std::string make_mark(JobId job) { return fmt::format("{}:{}", job, sys::random_name()); }

// Anyone can write any mark into an environment of their own: it counts for one user's processes.
static bool is_marked(const Search& search, Pid pid) {
  if (search.mark.empty()) return false;
  if (search.marked_uid && sys::owner_of(pid) != search.marked_uid) return false;
  return sys::environment_of(pid, kMarkVariable) == search.mark;
}

// The newest are the likeliest to be gone soon, with a child that is on no list: they come first,
// each is read whole before the next, and stopped at once where that is wanted.
static std::vector<sys::ProcessRef> look_for(const Search& search, bool stop) {
  std::vector<sys::ProcessInfo> all;
  std::unordered_set<pid_t> members;
  const pid_t self = getpid();
  stop = stop && !search.steps_only && !search.step;
  for (const Pid pid : sys::all_pids()) {
    const auto process = sys::read_process(pid);
    if (!process) continue;
    all.push_back(*process);
    if (process->state == 'Z' || pid.value() == self) continue;
    if ((search.ancestor && process->parent == *search.ancestor) ||
        (search.session && process->session == *search.session) || is_marked(search, pid)) {
      members.insert(pid.value());
      if (stop && pid != search.ancestor) sys::signal_processes({process->ref}, SIGSTOP);
    }
  }
  // Children of members, until there are no more. The list is in no useful order.
  for (bool grown = true; grown;) {
    grown = false;
    for (const auto& process : all) {
      if (members.contains(process.parent.value()) && process.state != 'Z' &&
          process.ref.pid.value() != self) {
        grown |= members.insert(process.ref.pid.value()).second;
      }
    }
  }
  std::vector<sys::ProcessRef> found;
  for (const auto& process : all) {
    if (!members.contains(process.ref.pid.value())) continue;
    if (search.ancestor && process.ref.pid == *search.ancestor) continue;
    if (search.steps_only || search.step) {
      const auto step = sys::environment_of(process.ref.pid, "SLURM_STEP_ID");
      if (!step || (search.step && *step != std::to_string(*search.step))) continue;
    }
    found.push_back(process.ref);
  }
  return found;
}

// Parents first: a script that sees its program die of a signal goes on, until it has its own.
std::vector<sys::ProcessRef> find_processes(const Search& search) {
  auto found = look_for(search, false);
  std::ranges::sort(found, {}, [](const sys::ProcessRef& process) {
    return std::pair(process.start_time, process.pid);
  });
  return found;
}

// The newest pid of all. As long as it stays the same, nobody has forked.
static std::string newest_pid() {
  const auto text = sys::read_whole("/proc/loadavg").value_or("");
  return text.substr(std::min(text.rfind(' '), text.size()));
}

// Whether there is really nobody. One look is not enough: it takes time, in which a process that is
// listed can fork and end before it is read, and its child is on no list; and a mark is out of
// sight while its process execs. So either nobody on the machine has forked meanwhile, or many
// looks agree.
static bool none_left(const Search& search) {
  constexpr int kLooks = 10;
  std::string before;
  for (int look = 0; look < kLooks; ++look) {
    if (!find_processes(search).empty()) return false;
    auto newest = newest_pid();
    if (newest == before && !newest.empty()) return true;
    before = std::move(newest);
    sys::sleep_ms(1 + look);
  }
  return true;
}

Killed kill_tree(const Search& search, Millis patience) {
  Killed killed;
  const std::int64_t deadline = sys::mono_ms() + patience.value();
  std::vector<sys::ProcessRef> seen;
  for (long pause = 1;; pause = std::min(pause * 2, 20L)) {
    auto left = look_for(search, true);
    if (left.empty() && none_left(search)) return killed;
    // Stopped first, until there is nobody new: what is stopped cannot fork.
    for (int round = 0; round < 10; ++round) {
      sys::signal_processes(left, SIGSTOP);
      auto again = look_for(search, true);
      const bool same = again.size() == left.size();
      left = std::move(again);
      if (same) break;
    }
    for (const auto& process : left) {
      if (std::ranges::find(seen, process) == seen.end()) seen.push_back(process);
    }
    sys::signal_processes(left, SIGKILL);
    killed.count = static_cast<int>(seen.size());
    if (sys::mono_ms() >= deadline) {
      killed.all_gone = none_left(search);
      return killed;
    }
    sys::sleep_ms(pause);
  }
}

}  // namespace aliquot::node
