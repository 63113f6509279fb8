// A cluster as it was when somebody looked: its pods and nodes, what the agents have measured, and
// what could not be seen. Values only; questions.hpp asks for them, overview.hpp and why.hpp say
// what they mean.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "kube/model/names.hpp"
#include "kube/model/node.hpp"
#include "kube/scheduler/cluster_state.hpp"
#include "kube/view/figures.hpp"
#include "kube/view/seen_pod.hpp"
#include "kube/view/wanted_claims.hpp"

namespace aliquot::kube {

struct SeenNode {
  NodeFacts facts;
  bool ready = true;
  bool cordoned = false;
};

SeenNode read_seen_node(const boost::json::object& object, NodeFacts facts);

struct ClusterLook {
  Names names = {};
  std::vector<SeenPod> pods = {};                   // by namespace and name
  std::vector<SeenNode> nodes = {};                 // by name; those that speak of GPUs
  WantedClaims claims = {};                         // that pods name
  std::map<std::string, NodeFigures> figures = {};  // by node
  std::string name_space = {};                      // whose pods are the caller's; empty: all are
  std::string quota = {};                           // of that namespace; empty: not known
  std::vector<std::string> gaps = {};               // what could not be seen, in sentences
};

// What a pod asks for, by limits or by claims. An error says why that cannot be.
Result<Asked> asked_of(const ClusterLook& look, const ClusterState& state, const SeenPod& seen);

// Who holds what, counted as the scheduler does. Pods that have GPUs by claims hold what their
// grants say, of containers and pods that name one claim only once. `clock` outlives it.
Result<std::unique_ptr<ClusterState>> count_holdings(const ClusterLook& look, const Clock& clock);

}  // namespace aliquot::kube
