// Streams: each is a lane of the compute model, or records into a graph while it captures. An
// operation has an effect on memory, which happens when it is enqueued (always a valid order for a
// program without races), and work, which the simulated GPU takes its time over. Waits between
// streams are not modelled in time.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>

#include "standin/cuda/driver.hpp"

namespace aliquot::standin {

struct Operation {
  std::function<void()> effect;
  double work_ns = 0;
  double width = 1;
  bool faults = false;
  std::function<void()> host;  // a function of the program, called when the stream gets there
};

struct Stream {
  Stream(Context* c, unsigned f, int p = 0) : context(c), flags(f), priority(p) {}
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Context* context;
  unsigned flags;
  int priority;
  std::shared_ptr<LaneRef> lane;  // made by the first operation
  std::deque<double> pending;     // marks of launches that may still run
  std::atomic<int> callbacks{0};
  Graph* capture = nullptr;
  bool capture_broken = false;
  unsigned long long capture_id = 0;
};

// The stream behind a handle, in a healthy process with a context.
CUresult resolve_stream(CUstream handle, Stream** out);
// Runs or records the operation.
CUresult enqueue(Stream* stream, Operation operation);
CUresult ensure_lane(Stream* stream);
CUresult wait_for(const LaneRef& lane, double mark);
CUresult synchronize(Stream* stream);
[[nodiscard]] bool drained(Stream* stream);
// The mark at which everything enqueued so far is done; whether a lane has reached one.
[[nodiscard]] double last_mark(const Stream& stream);
[[nodiscard]] bool reached(const LaneRef& lane, double mark);
void sleep_simulated(double ns);

}  // namespace aliquot::standin
