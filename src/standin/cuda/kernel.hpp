// Kernels of the stand-in. A module is any PTX text, cubin or fat binary; a kernel's name says what
// it does:
//   spin(u64 iterations, u64 unused)           takes time in proportion
//   saxpy(u32 n, f32 a, u64 x, u64 y)          y = a x + y, on the bytes of the simulated memory
//   fault(u64 address)                         an illegal access
// Any other kernel takes kPlainKernelNs for each time its blocks fill the GPU, and has no effect.
#pragma once

#include <string>

#include "standin/cuda/stream.hpp"

namespace aliquot::standin {

inline constexpr double kPlainKernelNs = 5000;
inline constexpr double kSpinNsPerIteration = 2;

struct Module {
  bool ptx = false;
  std::string text;  // of PTX, to know which kernels there are
};

struct Kernel {
  Module* module;
  std::string name;
};

struct Grid {
  unsigned x, y, z;
  unsigned block_x, block_y, block_z;
};

// The operation that a launch stands for; arguments are read now, as the driver does.
CUresult kernel_operation(const Context& context, const Kernel* kernel, const Grid& grid,
                          void** parameters, void** extra, Operation* out);

}  // namespace aliquot::standin
