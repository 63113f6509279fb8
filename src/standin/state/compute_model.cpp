#include "standin/state/compute_model.hpp"

#include <algorithm>
#include <cmath>

namespace aliquot::standin {
namespace {

constexpr double kEpsilon = 1e-3;  // ns

bool on_engine(const Lane& lane) { return lane.width == 0; }

bool busy(const Lane& lane) { return lane.open && lane.submitted - lane.done > kEpsilon; }

// The busy lanes of one client, and what it gets of its group's slice.
struct Client {
  int slot;
  int group;
  double cap;
  double width = 0;   // all of its lanes
  double length = 0;  // of its kernels
  double share = 0;
};

// Everything that runs right now. Small: only busy lanes and their clients.
struct Instant {
  Lane* lanes[kMaxLanes];
  unsigned lane_count = 0;
  Client clients[kMaxLanes];
  unsigned client_count = 0;
  unsigned groups = 0;
};

void collect(GpuCompute& gpu, Instant& instant) {
  for (unsigned i = 0; i < gpu.high_lane; ++i) {
    Lane& lane = gpu.lanes[i];
    if (!busy(lane)) continue;
    instant.lanes[instant.lane_count++] = &lane;
    if (on_engine(lane)) continue;
    Client* const end = instant.clients + instant.client_count;
    Client* client =
        std::find_if(instant.clients, end, [&](auto& c) { return c.slot == lane.client; });
    if (client == end) {
      const bool known =
          std::any_of(instant.clients, end, [&](auto& c) { return c.group == lane.group; });
      if (!known) ++instant.groups;
      *client = {lane.client, lane.group, lane.cap};
      ++instant.client_count;
    }
    client->width += lane.width;
    client->length += lane.length;
  }
}

// Shares the slice of one group among its clients: each gets what it can use; where that is too
// much, by the length of their kernels (12 ms beside 0.2 ms: 99 to 7, on an H200).
void share_slice(Instant& instant, int group) {
  Client* members[kMaxLanes];
  unsigned count = 0;
  for (unsigned i = 0; i < instant.client_count; ++i)
    if (instant.clients[i].group == group) members[count++] = &instant.clients[i];
  const auto demand = [](const Client& c) { return std::min({c.width, c.cap, 1.0}); };
  const auto eager = [&](const Client& c) { return demand(c) / c.length; };
  std::sort(members, members + count, [&](auto* a, auto* b) { return eager(*a) < eager(*b); });
  double left = 1;
  double lengths = 0;
  for (unsigned i = 0; i < count; ++i) lengths += members[i]->length;
  for (unsigned i = 0; i < count; ++i) {
    members[i]->share = std::min(demand(*members[i]), left * members[i]->length / lengths);
    left -= members[i]->share;
    lengths -= members[i]->length;
  }
}

// How fast a client's kernels run on the part of the GPU they have: a capped client profits from
// power and bandwidth that nobody else uses, and loses a little where several share.
double efficiency(const Instant& instant, const Client& client) {
  double used = 0;
  unsigned members = 0;
  bool capped = false;
  for (unsigned i = 0; i < instant.client_count; ++i) {
    const Client& other = instant.clients[i];
    if (other.group != client.group) continue;
    used += other.share;
    ++members;
    capped |= other.cap < std::min(other.width, 1.0);
  }
  if (!capped) return 1;
  const double spare = std::max(0.0, 1 - used);
  return (members > 1 ? kCappedEfficiency : 1.0) * (1 + kSpareBonus * spare * spare);
}

void set_rates(Instant& instant) {
  for (unsigned i = 0; i < instant.client_count; ++i) {
    const int group = instant.clients[i].group;
    const bool first = std::none_of(instant.clients, instant.clients + i,
                                    [&](auto& c) { return c.group == group; });
    if (first) share_slice(instant, group);
  }
  const double slice =
      (instant.groups > 1 ? kSwitchEfficiency : 1.0) / std::max(instant.groups, 1U);
  for (unsigned i = 0; i < instant.lane_count; ++i) {
    Lane& lane = *instant.lanes[i];
    if (on_engine(lane)) {
      lane.rate = 1;
      continue;
    }
    const Client& client = *std::find_if(instant.clients, instant.clients + instant.client_count,
                                         [&](auto& c) { return c.slot == lane.client; });
    lane.rate = slice * std::min(1.0, client.share / client.width * efficiency(instant, client));
  }
}

void close_window(GpuCompute& gpu) {
  gpu.utilized = gpu.window_busy / kWindowNs;
  gpu.window_busy = 0;
  gpu.window_start += kWindowNs;
  for (ClientUse& use : gpu.use) {
    use.utilized = use.window / kWindowNs;
    use.window = 0;
  }
}

void run_for(GpuCompute& gpu, const Instant& instant, double dt) {
  for (unsigned i = 0; i < instant.lane_count; ++i) {
    Lane& lane = *instant.lanes[i];
    const double before = lane.done;
    lane.done = std::min(lane.submitted, before + lane.rate * dt);
    if (lane.submitted - lane.done < kEpsilon) lane.done = lane.submitted;
    for (Probe& probe : lane.probes)
      if (probe.sequence != 0 && probe.when == 0 && probe.mark <= lane.done)
        probe.when = gpu.now + std::clamp((probe.mark - before) / lane.rate, 0.0, dt);
  }
  for (unsigned i = 0; i < instant.client_count; ++i) {
    const Client& client = instant.clients[i];
    ClientUse& use = gpu.use[client.slot];
    use.busy += dt / instant.groups;
    use.window += dt / instant.groups;
    use.sm += dt / instant.groups * client.share;
  }
  if (instant.client_count > 0) {
    gpu.busy += dt;
    gpu.window_busy += dt;
  }
  gpu.now += dt;
}

}  // namespace

void advance(GpuCompute& gpu, double now) {
  if (gpu.now == 0) gpu.now = gpu.window_start = now;
  while (gpu.now < now) {
    Instant instant;
    collect(gpu, instant);
    set_rates(instant);
    const double boundary = gpu.window_start + kWindowNs;
    double dt = std::min(now, boundary) - gpu.now;
    for (unsigned i = 0; i < instant.lane_count; ++i) {
      const Lane& lane = *instant.lanes[i];
      dt = std::min(dt, (lane.submitted - lane.done) / lane.rate);
    }
    run_for(gpu, instant, std::max(dt, 0.0));
    if (gpu.now >= boundary - kEpsilon) {
      close_window(gpu);
      // Idle for long: the windows between are all empty.
      if (instant.lane_count == 0 && now - gpu.now > 2 * kWindowNs) {
        close_window(gpu);
        gpu.now = gpu.window_start = now - kWindowNs / 2;
      }
    }
  }
}

int open_lane(GpuCompute& gpu, int client, int group, double cap) {
  for (unsigned i = 0; i < kMaxLanes; ++i) {
    Lane& lane = gpu.lanes[i];
    if (lane.open) continue;
    lane = Lane{};
    lane.open = true;
    lane.client = client;
    lane.group = group;
    lane.cap = cap;
    lane.width = 1;
    lane.length = 0;
    gpu.high_lane = std::max(gpu.high_lane, i + 1);
    return static_cast<int>(i);
  }
  return -1;
}

void close_lane(GpuCompute& gpu, int lane) {
  gpu.lanes[lane].open = false;
  while (gpu.high_lane > 0 && !gpu.lanes[gpu.high_lane - 1].open) --gpu.high_lane;
}

void drop_client(GpuCompute& gpu, int client) {
  for (unsigned i = 0; i < gpu.high_lane; ++i)
    if (gpu.lanes[i].client == client) gpu.lanes[i].open = false;
  while (gpu.high_lane > 0 && !gpu.lanes[gpu.high_lane - 1].open) --gpu.high_lane;
  gpu.use[client] = ClientUse{};
}

double longest_in_flight(const GpuCompute& gpu, int client) {
  double longest = 0;
  for (unsigned i = 0; i < gpu.high_lane; ++i) {
    const Lane& lane = gpu.lanes[i];
    if (lane.client == client && busy(lane) && !on_engine(lane))
      longest = std::max(longest, lane.length);
  }
  return longest;
}

double submit(GpuCompute& gpu, int lane, double work_ns, double width) {
  Lane& l = gpu.lanes[lane];
  l.submitted += std::max(work_ns, 1.0);
  l.width = width == 0 ? 0 : std::clamp(width, 1e-4, 1.0);
  l.length += (std::max(work_ns, 1.0) - l.length) / (l.length == 0 ? 1 : 8);
  return l.submitted;
}

bool finished(const GpuCompute& gpu, int lane, double mark) {
  return !gpu.lanes[lane].open || gpu.lanes[lane].done >= mark - kEpsilon;
}

double eta(GpuCompute& gpu, int lane, double mark) {
  Instant instant;
  collect(gpu, instant);
  set_rates(instant);
  const Lane& l = gpu.lanes[lane];
  return l.done >= mark ? 0 : (mark - l.done) / l.rate;
}

std::uint64_t add_probe(GpuCompute& gpu, int lane) {
  Lane& l = gpu.lanes[lane];
  const std::uint64_t sequence = ++l.next_probe;
  l.probes[sequence % kMaxProbes] = {sequence, l.submitted, busy(l) ? 0 : gpu.now};
  return sequence;
}

double probe_time(const GpuCompute& gpu, int lane, std::uint64_t sequence) {
  const Lane& l = gpu.lanes[lane];
  const Probe& probe = l.probes[sequence % kMaxProbes];
  // A probe that newer ones displaced lies long behind: the end of what is known is the best
  // answer.
  return probe.sequence == sequence ? probe.when : gpu.now;
}

}  // namespace aliquot::standin
