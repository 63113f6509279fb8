#include "core/lease.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace aliquot::core {
namespace {

// A contender is who was active for so long, less what it was idle, until it is less than that.
constexpr double kRecentNs = 8e6;
constexpr double kContendsNs = 6e6;
constexpr double kReturnsNs = 2e6;  // for who was away and has credit: a burst is short
constexpr double kIdlesNs = 3e6;
// Who leaves the GPU idle more than half of the time is short of something else, and is taken to be
// for a while.
constexpr double kBusy = 0.5;
constexpr double kRememberNs = 10e9;
// So many at most are made to take turns only to find out how long their launches are.
constexpr int kFewContenders = 4;
// A job whose gate was just opened needs a moment to wake up.
constexpr int kGrace = 3;
// While no turns are taken, what somebody is ahead is forgotten within about a second.
constexpr double kForgetNs = 1e9;
// The part of the time that the GPU may rest for who has the turn, and how much of it is saved up.
constexpr double kRest = 0.03;
constexpr double kMostRestNs = 3e6;

constexpr double kLongestTurnLaunch = 1e9;
constexpr double kUnlike = 4;
constexpr double kShortLaunch = 20e3;
// In a crowd (more than a few) everybody's launches seem longer or shorter by chance: there nobody
// is short who has not fallen behind another by so much of what each should have.
constexpr double kCrowdTolerance = 0.7;
// Before there are turns: enough for a burst to ask for them beside a few, not in a crowd.
constexpr double kFirstCreditNs = 150e6;

// What lasts so long is worth waiting for: to see its end takes us a millisecond. And not for ever.
constexpr double kWorthWaitingNs = 25e6;
constexpr double kLongestWaitNs = 250e6;

// Of virtual time: nobody waits longer for what was in flight before the other came.
constexpr double kMostAheadNs = 10e9;

}  // namespace

void LeaseArbiter::set(const HolderId& id, std::size_t gpu, Compute share, std::uint64_t server) {
  Member& member = gpus_[gpu].members[id];
  // What it is ahead or behind stays the same amount of virtual time: a new share is for what
  // comes.
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
    // Who stands at an open gate is not waiting for us, whatever the job says of itself: a process
    // that died there, or lies, must not hold up the others.
    const bool closed = paused(one.job);
    if (closed) member.grace = kGrace;
    member.waiting = one.waiting && closed;
    if (member.flying > 0 || (one.waiting && (closed || member.grace > 0)))
      member.active_ns = std::min(member.active_ns + 2 * elapsed_ns, kRecentNs);
    if (!closed && member.grace > 0) --member.grace;
  }
  for (auto& [index, gpu] : gpus_) judge(gpu, elapsed_ns);
}

// Who contends. Those who leave the GPU idle by themselves get along with each other; beside one
// who fills it they need their turns as he does.
void LeaseArbiter::judge(Gpu& gpu, double elapsed_ns) {
  int flying = 0;
  bool filled = false;
  std::optional<double> level;
  for (const auto& [id, member] : gpu.members) {
    flying += member.flying > 0 ? 1 : 0;
    if (member.contender) level = std::min(level.value_or(member.virtual_ns), member.virtual_ns);
  }
  for (auto& [id, member] : gpu.members) {
    // With the GPU to itself it says what it is: in a crowd everybody seems busy.
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

// In slices. Whose turn it is has the GPU, whatever it does with it.
double LeaseArbiter::work_of(const Gpu& gpu, const Member& member) {
  return member.flying * (gpu.turns && member.contender ? 1 : member.busy);
}

// Equal slices for servers and for processes without one, as far as they have work.
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
    // Where the server has more than it can do at once.
    const Server& server = servers[member.server];
    if (member.server != 0 && server.work > 1) {
      // What is not known is taken to be alike, and so are many small ones that differ by chance:
      // nobody is made to wait for that alone.
      const bool differ = server.shortest > 0 && (gpu.turns || server.shortest > kShortLaunch ||
                                                  server.longest > kUnlike * server.shortest);
      work *= differ ? member.launch_ns / server.length : 1 / server.work;
    }
    member.charge_ns = slice * work / member.share;
  }
}

// Adds what was charged, and bounds what anybody is ahead or behind.
void LeaseArbiter::settle(Gpu& gpu, double elapsed_ns) const {
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
    // The first time it starts level: it was not away, it was not there.
    if (!member.known) member.virtual_ns = level;
    member.known |= member.active_ns > 0;
    if (!member.contender) {
      const double credit = gpu.turns ? static_cast<double>(options_.credit_ns) : kFirstCreditNs;
      member.virtual_ns = std::max(member.virtual_ns, level - credit);
    }
    if (!gpu.turns) {
      member.virtual_ns -= (member.virtual_ns - level) * std::min(elapsed_ns / kForgetNs, 1.0);
    }
  }
}

// Whether somebody gets too little without turns, or nobody had to wait for them in a long time. Of
// a few in one server it is not known before their launches have been seen alone.
void LeaseArbiter::notice(Gpu& gpu, std::int64_t elapsed_ns) const {
  if (gpu.turns) {
    const bool helped = std::ranges::any_of(
        gpu.members, [](const auto& one) { return one.second.paused && one.second.waiting; });
    gpu.unhelped_ns = helped ? 0 : gpu.unhelped_ns + elapsed_ns;
    gpu.turns = gpu.unhelped_ns < options_.useless_ns;
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
      gpu.turns |= by * ahead.share > static_cast<double>(options_.uneven_ns) && by > tolerated &&
                   ahead.active_ns > 0;
    }
  }
  if (gpu.turns) gpu.unhelped_ns = 0;
}

// Whose turn it is on this GPU, whatever goes on elsewhere.
void LeaseArbiter::choose(Gpu& gpu) const {
  const auto turn = static_cast<double>(options_.turn_ns);
  const auto slowest = slowest_contender(gpu, [](const HolderId&) { return true; });
  if (!gpu.turns || slowest == gpu.members.end()) {
    for (auto& [id, member] : gpu.members) member.passed_over = false;
    return;
  }
  const double level = slowest->second.virtual_ns;
  const auto holder = gpu.members.find(gpu.holder);
  const bool stays = holder != gpu.members.end() && holder->second.contender &&
                     (holder->second.virtual_ns - level) * holder->second.share <= turn;
  if (!stays) gpu.holder = slowest->first;
  // Those who do not fill the GPU have their turns together.
  const bool together = is_light(gpu.members[gpu.holder]);
  for (auto& [id, member] : gpu.members) {
    const double ahead = (member.virtual_ns - level) * member.share;
    const bool too_far = ahead > (member.passed_over ? 0 : turn);
    const bool free = !member.contender || (together && is_light(member));
    member.passed_over = id != gpu.holder && (!free || too_far);
  }
}

// Who has the turn does not begin beside a long launch of another server's or process's. What is
// long, the turn before told: between turns a job has a few milliseconds in flight, or one launch.
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

// Closes and opens: all gates of a job together, and nobody's for a job that is held elsewhere.
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
  // It rests although somebody waits: for a moment that is all right.
  gpu.idle_budget_ns = std::min(gpu.idle_budget_ns + kRest * elapsed_ns, kMostRestNs);
  Member* waits = nullptr;
  for (auto& [id, member] : gpu.members) {
    if (!member.paused || !member.waiting || !free_here(id)) continue;
    if (waits == nullptr || member.virtual_ns < waits->virtual_ns) waits = &member;
  }
  // One look may meet the moment between two batches.
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
  // What a job costs on the dearest of its GPUs it costs on all of them.
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
