#include "enforce/flight.hpp"

#include "enforce/grant.hpp"
#include "enforce/lock.hpp"
#include "enforce/memory.hpp"

namespace aliquot::enforce {
namespace {

constexpr unsigned kRing = 4;
constexpr unsigned kLanes = 8;
// Behind a launch that takes longer than this no second one needs to be queued: we notice its end
// in less time than it takes.
constexpr std::uint64_t kLongNs = 10'000'000;
constexpr CUresult kNotReady = 600;

struct Count {
  std::uint64_t launches, ns;
};

struct Mark {
  CUevent event;
  Count behind;  // what was launched when it was recorded
};

// One stream of one context.
struct Lane {
  CUstream stream = nullptr;
  CUcontext context = nullptr;  // of the events; null: the lane is free
  Count launched = {}, completed = {}, marked = {};
  Mark ring[kRing] = {};
  unsigned first = 0, used = 0;
};

struct Flight {
  Lock lock;
  Lane lanes[kLanes];
};
Flight flights[ALIQUOT_MAX_GPUS];

bool busy(const Lane& lane) { return lane.launched.launches > lane.completed.launches; }

Count in_flight(const Flight& flight) {
  Count all{};
  for (const Lane& lane : flight.lanes) {
    all.launches += lane.launched.launches - lane.completed.launches;
    all.ns += lane.launched.ns - lane.completed.ns;
  }
  return all;
}

// `looked`: the events have been asked just now.
void publish(int gpu, const Flight& flight, bool looked = false) {
  aliquot_use* use = own_use(gpu);
  if (use == nullptr) return;
  std::uint64_t launched = 0;
  std::uint64_t completed = 0;
  for (const Lane& lane : flight.lanes) {
    launched += lane.launched.launches;
    completed += lane.completed.launches;
  }
  __atomic_store_n(&use->launched, launched, __ATOMIC_RELAXED);
  __atomic_store_n(&use->completed, completed, __ATOMIC_RELAXED);
  if (looked) __atomic_store_n(&use->looked_ns, now_ns(), __ATOMIC_RELAXED);
}

void all_done(Lane* lane) {
  lane->completed = lane->marked = lane->launched;
  lane->used = 0;
}

void drop_events(Lane* lane) {
  for (Mark& mark : lane->ring) {
    if (mark.event != nullptr) (void)real::cuEventDestroy_v2(mark.event);
    mark = {};
  }
  all_done(lane);
  lane->context = nullptr;
  lane->stream = nullptr;
}

// The stream's lane in the current context; null: it is not followed. A lane where nothing is in
// flight goes to whoever needs one; where all are in use streams share.
Lane* find_lane(Flight* flight, CUstream stream) {
  CUcontext context = nullptr;
  if (real::cuCtxGetCurrent(&context) != kSuccess || context == nullptr) return nullptr;
  Lane* shared = nullptr;
  Lane* unused = nullptr;
  for (Lane& lane : flight->lanes) {
    if (lane.context == context && lane.stream == stream) return &lane;
    if (lane.context == context && (shared == nullptr || !busy(lane))) shared = &lane;
    if (lane.context == nullptr && unused == nullptr) unused = &lane;
  }
  if (unused == nullptr && shared != nullptr) {
    if (!busy(*shared)) shared->stream = stream;
    return shared;
  }
  for (Lane& lane : flight->lanes) {
    if (unused != nullptr) break;
    if (busy(lane)) continue;
    // The other context lives still: before it goes its events are dropped.
    drop_events(&lane);
    unused = &lane;
  }
  if (unused == nullptr) return nullptr;
  for (Mark& mark : unused->ring)
    if (real::cuEventCreate(&mark.event, kEventDisableTiming) != kSuccess) mark.event = nullptr;
  unused->context = context;
  unused->stream = stream;
  return unused;
}

void harvest(Lane* lane) {
  while (lane->used > 0) {
    const Mark& oldest = lane->ring[lane->first];
    if (real::cuEventQuery(oldest.event) == kNotReady) return;
    lane->completed = oldest.behind;
    lane->first = (lane->first + 1) % kRing;
    --lane->used;
  }
}

// An event behind all that was launched.
void mark_end(Lane* lane) {
  if (lane->used == kRing) return;
  Mark& mark = lane->ring[(lane->first + lane->used) % kRing];
  // What cannot be followed is not held against the program.
  if (mark.event == nullptr || real::cuEventRecord(mark.event, lane->stream) != kSuccess) {
    all_done(lane);
    return;
  }
  mark.behind = lane->marked = lane->launched;
  ++lane->used;
}

// The last few launches may have no event behind them yet.
void look(Lane* lane) {
  if (!busy(*lane)) return;
  harvest(lane);
  if (lane->used == 0 && busy(*lane) && !is_capturing(lane->stream)) mark_end(lane);
}

void add(Lane* lane, const Count& more) {
  lane->launched.launches += more.launches;
  lane->launched.ns += more.ns;
}

}  // namespace

void reset_flights() {
  for (Flight& flight : flights) flight = {};
}

bool flight_begin(int gpu, CUstream stream, std::uint64_t launches, std::uint64_t cost_ns,
                  const FlightLimit& limit) {
  Flight& flight = flights[gpu];
  const Hold hold(flight.lock);
  const auto fits = [&] {
    const Count now = in_flight(flight);
    const std::uint64_t least = cost_ns >= kLongNs * launches ? 1 : 2;
    return now.launches < least || now.ns + cost_ns <= limit.most_ns;
  };
  if (!fits()) {
    for (Lane& lane : flight.lanes) look(&lane);
    if (!fits()) {
      publish(gpu, flight, true);
      return false;
    }
  }
  if (Lane* lane = find_lane(&flight, stream)) add(lane, {launches, cost_ns});
  publish(gpu, flight);
  return true;
}

void flight_add(int gpu, CUstream stream, std::uint64_t launches, std::uint64_t cost_ns) {
  Flight& flight = flights[gpu];
  const Hold hold(flight.lock);
  if (Lane* lane = find_lane(&flight, stream)) add(lane, {launches, cost_ns});
  publish(gpu, flight);
}

void flight_mark(int gpu, CUstream stream, const FlightLimit& limit) {
  Flight& flight = flights[gpu];
  const Hold hold(flight.lock);
  Lane* lane = find_lane(&flight, stream);
  if (lane == nullptr) return;
  const std::uint64_t since = lane->launched.launches - lane->marked.launches;
  if (lane->launched.ns - lane->marked.ns < limit.mark_ns && since < limit.mark_launches &&
      lane->used > 0)
    return;
  harvest(lane);
  // On a lane that streams share, the event goes to the stream that launches now.
  lane->stream = stream;
  mark_end(lane);
  publish(gpu, flight);
}

bool flight_look(int gpu) {
  Flight& flight = flights[gpu];
  const Hold hold(flight.lock);
  bool any = false;
  for (Lane& lane : flight.lanes) {
    look(&lane);
    any |= busy(lane);
  }
  publish(gpu, flight, true);
  return any;
}

void flight_waited(int gpu, CUstream stream, bool all) {
  Flight& flight = flights[gpu];
  const Hold hold(flight.lock);
  CUcontext context = nullptr;
  (void)real::cuCtxGetCurrent(&context);
  for (Lane& lane : flight.lanes) {
    if (lane.context == nullptr || !busy(lane)) continue;
    if (lane.context == context && (all || lane.stream == stream))
      all_done(&lane);
    else
      harvest(&lane);
  }
  publish(gpu, flight);
}

bool flight_pending(int gpu) {
  const aliquot_use* use = own_use(gpu);
  return use != nullptr && __atomic_load_n(&use->launched, __ATOMIC_RELAXED) !=
                               __atomic_load_n(&use->completed, __ATOMIC_RELAXED);
}

void flight_stream_gone(CUstream stream) {
  for (int gpu = 0; gpu < static_cast<int>(ALIQUOT_MAX_GPUS); ++gpu) {
    if (!flight_pending(gpu)) continue;
    Flight& flight = flights[gpu];
    const Hold hold(flight.lock);
    for (Lane& lane : flight.lanes)
      if (lane.stream == stream && lane.context != nullptr) all_done(&lane);
    publish(gpu, flight);
  }
}

void flight_context_ends(CUcontext context) {
  for (int gpu = 0; gpu < static_cast<int>(ALIQUOT_MAX_GPUS); ++gpu) {
    Flight& flight = flights[gpu];
    const Hold hold(flight.lock);
    bool any = false;
    for (Lane& lane : flight.lanes) {
      if (lane.context != context) continue;
      drop_events(&lane);
      any = true;
    }
    if (any) publish(gpu, flight);
  }
}

}  // namespace aliquot::enforce
