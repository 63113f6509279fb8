// What /proc tells about a process. No memory is allocated and errno is the caller's.
#pragma once

#include <cstdint>

namespace aliquot::enforce {

struct ProcessState {
  std::uint64_t start_time;
  bool zombie;   // ended: everything it had is given back
  bool exiting;  // on its way there
};

// False when there is no such process.
bool read_process(int pid, ProcessState* state);
std::uint64_t own_start_time();
std::uint64_t own_pid_namespace();
// After fork.
void forget_own_process();

// Whether a process that is not among those given has a descriptor of the driver's open, or of
// memory that it exported. Looks at all processes that this one may look into.
bool others_hold_descriptors(bool (*is_known)(int pid));

}  // namespace aliquot::enforce
