#include "core/watchdog.hpp"

#include <algorithm>

namespace aliquot::core {
namespace {

Bytes beyond_its_word(const WatchedProcess& process) {
  return std::max(process.memory - std::min(process.charged, process.memory), Bytes(0));
}

}  // namespace

std::vector<std::int64_t> over_the_limit(Bytes limit,
                                         const std::vector<WatchedProcess>& processes) {
  Bytes held(0);
  Bytes said(0);
  std::int64_t registered = 0;
  for (const WatchedProcess& process : processes) {
    held += process.memory;
    if (!process.registered) continue;
    said += process.charged;
    ++registered;
  }
  const Bytes most = limit + kDriverSlack * std::max<std::int64_t>(registered, 1);
  std::vector<std::int64_t> over;
  const auto take = [&](bool of_registered, auto&& excess, Bytes least) {
    std::vector<const WatchedProcess*> order;
    for (const WatchedProcess& process : processes) {
      if (process.registered == of_registered && excess(process) > least) order.push_back(&process);
    }
    std::ranges::sort(order, [&](const WatchedProcess* a, const WatchedProcess* b) {
      return std::pair(excess(*b), a->pid) < std::pair(excess(*a), b->pid);
    });
    for (const WatchedProcess* process : order) {
      if (held <= most) return;
      if (std::ranges::find(over, process->pid) != over.end()) continue;
      over.push_back(process->pid);
      held -= process->memory;
    }
  };
  const auto all = [](const WatchedProcess& process) { return process.memory; };
  take(false, all, Bytes(0));
  take(true, beyond_its_word, kDriverSlack);
  // Their word is worth nothing when all of it together is more than there was to have.
  if (said > limit) take(true, all, Bytes(0));
  return over;
}

Watchdog::Verdict Watchdog::look(JobId job, const std::string& gpu, Bytes limit,
                                 const std::vector<WatchedProcess>& processes) {
  Verdict verdict;
  Seen& seen = seen_[{job, gpu}];
  std::set<std::int64_t> strangers;
  for (const WatchedProcess& process : processes) {
    verdict.held += process.memory;
    if (!process.registered) strangers.insert(process.pid);
  }
  auto over = over_the_limit(limit, processes);
  std::int64_t& times = times_[job];
  const bool act = !over.empty() && (seen.over || times > 0);
  seen.over = !over.empty();
  if (act) {
    verdict.condemned = std::move(over);
    verdict.times = ++times;
  }
  for (const std::int64_t pid : strangers) {
    if (!seen.strangers.contains(pid) || seen.over || !seen.told.insert(pid).second) continue;
    verdict.strangers.push_back(pid);
  }
  std::erase_if(seen.told, [&](std::int64_t pid) { return !strangers.contains(pid); });
  seen.strangers = std::move(strangers);
  return verdict;
}

void Watchdog::forget(JobId job) {
  std::erase_if(seen_, [&](const auto& one) { return one.first.first == job; });
  times_.erase(job);
}

}  // namespace aliquot::core
