// Suspending a process: lock, checkpoint, restore, unlock, by pid. Times and what stays on the GPU
// follow the H200; an MPS client cannot be suspended. The content of the process's memory stays
// where it is.
#include <unistd.h>

#include "standin/cuda/stream.hpp"
#include "standin/state/compute_model.hpp"

namespace aliquot::standin {
namespace {

constexpr std::uint64_t kLeftOnGpu = 4ULL << 20;
constexpr double kCheckpointNsPerGiB = 0.6e9;
constexpr double kRestoreNsPerGiB = 0.18e9;

// The slot of a process that the caller may suspend and that is in the wanted state. State's lock
// held.
CUresult find_process(int pid, CheckpointState wanted, int* slot) {
  State& state = Driver::instance().state();
  state.reap();
  *slot = state.find_pid(pid);
  if (*slot < 0) return kInvalidValue;
  const Process& p = state.process(*slot);
  if (geteuid() != 0 && p.uid != geteuid()) return kNotPermitted;
  if (p.kind != Kind::plain) return kNotSupported;
  return p.checkpoint == wanted ? kSuccess : kIllegalState;
}

bool has_work(State& state, int slot) {
  for (unsigned g = 0; g < state.gpu_count(); ++g) {
    GpuCompute& compute = state.gpu(g).compute;
    advance(compute, state.now());
    for (unsigned i = 0; i < compute.high_lane; ++i) {
      const Lane& lane = compute.lanes[i];
      if (lane.open && lane.client == slot && lane.done < lane.submitted) return true;
    }
  }
  return false;
}

// What was launched before the lock still runs to its end.
void wait_for_work(int slot) {
  State& state = Driver::instance().state();
  for (;;) {
    {
      const State::Guard guard(state);
      if (!state.alive(slot) || !has_work(state, slot)) return;
    }
    sleep_simulated(1e6);
  }
}

double gib(std::uint64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(kGiB); }

CUresult change(int pid, CheckpointState from, CheckpointState to) {
  State& state = Driver::instance().state();
  const State::Guard guard(state);
  int slot = -1;
  if (const CUresult r = find_process(pid, from, &slot); r != kSuccess) return r;
  state.process(slot).checkpoint = to;
  return kSuccess;
}

}  // namespace

CU_API cuCheckpointProcessGetState(int pid, int* out) {
  if (const CUresult r = Driver::instance().init(); r != kSuccess) return r;
  State& state = Driver::instance().state();
  const State::Guard guard(state);
  state.reap();
  const int slot = state.find_pid(pid);
  return slot < 0 ? kInvalidValue : give(out, static_cast<int>(state.process(slot).checkpoint));
}

CU_API cuCheckpointProcessGetRestoreThreadId(int pid, int* out) { return give(out, pid); }

CU_API cuCheckpointProcessLock(int pid, CUcheckpointLockArgs*) {
  if (const CUresult r = Driver::instance().init(); r != kSuccess) return r;
  // A process that locks itself could never unlock itself.
  if (pid == getpid()) return kNotSupported;
  return change(pid, CheckpointState::running, CheckpointState::locked);
}

CU_API cuCheckpointProcessCheckpoint(int pid, void*) {
  Driver& driver = Driver::instance();
  if (const CUresult r = driver.init(); r != kSuccess) return r;
  State& state = driver.state();
  int slot = -1;
  {
    const State::Guard guard(state);
    if (const CUresult r = find_process(pid, CheckpointState::locked, &slot); r != kSuccess)
      return r;
  }
  wait_for_work(slot);
  std::uint64_t moved = 0;
  for (const std::uint64_t bytes : state.process(slot).bytes) moved += bytes;
  for (const std::uint64_t bytes : state.process(slot).managed) moved += bytes;
  sleep_simulated(gib(moved) * kCheckpointNsPerGiB);

  const State::Guard guard(state);
  if (const CUresult r = find_process(pid, CheckpointState::locked, &slot); r != kSuccess) return r;
  Process& p = state.process(slot);
  for (unsigned g = 0; g < state.gpu_count(); ++g) {
    p.parked[g] = p.bytes[g];
    p.parked_managed[g] = p.managed[g];
    p.managed[g] = 0;
    if (p.bytes[g] != 0) p.bytes[g] = kLeftOnGpu;
  }
  p.checkpoint = CheckpointState::checkpointed;
  return kSuccess;
}

CU_API cuCheckpointProcessRestore(int pid, void*) {
  Driver& driver = Driver::instance();
  if (const CUresult r = driver.init(); r != kSuccess) return r;
  State& state = driver.state();
  std::uint64_t moved = 0;
  {
    const State::Guard guard(state);
    int slot = -1;
    if (const CUresult r = find_process(pid, CheckpointState::checkpointed, &slot); r != kSuccess)
      return r;
    Process& p = state.process(slot);
    for (unsigned g = 0; g < state.gpu_count(); ++g)
      if (p.parked[g] + p.parked_managed[g] > p.bytes[g] + state.free(g)) return kOutOfMemory;
    for (unsigned g = 0; g < state.gpu_count(); ++g) {
      moved += p.parked[g] + p.parked_managed[g];
      p.bytes[g] = p.parked[g];
      p.managed[g] = p.parked_managed[g];
      p.parked[g] = p.parked_managed[g] = 0;
    }
    p.checkpoint = CheckpointState::locked;
  }
  sleep_simulated(gib(moved) * kRestoreNsPerGiB);
  return kSuccess;
}

CU_API cuCheckpointProcessUnlock(int pid, void*) {
  if (const CUresult r = Driver::instance().init(); r != kSuccess) return r;
  return change(pid, CheckpointState::locked, CheckpointState::running);
}

}  // namespace aliquot::standin
