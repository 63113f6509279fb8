// What this node's GPUs are for claims: the specs of its ResourceSlices (resource.k8s.io/v1). Each
// GPU, or slice of one, is two devices: one that many claims have parts of, of its memory and its
// compute, and one that a single claim has whole. Both consume the same counter, so that one keeps
// the other out. Sick GPUs are tainted.
//
// The scheduler takes the first device that fits, as they are listed: so they are listed in the
// order in which core's policy would choose. Pure.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/grant.hpp"
#include "gpu/devices.hpp"

namespace aliquot::kube {

struct SliceGpu {
  gpu::Device device;
  core::Health health = core::Health::ok;
  Bytes foreign = Bytes(0);                 // held by processes of no pod
  std::vector<core::GrantedGpu> held = {};  // parts of it, of claims
  bool resource = false;  // containers have it, or a part of it, by a device plugin
  friend bool operator==(const SliceGpu& one, const SliceGpu& other) {
    return one.device.gpu.id == other.device.gpu.id && one.health == other.health &&
           one.foreign == other.foreign && one.held == other.held && one.resource == other.resource;
  }
};

struct SliceSettings {
  std::string domain = "aliquot.dev";  // the driver's name, and the prefix of its words
  std::string node;
  Compute over_commit = kWholeGpu;
  std::string policy = "aliquot";
};

// The same as long as the GPU is there, whatever others come and go.
std::string device_name(const GpuId& gpu, bool whole);

// Positions in `gpus`: in which order a scheduler should look at them for a share, or for a whole
// GPU.
std::vector<std::size_t> listing_order(const std::vector<SliceGpu>& gpus,
                                       const SliceSettings& settings, bool whole);

// Without pool and names: counters first, then devices, as few slices as they fit into.
std::vector<boost::json::object> slice_specs(const std::vector<SliceGpu>& gpus,
                                             const SliceSettings& settings);

// What claims can have of a GPU's memory: whole MiB.
Bytes claimable(const SliceGpu& gpu);

}  // namespace aliquot::kube
