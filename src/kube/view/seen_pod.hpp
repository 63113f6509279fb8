// A pod for people to look at: what kube/model keeps of it, and beside that how far it has come,
// what it waits for in Kubernetes' own words, its grant as it stands there, and its claims.
//
// The grant is not verified here: whoever looks has no key. What is shown may be what somebody
// wrote who may change the pod, until the scheduler or the agent has put it right.
#pragma once

#include <boost/json/fwd.hpp>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "kube/model/claim.hpp"
#include "kube/model/grant_annotation.hpp"
#include "kube/model/pod.hpp"

namespace aliquot::kube {

struct SeenPod {
  Pod pod;
  WallTime created;
  std::optional<WallTime> started = {};    // on its node
  std::string reason = {};                 // why it is not bound: Unschedulable, SchedulingGated
  std::string message = {};                // the scheduler's own words
  std::string scheduler = {};              // who is to bind it
  std::vector<std::string> troubles = {};  // of its containers: "main: ImagePullBackOff: …"
  std::optional<PodGrant> grant = {};
  std::map<std::string, std::vector<ClaimUse>> claims = {};  // by container

  [[nodiscard]] bool waits() const { return pod.node.empty() && !pod.over(); }
  // `namespace/name`
  [[nodiscard]] std::string label() const { return pod.id.space + "/" + pod.id.name; }
};

Result<SeenPod> read_seen_pod(const boost::json::object& object, const Names& names);

}  // namespace aliquot::kube
