// What was seen of a GPU, and of a job on it, in the shape in which engines show it.
#pragma once

#include <cstdint>

#include "api/types.hpp"
#include "gpu/devices.hpp"
#include "node/share_meter.hpp"

namespace aliquot::node {

void show_sample(const gpu::Sample& sample, api::GpuInfo& gpu);
api::GpuUse shown_use(const ShareUse& use, std::int64_t job);

}  // namespace aliquot::node
