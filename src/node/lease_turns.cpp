#include "node/lease_turns.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "enforce/abi.h"

namespace aliquot::node {
namespace {

constexpr std::int64_t kMs = 1'000'000;
// Between two looks.
constexpr std::int64_t kTurns = 1 * kMs;
constexpr std::int64_t kWatched = 5 * kMs;
constexpr std::int64_t kQuiet = 100 * kMs;
constexpr std::int64_t kDead = 250 * kMs;
// A job that launched so recently may do it again. While nobody competes the library says only
// now and then that it launches.
constexpr std::int64_t kRecent = 2'000 * kMs;
// So long a kernel may run: the counters of who says nothing for longer are of the past.
constexpr std::int64_t kLongKernel = 30'000 * kMs;
// A look that comes late (a machine that sleeps, a busy one) says nothing about so long a time.
constexpr std::int64_t kLongest = 100 * kMs;

bool wants_gpu(const GpuUsage& use, std::int64_t now) {
  const std::int64_t since = use.last_launch_ns == 0 ? INT64_MAX : now - use.last_launch_ns;
  return since < kRecent || std::ranges::any_of(use.flights, [&](const FlightUsage& flight) {
           return flight.in_wait ||
                  (since < kLongKernel && (flight.launched > flight.completed || flight.waiting));
         });
}

}  // namespace

void LeaseTurns::add(const HolderId& job, std::uint64_t server) {
  const bool suspended = suspended_.contains(job);
  remove(job);
  auto folder = GrantFolder::open(grants_, job);
  if (!folder) return;                    // it has ended already
  if (suspended) suspended_.insert(job);  // before it was known here
  for (std::size_t gpu = 0; gpu < folder->gpus().size(); ++gpu) {
    const LeasedGpu& grant = folder->gpus()[gpu];
    if (!grant.lease) continue;
    auto board = boards_.find(grant.lease->board);
    if (board == boards_.end()) {
      auto opened = LeaseBoard::open(grant.lease->board);
      if (!opened) {
        spdlog::warn("job {}: {}: its share of compute is not held", job, opened.error().message);
        continue;
      }
      board = boards_
                  .try_emplace(grant.lease->board, std::move(*opened), grant.gpu.value(),
                               boards_.size())
                  .first;
    }
    board->second.members.push_back({job, gpu, grant.lease->slot});
    arbiter_.set(job, board->second.number, grant.portion.compute, server);
  }
  folders_.insert_or_assign(job, std::move(*folder));
}

void LeaseTurns::remove(const HolderId& job) {
  for (auto& [path, board] : boards_) {
    for (const Member& member : board.members) {
      if (member.job == job) board.gates.set_paused(member.slot, false);
    }
    std::erase_if(board.members, [&](const Member& member) { return member.job == job; });
  }
  arbiter_.remove(job);
  folders_.erase(job);
  suspended_.erase(job);
}

void LeaseTurns::suspend(const HolderId& job, bool suspended) {
  if (suspended) {
    suspended_.insert(job);
  } else {
    suspended_.erase(job);
  }
}

std::optional<std::int64_t> LeaseTurns::look(std::int64_t now) {
  std::optional<std::int64_t> pause;
  seen_.clear();
  const bool dead = now - dead_looked_ns_ > kDead;
  if (dead) dead_looked_ns_ = now;
  std::vector<core::LeaseArbiter::Seen> seen;
  std::map<Board*, std::size_t> wanted;
  for (auto& [path, board] : boards_) {
    // Alone on its GPU a job has nothing to wait for.
    if (board.members.size() < 2) {
      if (std::exchange(board.contended, 0) != 0) board.gates.open_all();
      continue;
    }
    for (const Member& member : board.members) {
      if (seen_.contains(member.job)) continue;
      GrantFolder& folder = folders_.at(member.job);
      if (dead) folder.find_dead();
      seen_[member.job] = folder.usage();
    }
    board.gates.beat(now);
    wanted[&board] = look_at(board, now, seen);
  }
  if (wanted.empty()) return pause;
  arbiter_.step(std::clamp<std::int64_t>(now - last_ns_, 0, kLongest), seen);
  last_ns_ = now;
  for (const auto& [board, jobs] : wanted) {
    const bool turns = arbiter_.turns(board->number);
    const std::uint32_t contended = turns       ? ALIQUOT_CONTENDED_TURNS
                                    : jobs >= 2 ? ALIQUOT_CONTENDED_WATCHED
                                                : 0;
    const std::uint32_t before = std::exchange(board->contended, contended);
    if (before != contended) board->gates.set_contended(contended);
    if ((before == ALIQUOT_CONTENDED_TURNS) != turns) {
      spdlog::debug("GPU {}: turns {}: {}", board->name, turns ? "begin" : "end",
                    arbiter_.describe(board->number));
    }
    for (const Member& member : board->members)
      board->gates.set_paused(member.slot, arbiter_.paused(member.job));
    const std::int64_t next = turns ? kTurns : jobs >= 2 ? kWatched : kQuiet;
    pause = std::min(pause.value_or(next), next);
  }
  return pause;
}

std::size_t LeaseTurns::look_at(Board& board, std::int64_t now,
                                std::vector<core::LeaseArbiter::Seen>& seen) {
  std::size_t jobs = 0;
  for (Member& member : board.members) {
    if (suspended_.contains(member.job)) continue;
    const GpuUsage& use = seen_.at(member.job).at(member.gpu);
    const bool paused = arbiter_.paused(member.job);
    core::LeaseArbiter::Seen one{member.job, board.number, 0, false, 0, 0};
    for (const FlightUsage& flight : use.flights) {
      const bool flying = member.flights[flight.process].look(
          now, {flight.launched, flight.completed, flight.in_wait, flight.looked_ns}, paused);
      one.flying += flying ? 1 : 0;
      one.waiting |= flight.waiting;
      one.busy = std::max(one.busy, flight.busy);
      one.launch_ns = std::max(one.launch_ns, flight.launch_ns);
    }
    if (member.flights.size() > use.flights.size()) {
      std::erase_if(member.flights, [&](const auto& known) {
        return std::ranges::none_of(
            use.flights, [&](const FlightUsage& flight) { return flight.process == known.first; });
      });
    }
    if (!wants_gpu(use, now)) continue;
    ++jobs;
    seen.push_back(one);
  }
  return jobs;
}

}  // namespace aliquot::node
