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
  const Bytes most = limit + kDriverSlack * std::clamp<std::int64_t>(registered, 1, kMostSlacks);
  std::vector<std::int64_t> over;
  const auto take = [&](bool of_registered, auto&& excess) {
    std::vector<const WatchedProcess*> order;
    for (const WatchedProcess& process : processes) {
      if (process.registered == of_registered && excess(process) > Bytes(0))
        order.push_back(&process);
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
  take(false, all);
  take(true, beyond_its_word);
  // What processes say counts for nothing when it is more than the limit in sum.
  if (said > limit) take(true, all);
  return over;
}

void Watchdog::pass(Millis elapsed) {
  elapsed = std::min(elapsed, kLongestLook);
  for (auto& [user, taken] : taken_) {
    taken.time = taken.now ? std::min(taken.time + elapsed, kMostStrangerTime)
                           : taken.time - Millis(elapsed.value() / kForgottenIn);
    taken.now = false;
  }
  std::erase_if(taken_, [](const auto& one) { return one.second.time < Millis(0); });
}

Watchdog::Verdict Watchdog::look(const HolderId& job, Uid owner, const std::string& gpu,
                                 Bytes limit, const std::vector<WatchedProcess>& processes,
                                 bool beside) {
  Verdict verdict;
  Seen& seen = seen_[{job, gpu}];
  std::set<std::int64_t> strangers;
  std::set<std::int64_t> computing;  // of these
  for (const WatchedProcess& process : processes) {
    verdict.held += process.memory;
    if (process.registered) continue;
    strangers.insert(process.pid);
    if (beside && !process.stopped) computing.insert(process.pid);
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
  if (!computing.empty()) taken_[owner].now = true;
  for (const std::int64_t pid : computing) {
    // No second look is needed: a process with the library registers before the driver knows of it.
    if (taken_[owner].time < kStrangerTime) continue;
    verdict.unheld.emplace_back(pid, 0);
    if (!seen.unheld.insert(pid).second) continue;
    verdict.unheld.back().second = 1;
  }
  for (auto& [pid, which] : verdict.unheld) {
    if (which > 0) which = ++unheld_[job];
  }
  verdict.hopeless = std::max(times, unheld_[job]) >= kMostCondemned;
  std::erase_if(seen.unheld, [&](std::int64_t pid) { return !strangers.contains(pid); });
  std::erase_if(seen.told, [&](std::int64_t pid) { return !strangers.contains(pid); });
  seen.strangers = std::move(strangers);
  return verdict;
}

void Watchdog::forget(const HolderId& job) {
  std::erase_if(seen_, [&](const auto& one) { return one.first.first == job; });
  times_.erase(job);
  unheld_.erase(job);
}

bool Residue::look(const std::string& gpu, Bytes unexplained, Millis elapsed, bool shared) {
  Seen& seen = seen_.try_emplace(gpu, Seen{.least = unexplained}).first->second;
  seen.least = std::min(seen.least, unexplained);
  if (unexplained <= seen.least + gib(1)) {
    seen.time = Millis(0);
    seen.told = false;
    return false;
  }
  if (shared) seen.time += std::min(elapsed, kLongestLook);
  return shared && seen.time >= kStrangerTime && !std::exchange(seen.told, true);
}

}  // namespace aliquot::core
