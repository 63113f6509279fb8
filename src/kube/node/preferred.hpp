// Which devices to offer to the kubelet for a container, out of those that are free: those of the
// GPU that the scheduler chose for the pod we believe it to be, or else all of one GPU, where that
// leaves the least unused. The kubelet does not say for whom it asks: of equal pods we take the one
// that was placed first, and what the kubelet makes of it is put right later (corrections.hpp).
// Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "kube/node/resources.hpp"

namespace aliquot::kube {

// A container that has been placed and has no devices yet, and asks for just as many of just this
// resource.
struct Candidate {
  std::string key;  // who it is, for whoever asks
  std::vector<GpuId> gpus;
};

struct Wanted {
  DeviceIds available;     // with those of must_include
  DeviceIds must_include;  // what an init container of the pod held
  std::size_t size = 0;
};

struct Offer {
  DeviceIds ids;
  std::optional<std::string> candidate;  // whom we believe it to be for
};

// candidates: the one that was placed first comes first. promised: how many units of a GPU others
// were granted that have none yet; for whole GPUs, those that anybody was granted.
Offer prefer(Kind kind, const Wanted& wanted, const std::vector<Candidate>& candidates,
             const std::map<GpuId, std::int64_t>& promised);

}  // namespace aliquot::kube
