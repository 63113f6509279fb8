// What a child must forget after fork: it has none of its parent's GPU memory, and a lock that
// another thread of the parent held will never be given back in it.
#pragma once

namespace aliquot::enforce {

void reset_driver();
void reset_blocks();
void reset_pools();
void reset_mappings();
void reset_contexts();
void reset_gate();
void reset_nvml();
void reset_overhead();
void reset_graphs();
void reset_bindings();
void reset_modules_loaded();

inline void reset_modules() {
  reset_driver();
  reset_blocks();
  reset_pools();
  reset_mappings();
  reset_contexts();
  reset_gate();
  reset_nvml();
  reset_overhead();
  reset_graphs();
  reset_bindings();
  reset_modules_loaded();
}

}  // namespace aliquot::enforce
