// Stream-ordered memory pools: what a pool has reserved is what it costs. It grows in pieces of 32
// MiB and shrinks to its release threshold when the program synchronises, as measured. What is
// freed on a stream serves that stream at once, and others when the stream has got there: until
// then the pool grows for them. Fragmentation is not modelled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "standin/cuda/stream.hpp"

namespace aliquot::standin {

// Freed on a stream that has not got there yet.
struct PendingFree {
  std::shared_ptr<LaneRef> lane;
  double mark;
  std::uint64_t bytes;
};

struct Pool {
  unsigned gpu = 0;
  CUdevice device = 0;
  bool standard = false;  // the device's own, which nobody destroys
  bool destroyed = false;
  std::size_t max_size = 0;
  std::uint64_t used = 0, used_high = 0;
  std::uint64_t reserved = 0, reserved_high = 0;
  std::uint64_t threshold = 0;
  int reuse[3] = {1, 1, 1};
  std::vector<PendingFree> pending;
};

CUresult pool_take(Pool* pool, std::size_t size, const Stream* stream);
// Freed at once, or when the stream gets there.
void pool_give_back(Pool* pool, std::size_t size, Stream* stream = nullptr);
void pool_trim(Pool* pool, std::uint64_t keep);
// A synchronisation lets every pool of the GPU fall back to its threshold.
void pools_synchronized(unsigned gpu);

}  // namespace aliquot::standin
