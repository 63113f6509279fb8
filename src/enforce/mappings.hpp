// Physical memory that is held in more ways than by its address: handles, mappings, pieces of
// sparse arrays, multicast objects, descriptors. It is charged until the last of them is gone.
#pragma once

#include "enforce/driver.hpp"

namespace aliquot::enforce {

// Holds the allocation behind a handle or an address once more; its number, or 0 when it is none of
// ours.
std::uint64_t hold_by_handle(CUmemHandle handle);
std::uint64_t hold_by_address(CUdeviceptr address);
void let_go(std::uint64_t allocation);

// A descriptor was made for the memory at an address.
void export_address(CUdeviceptr address, int fd);
// A plain block was freed. True: a descriptor holds its memory, and the charge for it goes on.
bool keep_exported(CUdeviceptr base, int gpu, std::uint64_t bytes);
// Gives back what closed descriptors held.
void look_at_exports();

}  // namespace aliquot::enforce
