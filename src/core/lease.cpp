#include "core/lease.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace aliquot::core {
namespace {

constexpr double kTurnNs = 10e6;  // of GPU time
// What a job that was away is owed at the most, in time; its share of that is GPU time. Before
// there are turns it is less: enough for a burst among a few jobs to begin turns, not among many.
constexpr double kCreditNs = 400e6;
constexpr double kFirstCreditNs = 150e6;
// Turns begin when a job has got so much less GPU time than another, and end when they have made
// nobody wait for so long.
constexpr double kUnevenNs = 20e6;
constexpr std::int64_t kUselessNs = 2'000'000'000;

// Time in which a job was active counts up to kRecentNs, and time in which it was idle counts down.
// A job becomes a contender at kContendsNs, and stops being one below kIdlesNs.
constexpr double kRecentNs = 8e6;
constexpr double kContendsNs = 6e6;
constexpr double kReturnsNs = 2e6;  // for a job with credit: a burst is short
constexpr double kIdlesNs = 3e6;
// A job that leaves the GPU idle for more than half of the time lacks something else than the GPU.
// That is remembered for a while.
constexpr double kBusy = 0.5;
constexpr double kRememberNs = 10e9;
// More contenders than this are many: they are not made to take turns only to find out how long
// their launches are.
constexpr int kFewContenders = 4;
// A job whose gate was just opened needs a moment to wake up.
constexpr int kGrace = 3;
// While no turns are taken, a lead is forgotten within about a second.
constexpr double kForgetNs = 1e9;
// The part of the time for which the GPU may be idle for the job that has the turn, and how much of
// it can be saved up.
constexpr double kRest = 0.03;
constexpr double kMostRestNs = 3e6;

constexpr double kLongestTurnLaunch = 1e9;
constexpr double kUnlike = 4;
constexpr double kShortLaunch = 20e3;
// Among many jobs, launches seem longer or shorter by chance. There a job is short only when it has
// fallen behind another by this part of what each should have.
constexpr double kCrowdTolerance = 0.7;

// A launch of another job that takes so long is worth waiting for: it takes us a millisecond to see
// its end. But there is a limit to the wait.
constexpr double kWorthWaitingNs = 25e6;
constexpr double kLongestWaitNs = 250e6;

// The largest lead, in virtual time: a job waits no longer than that because of what it had in
// flight before another came.
constexpr double kMostAheadNs = 10e9;

}  // namespace

void LeaseArbiter::set(const HolderId& id, std::size_t gpu, Compute share, std::uint64_t server) {
  Member& member = gpus_[gpu].members[id];
  // Its lead or lag stays the same amount of virtual time: a new share counts from now on.
  member.share = static_cast<double>(std::max<std::int64_t>(share.value(), 1)) /
                 static_cast<double>(kWholeGpu.value());
  member.server = server;
}

void LeaseArbiter::remove(const HolderId& id) {
  for (auto& [index, gpu] : gpus_) gpu.members.erase(id);
  std::erase_if(gpus_, [](const auto& gpu) { return gpu.second.members.empty(); });
}

bool LeaseArbiter::paused(const HolderId& id) const {
  return std::ranges::any_of(gpus_, [&](const auto& gpu) {
    const auto found = gpu.second.members.find(id);
    return found != gpu.second.members.end() && found->second.paused;
  });
}

bool LeaseArbiter::turns(std::size_t gpu) const {
  const auto found = gpus_.find(gpu);
  return found != gpus_.end() && found->second.turns;
}

bool LeaseArbiter::held_elsewhere(const HolderId& id, const Gpu& here) const {
  return std::ranges::any_of(gpus_, [&](const auto& gpu) {
    if (&gpu.second == &here) return false;
    const auto found = gpu.second.members.find(id);
    return found != gpu.second.members.end() && found->second.passed_over;
  });
}

std::map<HolderId, LeaseArbiter::Member>::iterator LeaseArbiter::slowest_contender(
    Gpu& gpu, const std::function<bool(const HolderId&)>& may_run) {
  auto slowest = gpu.members.end();
  for (auto one = gpu.members.begin(); one != gpu.members.end(); ++one) {
    if (!one->second.contender || !may_run(one->first)) continue;
    if (slowest == gpu.members.end() || one->second.virtual_ns < slowest->second.virtual_ns)
      slowest = one;
  }
  return slowest;
}

void LeaseArbiter::look(double elapsed_ns, const std::vector<Seen>& seen) {
  for (auto& [index, gpu] : gpus_) {
    for (auto& [id, member] : gpu.members) {
      member.active_ns = std::max(member.active_ns - elapsed_ns, 0.0);
      member.flying = 0;
      member.waiting = false;
    }
  }
  for (const Seen& one : seen) {
    const auto gpu = gpus_.find(one.gpu);
    if (gpu == gpus_.end()) continue;
    const auto found = gpu->second.members.find(one.job);
    if (found == gpu->second.members.end()) continue;
    Member& member = found->second;
    member.flying = std::max(one.flying, 0);
    member.busy = std::clamp(one.busy, 0.01, 1.0);
    member.launch_ns = std::clamp(one.launch_ns, 0.0, kLongestTurnLaunch);
    // At an open gate nobody waits for us, whatever the job says: a process that died there, or
    // lies, must not hold up the others.
    const bool closed = paused(one.job);
    if (closed) member.grace = kGrace;
    member.waiting = one.waiting && closed;
    if (member.flying > 0 || (one.waiting && (closed || member.grace > 0)))
      member.active_ns = std::min(member.active_ns + 2 * elapsed_ns, kRecentNs);
    if (!closed && member.grace > 0) --member.grace;
  }
  for (auto& [index, gpu] : gpus_) judge(gpu, elapsed_ns);
}

// Finds the contenders. Jobs that leave the GPU idle some of the time need no turns among
// themselves; beside a job that fills the GPU they do.
void LeaseArbiter::judge(Gpu& gpu, double elapsed_ns) {
  int flying = 0;
  bool filled = false;
  std::optional<double> level;
  for (const auto& [id, member] : gpu.members) {
    flying += member.flying > 0 ? 1 : 0;
    if (member.contender) level = std::min(level.value_or(member.virtual_ns), member.virtual_ns);
  }
  for (auto& [id, member] : gpu.members) {
    // `busy` says something only when the job has the GPU to itself: among many all seem busy.
    const bool alone = gpu.turns && id == gpu.holder && member.flying > 0 && flying == 1;
    member.light_ns =
        alone && member.busy < kBusy ? kRememberNs : std::max(member.light_ns - elapsed_ns, 0.0);
    const bool has_credit = gpu.turns && level && member.virtual_ns < *level;
    if (has_credit && !member.contender && member.active_ns >= kReturnsNs)
      member.active_ns = kContendsNs;
    member.contender = member.active_ns >= (member.contender ? kIdlesNs : kContendsNs);
    filled |= member.contender && !is_light(member);
  }
  for (auto& [id, member] : gpu.members) member.contender &= filled;
}

bool LeaseArbiter::is_light(const Member& member) {
  return member.light_ns > 0 || member.busy < kBusy;
}

// In slices. The job that has the turn has the GPU, whatever it does with it.
double LeaseArbiter::work_of(const Gpu& gpu, const Member& member) {
  return member.flying * (gpu.turns && member.contender ? 1 : member.busy);
}

// Servers, and processes without a server, get equal slices as far as they have work.
void LeaseArbiter::charge(Gpu& gpu, double elapsed_ns) {
  struct Server {
    double work = 0;    // in slices
    double length = 0;  // of all that runs side by side
    double shortest = kLongestTurnLaunch;
    double longest = 0;
  };
  std::map<std::uint64_t, Server> servers;
  double slices = 0;
  for (const auto& [id, member] : gpu.members) {
    const double work = work_of(gpu, member);
    if (member.server == 0) {
      slices += work;
    } else {
      Server& server = servers[member.server];
      server.work += work;
      server.length += work * member.launch_ns;
      if (work == 0) continue;
      server.shortest = std::min(server.shortest, member.launch_ns);
      server.longest = std::max(server.longest, member.launch_ns);
    }
  }
  for (const auto& [number, server] : servers) slices += std::min(server.work, 1.0);
  const double slice = elapsed_ns / std::max(slices, 1.0);
  for (auto& [id, member] : gpu.members) {
    double work = work_of(gpu, member);
    // The server has more work than it can do at once.
    const Server& server = servers[member.server];
    if (member.server != 0 && server.work > 1) {
      // Launches of unknown length count as equal, and so do many short ones that differ by chance:
      // that alone is no reason to make anybody wait.
      const bool differ = server.shortest > 0 && (gpu.turns || server.shortest > kShortLaunch ||
                                                  server.longest > kUnlike * server.shortest);
      work *= differ ? member.launch_ns / server.length : 1 / server.work;
    }
    member.charge_ns = slice * work / member.share;
  }
}

// Adds what was charged, and bounds every lead and lag.
void LeaseArbiter::settle(Gpu& gpu, double elapsed_ns) {
  std::optional<double> slowest;
  std::optional<double> fastest;
  for (auto& [id, member] : gpu.members) {
    member.virtual_ns += member.charge_ns;
    if (member.contender)
      slowest = std::min(slowest.value_or(member.virtual_ns), member.virtual_ns);
    if (member.known) fastest = std::max(fastest.value_or(member.virtual_ns), member.virtual_ns);
  }
  const double level = slowest.value_or(fastest.value_or(0));
  for (auto& [id, member] : gpu.members) {
    member.virtual_ns = std::min(member.virtual_ns, level + kMostAheadNs);
    // A new job starts level: it was not away.
    if (!member.known) member.virtual_ns = level;
    member.known |= member.active_ns > 0;
    if (!member.contender) {
      const double credit = gpu.turns ? kCreditNs : kFirstCreditNs;
      member.virtual_ns = std::max(member.virtual_ns, level - credit);
    }
    if (!gpu.turns) {
      member.virtual_ns -= (member.virtual_ns - level) * std::min(elapsed_ns / kForgetNs, 1.0);
    }
  }
}

// Begins turns when a job gets too little without them, and ends turns that have made nobody wait
// for a long time. A few contenders in one server take turns until their launches have been seen
// alone: before that it is not known who gets too little.
void LeaseArbiter::notice(Gpu& gpu, std::int64_t elapsed_ns) {
  if (gpu.turns) {
    const bool helped = std::ranges::any_of(
        gpu.members, [](const auto& one) { return one.second.paused && one.second.waiting; });
    gpu.unhelped_ns = helped ? 0 : gpu.unhelped_ns + elapsed_ns;
    gpu.turns = gpu.unhelped_ns < kUselessNs;
    return;
  }
  struct Server {
    int contenders = 0;
    bool unknown = false;
  };
  std::map<std::uint64_t, Server> servers;
  for (const auto& [id, member] : gpu.members) {
    if (!member.contender || member.server == 0) continue;
    ++servers[member.server].contenders;
    servers[member.server].unknown |= member.launch_ns == 0;
  }
  for (const auto& [number, server] : servers)
    gpu.turns |= server.unknown && server.contenders > 1 && server.contenders <= kFewContenders;
  int active = 0;
  double shares = 0;
  for (const auto& [id, member] : gpu.members) {
    if (member.active_ns <= 0) continue;
    ++active;
    shares += member.share;
  }
  const double tolerated = active > kFewContenders ? kCrowdTolerance * kForgetNs / shares : 0;
  for (const auto& [id, behind] : gpu.members) {
    if (!behind.contender) continue;
    for (const auto& [other, ahead] : gpu.members) {
      const double by = ahead.virtual_ns - behind.virtual_ns;
      gpu.turns |= by * ahead.share > kUnevenNs && by > tolerated && ahead.active_ns > 0;
    }
  }
  if (gpu.turns) gpu.unhelped_ns = 0;
}

// Whose turn it is on this GPU, whatever happens on the others.
void LeaseArbiter::choose(Gpu& gpu) {
  const auto slowest = slowest_contender(gpu, [](const HolderId&) { return true; });
  if (!gpu.turns || slowest == gpu.members.end()) {
    for (auto& [id, member] : gpu.members) member.passed_over = false;
    return;
  }
  const double level = slowest->second.virtual_ns;
  const auto holder = gpu.members.find(gpu.holder);
  const bool stays = holder != gpu.members.end() && holder->second.contender &&
                     (holder->second.virtual_ns - level) * holder->second.share <= kTurnNs;
  if (!stays) gpu.holder = slowest->first;
  // Jobs that do not fill the GPU have their turns together.
  const bool together = is_light(gpu.members[gpu.holder]);
  for (auto& [id, member] : gpu.members) {
    const double ahead = (member.virtual_ns - level) * member.share;
    const bool too_far = ahead > (member.passed_over ? 0 : kTurnNs);
    const bool free = !member.contender || (together && is_light(member));
    member.passed_over = id != gpu.holder && (!free || too_far);
  }
}

// The job that has the turn does not begin beside a long launch of another server or process. The
// turn before tells whose launches are long: after its turn a job has no more in flight than a few
// milliseconds of work, or one launch.
void LeaseArbiter::wait_for_long_ones(Gpu& gpu, double elapsed_ns) {
  for (auto& [id, late] : gpu.members) {
    if (!late.passed_over || late.flying == 0) {
      if (late.lingers_ns > 0) late.lingered_ns = std::exchange(late.lingers_ns, 0);
      continue;
    }
    late.lingers_ns += elapsed_ns;
    if (late.lingered_ns < kWorthWaitingNs || late.lingers_ns > kLongestWaitNs) continue;
    for (auto& [other, member] : gpu.members) {
      const bool beside = member.server != 0 && member.server == late.server;
      if (other != id && member.contender && member.flying == 0 && !beside) member.paused = true;
    }
  }
}

// Closes and opens gates: all gates of a job together, and none for the sake of a job that is
// passed over on another GPU.
void LeaseArbiter::decide(Gpu& gpu, double elapsed_ns) const {
  bool idle = true;
  for (auto& [id, member] : gpu.members) {
    member.paused = member.passed_over;
    idle &= member.flying == 0;
  }
  wait_for_long_ones(gpu, elapsed_ns);
  const auto free_here = [&](const HolderId& id) { return !held_elsewhere(id, gpu); };
  if (gpu.turns && held_elsewhere(gpu.holder, gpu)) {
    const auto next = slowest_contender(gpu, free_here);
    if (next != gpu.members.end()) next->second.paused = false;
  }
  // The GPU may be idle for a moment although a job waits.
  gpu.idle_budget_ns = std::min(gpu.idle_budget_ns + kRest * elapsed_ns, kMostRestNs);
  Member* waits = nullptr;
  for (auto& [id, member] : gpu.members) {
    if (!member.paused || !member.waiting || !free_here(id)) continue;
    if (waits == nullptr || member.virtual_ns < waits->virtual_ns) waits = &member;
  }
  // A single look may fall between two batches.
  const bool rests = std::exchange(gpu.was_idle, idle) && idle;
  if (!rests || waits == nullptr) return;
  gpu.idle_budget_ns -= elapsed_ns;
  if (gpu.idle_budget_ns < 0) waits->paused = false;
}

std::string LeaseArbiter::describe(std::size_t gpu) const {
  std::string all;
  const auto found = gpus_.find(gpu);
  if (found == gpus_.end()) return all;
  for (const auto& [id, member] : found->second.members) {
    if (!member.known) continue;
    all += fmt::format("{}{}{}: {:+.0f} ms, {:.0f} us a launch, {:.0f} % busy",
                       all.empty() ? "" : "; ", id, member.contender ? "" : " (idles)",
                       member.virtual_ns * member.share / 1e6, member.launch_ns / 1e3,
                       100 * member.busy);
  }
  return all;
}

void LeaseArbiter::step(std::int64_t elapsed_ns, const std::vector<Seen>& seen) {
  const auto elapsed = static_cast<double>(elapsed_ns);
  look(elapsed, seen);
  for (auto& [index, gpu] : gpus_) charge(gpu, elapsed);
  // A job is charged on all its GPUs what it cost on the most expensive one.
  if (gpus_.size() > 1) {
    std::map<HolderId, double> dearest;
    for (const auto& [index, gpu] : gpus_) {
      for (const auto& [id, member] : gpu.members)
        dearest[id] = std::max(dearest[id], member.charge_ns);
    }
    for (auto& [index, gpu] : gpus_) {
      for (auto& [id, member] : gpu.members) member.charge_ns = dearest[id];
    }
  }
  for (auto& [index, gpu] : gpus_) {
    settle(gpu, elapsed);
    notice(gpu, elapsed_ns);
    choose(gpu);
  }
  for (auto& [index, gpu] : gpus_) decide(gpu, elapsed);
}

}  // namespace aliquot::core
