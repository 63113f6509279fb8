// Where the containers of one pod go on one node: all of them together, each share on one GPU,
// whole GPUs beside none. core decides for one request at a time; here the requests of a pod are
// put to it one after the other, and where that leads into a dead end every other way is tried.
#pragma once

#include <optional>
#include <vector>

#include "core/placement.hpp"
#include "kube/model/pod_request.hpp"

namespace aliquot::kube {

// What a pod asks for, in core's words for one cluster. The shapes have no CPUs: whether those
// suffice the scheduler has decided, and it knows better. They only rank nodes.
struct PodShapes {
  std::vector<core::Shape> shares;   // by position in PodRequest::shares
  std::optional<core::Shape> whole;  // all whole GPUs of the pod
  CpuMilli cpus;

  // The shape, where there is but one: nearly always.
  [[nodiscard]] const core::Shape* only() const;
};
Result<PodShapes> shapes_of(const core::Cluster& cluster, const PodRequest& request);

// GPUs of the node, by the positions in PodShapes.
struct PodPlacement {
  std::vector<core::GpuIndex> shares;
  std::vector<core::GpuIndex> whole;
  friend bool operator==(const PodPlacement&, const PodPlacement&) = default;
};

// Whether there is a way at all.
bool fits(const core::Cluster& cluster, core::NodeIndex node, const PodShapes& shapes);

struct RankedPlacement {
  PodPlacement placement;
  double score = 0;  // only comparable for one pod
};
// As the policy, which must be prepared, likes it best. `cluster` is as before in the end: it is
// where one request after the other is tried.
std::optional<RankedPlacement> place_pod(core::Cluster& cluster, core::Policy& policy,
                                         core::NodeIndex node, const PodShapes& shapes);

// What each container gets by it.
ContainerGrants grants_of(const core::Cluster& cluster, core::NodeIndex node,
                          const PodRequest& request, const PodPlacement& placement);

// Why it does not fit, as people read it, and whether an empty node would do.
struct PodRefusal {
  std::string why;
  bool curable = false;
};
PodRefusal explain_pod(const core::Cluster& cluster, core::NodeIndex node, const PodShapes& shapes);

// `6 GiB`, `1.5 GiB`, `512 MiB`: rounded down.
std::string size_for_people(Bytes size);

}  // namespace aliquot::kube
