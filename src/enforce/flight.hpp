// What this process has in flight on each GPU: launches counted for each stream, an event behind
// every millisecond's worth of them, and how long they are expected to take. Events tell what is
// over; nobody waits for them here. What is known is published in the process's slot.
#pragma once

#include "enforce/driver.hpp"

namespace aliquot::enforce {

// How much may be in flight, and how often an event follows.
struct FlightLimit {
  std::uint64_t most_ns;        // of GPU time, as far as it is known
  std::uint64_t mark_ns;        // an event behind so much,
  std::uint64_t mark_launches;  // or behind so many
};

void reset_flights();
// True: the launches, together expected to take so long, are counted. False: there is too much in
// flight already.
bool flight_begin(int gpu, CUstream stream, std::uint64_t launches, std::uint64_t cost_ns,
                  const FlightLimit& limit);
// So many launches more, whatever is in flight.
void flight_add(int gpu, CUstream stream, std::uint64_t launches, std::uint64_t cost_ns);
// After the launch: an event, where one is due. The stream is not capturing.
void flight_mark(int gpu, CUstream stream, const FlightLimit& limit);
// Looks what is over. True while something is in flight.
bool flight_look(int gpu);
// The program waited for the stream, or with all for everything in its context.
void flight_waited(int gpu, CUstream stream, bool all);
[[nodiscard]] bool flight_pending(int gpu);
void flight_stream_gone(CUstream stream);
void flight_context_ends(CUcontext context);

}  // namespace aliquot::enforce
