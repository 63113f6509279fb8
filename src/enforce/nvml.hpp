// NVML: what this process really holds on a GPU, and the views of memory that programs read there.
// The library is loaded only to find out what a context costs; where it is missing, that is
// guessed.
#pragma once

#include <cstdint>

namespace aliquot::enforce {

// The wrapper for an exported name of NVML, or null.
void* nvml_wrapper(const char* name);
// True when the program has NVML loaded.
bool bind_nvml();
// Bytes that NVML counts for this process on the GPU; 0 when it knows the GPU and not the process.
// False when it cannot say.
bool nvml_own_bytes(int gpu, std::uint64_t* bytes);

// Every process that NVML sees on the GPU, and what it attributes to it; how many, 0 when it cannot
// say.
struct NvmlProcess {
  unsigned pid;
  std::uint64_t bytes;
};
inline constexpr unsigned kMostNvmlProcesses = 256;
unsigned nvml_processes(int gpu, NvmlProcess* out);

}  // namespace aliquot::enforce
