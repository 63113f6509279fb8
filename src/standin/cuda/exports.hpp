// Looks a driver function up by name, version and stream flag, by the rule measured on driver 580.
// Apart from cuGetProcAddress itself because exports.cpp declares every exported name with a
// signature of its own.
#pragma once

#include <cstdint>

#include "standin/abi/cuda.hpp"

namespace aliquot::standin {

CUresult look_up_export(const char* symbol, void** out, int version, std::uint64_t flags,
                        int* status);

}  // namespace aliquot::standin
