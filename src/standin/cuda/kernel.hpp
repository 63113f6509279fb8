// Kernels of the stand-in. A module is any PTX text, cubin or fat binary; a kernel's name says what
// it does:
//   spin(u64 iterations, u64 unused)           takes time in proportion
//   saxpy(u32 n, f32 a, u64 x, u64 y)          y = a x + y, on the bytes of the simulated memory
//   fault(u64 address)                         an illegal access
//   late_N_…                                   its code takes N MiB of the GPU, when it is first
//                                              launched (lazy loading); so does any other's, but
//                                              little enough to lie in what the context has
//   local_N_…                                  each thread needs N KiB of local memory: the context
//                                              keeps that for all threads the GPU can hold
//   heap_…                                     uses the device's malloc: the context takes its heap
// Any other kernel takes kPlainKernelNs for each time its blocks fill the GPU, and has no effect.
// Variables of a module (".global .b8 name[N]" in PTX) take their memory when it is loaded.
#pragma once

#include <string>

#include "standin/cuda/stream.hpp"

namespace aliquot::standin {

inline constexpr double kPlainKernelNs = 5000;
inline constexpr double kSpinNsPerIteration = 2;

struct Module {
  bool ptx = false;
  std::string text;            // of PTX, to know which kernels there are
  Context* context = nullptr;  // in which it lies
  unsigned gpu = 0;
  std::uint64_t bytes = 0;  // of the GPU: variables, and code that was loaded
};

struct Kernel {
  Module* module;
  std::string name;
  bool loaded = false;
};

// The context is gone, and with it what modules took in it.
void modules_gone(Context* context);

struct Grid {
  unsigned x, y, z;
  unsigned block_x, block_y, block_z;
};

// The operation that a launch stands for; arguments are read now, as the driver does.
CUresult kernel_operation(const Context& context, const Kernel* kernel, const Grid& grid,
                          void** parameters, void** extra, Operation* out);

}  // namespace aliquot::standin
