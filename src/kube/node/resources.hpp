// What this node serves to its kubelet: resources, their devices' names, and how devices are handed
// from one to the other. A unit of a GPU's memory, or a whole GPU, may go by several resource names
// (ours, NVIDIA's, gpushare's): whichever it is taken by, it is gone for all of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "kube/model/names.hpp"

namespace aliquot::kube {

enum class Kind : std::uint8_t { memory, whole };

struct Resource {
  std::string name;  // "aliquot.dev/gpu-mem"
  Kind kind = Kind::memory;
  friend auto operator<=>(const Resource&, const Resource&) = default;

  // Of its socket beside the kubelet's: "aliquot.dev_gpu-mem.sock".
  [[nodiscard]] std::string socket() const;
};

// Ours, and on request those of others.
std::vector<Resource> served(const Names& names, bool nvidia, bool gpushare);

// Devices as the kubelet names them, sorted, each once.
using DeviceIds = std::vector<std::string>;
DeviceIds sorted(DeviceIds ids);

// How many there are of each GPU. An id that is none of ours, or of the other kind, is an error.
Result<std::map<GpuId, std::int64_t>> count_by_gpu(Kind kind, const DeviceIds& ids);

// A name for these devices, good for a file: the same for the same ones, however they are ordered.
std::string digest_of(const DeviceIds& ids);

}  // namespace aliquot::kube
