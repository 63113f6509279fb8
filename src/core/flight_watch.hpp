// Whether a process has something on the GPU, from the two counters it keeps. The library in it
// looks what is over when the process launches, waits for the GPU or stands at its gate. Of one
// that says nothing it is guessed: what is in flight is given the time that so many launches took
// before, and is then taken to be over. Pure.
#pragma once

#include <cstdint>

namespace aliquot::core {

class FlightWatch {
 public:
  struct Counters {
    std::uint64_t launched = 0;
    std::uint64_t completed = 0;
    bool in_wait = false;        // a thread of it waits in the driver: something is under way
    std::int64_t looked_ns = 0;  // when it last looked what is over; 0: it does not say
  };
  bool look(std::int64_t now_ns, const Counters& counters, bool paused);

 private:
  std::uint64_t launched_ = 0;
  std::uint64_t completed_ = 0;
  std::int64_t moved_ns_ = 0;      // when a counter last did
  std::int64_t completed_ns_ = 0;  // since when completions are counted; 0: they are not
  std::int64_t paused_ns_ = 0;     // since when
  double each_ns_ = 20'000;        // from one completion to the next, on average
  bool learned_ = false;
  bool news_while_paused_ = false;  // its library looks at the gate
  bool paused_ = false;
};

}  // namespace aliquot::core
