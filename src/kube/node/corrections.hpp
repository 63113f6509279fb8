// What the annotations of pods must be to say what the kubelet did. Of two equal pods it may give
// each the devices that were meant for the other; and a pod that came by another way than our
// scheduler has devices and no grant. Pure: values in, values out.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "kube/node/node_pods.hpp"

namespace aliquot::kube {

// What containers have by the kubelet, by the pod's uid.
using Truth = std::map<std::string, ContainerGrants>;

struct Correction {
  NodePodPtr pod;
  PodGrant grant;  // what its annotation must say
};

// A pod whose devices were meant for another, and the other, which has none yet and is granted what
// is left, come together.
std::vector<Correction> find_corrections(const std::string& node,
                                         const std::vector<NodePodPtr>& pods, const Truth& truth,
                                         WallTime now);

}  // namespace aliquot::kube
