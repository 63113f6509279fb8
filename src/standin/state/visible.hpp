// Which of the machine's GPUs a process sees, and in what order: by the rights to their files,
// CUDA_DEVICE_ORDER and CUDA_VISIBLE_DEVICES.
#pragma once

#include <vector>

#include "standin/state/state.hpp"

namespace aliquot::standin {

// All GPUs whose files the process may open (a cgroup may keep it from some): the fastest first, or
// in PCI order when CUDA_DEVICE_ORDER=PCI_BUS_ID.
[[nodiscard]] std::vector<unsigned> device_order(State& state);

// What CUDA_VISIBLE_DEVICES leaves of `offered`. Indices count in `offered`; a UUID may be cut
// short as long as it is unambiguous. The first entry that names nothing, or names a GPU again,
// ends the list.
[[nodiscard]] std::vector<unsigned> visible_devices(State& state,
                                                    const std::vector<unsigned>& offered);

}  // namespace aliquot::standin
