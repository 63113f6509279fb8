// The stand-in driver within one process: its place in the simulated machine, the devices it may
// see, and the objects behind the handles it hands out. One instance per process, because the C ABI
// has no other place for it; created by cuInit and never destroyed, since programs call the driver
// until their last instant. A process that forked after cuInit gets CUDA_ERROR_NOT_INITIALIZED from
// everything, as with the real driver.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "standin/abi/cuda.hpp"
#include "standin/state/state.hpp"

#define CU_API extern "C" __attribute__((visibility("default"))) CUresult
// A function and its per-thread-default-stream twin (_ptsz or _ptds).
#define CU_API_STREAM(name, suffix, params, args) \
  static CUresult name##_impl params;             \
  CU_API name params { return name##_impl args; } \
  CU_API name##suffix params {                    \
    const PerThreadDefault scope;                 \
    return name##_impl args;                      \
  }                                               \
  static CUresult name##_impl params

namespace aliquot::standin {

// One lane of the compute model, closed when the stream and the last of its events are gone.
struct LaneRef {
  unsigned gpu;
  int lane;
  LaneRef(unsigned g, int l) : gpu(g), lane(l) {}
  ~LaneRef();
  LaneRef(const LaneRef&) = delete;
  LaneRef& operator=(const LaneRef&) = delete;
};

struct Context {
  CUdevice device;  // ordinal in this process
  unsigned gpu;     // index on the machine
  bool primary;
  unsigned flags;
  unsigned long long id;
  std::unique_ptr<Stream> legacy;
  std::map<std::thread::id, std::unique_ptr<Stream>> per_thread;
  std::set<Stream*> streams;
  std::map<int, std::size_t> limits;
  std::uint64_t local = 1024;   // bytes of local memory a thread has, for all threads
  std::uint64_t own_bytes = 0;  // taken by itself for local memory and heap
  bool heap = false;
};

class Driver {
 public:
  static Driver& instance();

  CUresult init();
  // Before every call: initialised here, not suspended, no fault, and the MPS server is there.
  CUresult ready();
  CUresult current(Context** context);
  [[nodiscard]] CUresult health();

  State& state() { return *state_; }
  Process& self() { return state_->process(slot_); }
  [[nodiscard]] int slot() const { return slot_; }
  [[nodiscard]] const std::vector<unsigned>& visible() const { return visible_; }
  [[nodiscard]] bool is_device(CUdevice d) const {
    return d >= 0 && static_cast<std::size_t>(d) < visible_.size();
  }
  [[nodiscard]] unsigned gpu_of(CUdevice d) const { return visible_[static_cast<std::size_t>(d)]; }
  [[nodiscard]] const GpuModel& model_of(CUdevice d) const { return state_->model(gpu_of(d)); }

  // Charges the GPU of this process, under the state's lock.
  CUresult charge(unsigned gpu, std::uint64_t bytes, bool managed = false);
  void refund(unsigned gpu, std::uint64_t bytes, bool managed = false);

  CUresult create_context(CUdevice device, unsigned flags, bool primary, Context** out);
  void destroy_context(Context* context);
  [[nodiscard]] bool is_context(Context* context);

  std::recursive_mutex mutex;  // guards everything below and all object lists
  std::set<Context*> contexts;
  struct Primary {
    Context* context = nullptr;
    unsigned references = 0;
    unsigned flags = 0;
  };
  Primary primaries[kMaxGpus];

 private:
  Driver() = default;
  CUresult attach_mps();

  std::unique_ptr<State> state_;
  int slot_ = -1;
  bool initialized_ = false;
  bool mps_ = false;
  bool attached_ = false;
  std::vector<unsigned> visible_;
  unsigned long long next_context_ = 1;
};

// The thread's stack of contexts.
std::vector<Context*>& context_stack();

// While one lives, stream 0 means the thread's own stream.
class PerThreadDefault {
 public:
  PerThreadDefault() { active_ = true; }
  ~PerThreadDefault() { active_ = false; }
  PerThreadDefault(const PerThreadDefault&) = delete;
  PerThreadDefault& operator=(const PerThreadDefault&) = delete;
  static bool active() { return active_; }

 private:
  static inline thread_local bool active_ = false;
};

template <class Handle, class Value>
CUresult give(Handle* out, Value value) {
  if (out == nullptr) return kInvalidValue;
  *out = value;
  return kSuccess;
}

}  // namespace aliquot::standin
