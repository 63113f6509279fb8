// Tells whether a process has work on the GPU, from the counters that the library in it keeps. The
// library brings `completed` up to date when the process launches, waits for the GPU or waits at
// its gate. When a process is silent we guess: we give what is in flight the time that so many
// launches took before, and then take it to be over. Pure.
#pragma once

#include <cstdint>

namespace aliquot::core {

class FlightWatch {
 public:
  struct Counters {
    std::uint64_t launched = 0;
    std::uint64_t completed = 0;
    bool in_wait = false;        // a thread of it waits in the driver for the GPU
    std::int64_t looked_ns = 0;  // when `completed` was last brought up to date; 0: not known
  };
  bool look(std::int64_t now_ns, const Counters& counters, bool paused);

 private:
  std::uint64_t launched_ = 0;
  std::uint64_t completed_ = 0;
  std::int64_t moved_ns_ = 0;      // when a counter last moved
  std::int64_t completed_ns_ = 0;  // since when completions are counted; 0: they are not
  std::int64_t paused_ns_ = 0;     // since when it has been paused
  double each_ns_ = 20'000;        // from one completion to the next, on average
  bool learned_ = false;
  bool news_while_paused_ = false;  // its library keeps counting while it waits at the gate
  bool paused_ = false;
};

}  // namespace aliquot::core
