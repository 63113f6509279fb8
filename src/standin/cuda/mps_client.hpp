// The client side of MPS: a connection to the control daemon of CUDA_MPS_PIPE_DIRECTORY. Connecting
// tells which GPUs the daemon serves; attaching, at the first context, gives a place in a server.
#pragma once

#include <cstdint>
#include <vector>

#include "standin/abi/cuda.hpp"
#include "standin/state/state.hpp"

namespace aliquot::standin {

struct MpsPlace {
  int server = -1;
  std::uint32_t generation = 0;
  double fraction = 1;
  std::uint64_t limit[kMaxGpus] = {};
};

// False when no daemon of this machine listens there: the process then runs outside MPS.
[[nodiscard]] bool mps_connect(State& state, std::vector<unsigned>* offered);
// Waits while a server of another user has clients.
[[nodiscard]] CUresult mps_attach(int slot, std::uint32_t generation, MpsPlace* place);
void mps_forget();

[[nodiscard]] double mps_own_fraction();  // CUDA_MPS_ACTIVE_THREAD_PERCENTAGE
[[nodiscard]] std::uint64_t mps_own_limit(
    unsigned ordinal);  // CUDA_MPS_PINNED_DEVICE_MEM_LIMIT, 0 = none

}  // namespace aliquot::standin
