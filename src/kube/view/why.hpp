// Why a pod waits, GPU by GPU: what it asks for, on which node what is in its way, who holds what
// there, and what Kubernetes itself says. Of a pod that runs, what it has. Pure.
#pragma once

#include <string>
#include <vector>

#include "api/types.hpp"
#include "kube/view/cluster_look.hpp"

namespace aliquot::kube {

// An event of the pod, as `kubectl describe` shows them.
struct SeenEvent {
  WallTime last;
  bool warning = false;
  std::string reason;
  std::string message;
};
SeenEvent read_seen_event(const boost::json::object& object);

// `pod` is one of the look's.
Result<api::WhyInfo> why_of(const ClusterLook& look, const SeenPod& pod,
                            const std::vector<SeenEvent>& events, const Clock& clock);

// Whether an object may be called so: letters, digits and -, of a pod also dots.
bool is_name(std::string_view text, bool dots);

// `train`, `pod/train`, `team/train`: the pod's namespace, if it is said, and its name. Nothing:
// it is no name that a pod can have.
struct PodWord {
  std::string space;
  std::string name;
  friend bool operator==(const PodWord&, const PodWord&) = default;
};
std::optional<PodWord> parse_pod_word(std::string_view word);

}  // namespace aliquot::kube
