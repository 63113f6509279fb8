#include "kube/view/cluster_look.hpp"

#include <boost/json.hpp>
#include <set>
#include <tuple>

#include "kube/model/json_read.hpp"

namespace aliquot::kube {
namespace {

namespace json = boost::json;

using NamedClaims = std::set<std::tuple<std::string, std::string, std::string>>;

// What the pod's containers have by claims, but for what `counted` has already. Empty: nothing.
std::map<GpuId, core::GrantedGpu> claimed_by(const SeenPod& seen, NamedClaims& counted) {
  std::map<GpuId, core::GrantedGpu> held;
  for (const auto& [container, uses] : seen.claims) {
    const auto granted = seen.grant->containers.find(container);
    if (granted == seen.grant->containers.end()) continue;
    bool first = false;
    for (const ClaimUse& use : uses) {
      if (counted.emplace(seen.pod.id.space, use.claim, use.request).second) first = true;
    }
    if (!first) continue;
    for (const core::GrantedGpu& part : granted->second) {
      auto [at, added] = held.emplace(part.gpu, part);
      if (added) continue;
      at->second.portion.memory += part.portion.memory;
      at->second.portion.compute += part.portion.compute;
      at->second.whole = at->second.whole || part.whole;
    }
  }
  return held;
}

}  // namespace

SeenNode read_seen_node(const json::object& object, NodeFacts facts) {
  SeenNode node{.facts = std::move(facts)};
  if (const auto* spec = find_object(object, "spec")) {
    node.cordoned = find_flag(*spec, "unschedulable");
  }
  const auto* status = find_object(object, "status");
  const auto* conditions = status == nullptr ? nullptr : find_array(*status, "conditions");
  if (conditions == nullptr) return node;
  for (const json::value& value : *conditions) {
    const auto* one = value.if_object();
    if (one != nullptr && find_text(*one, "type") == "Ready") {
      node.ready = find_text(*one, "status") == "True";
    }
  }
  return node;
}

Result<Asked> asked_of(const ClusterLook& look, const ClusterState& state, const SeenPod& seen) {
  Asked asked = TRY(state.ask(seen.pod));
  if (asked.asks() || seen.claims.empty()) return asked;
  return asked_by_claims(seen, look.claims);
}

Result<std::unique_ptr<ClusterState>> count_holdings(const ClusterLook& look, const Clock& clock) {
  StateSettings settings{.names = look.names};
  for (const SeenNode& node : look.nodes) {
    if (!node.facts.gpus) continue;
    settings.unit = node.facts.gpus->unit;
    break;
  }
  auto state = TRY(ClusterState::create_to_look(std::move(settings), clock));
  for (const SeenNode& node : look.nodes) state->see_node(node.facts);
  NamedClaims counted;
  for (const SeenPod& seen : look.pods) {
    if (seen.claims.empty() || !seen.grant) {
      state->see_pod(seen.pod);
    } else if (!seen.pod.over() && seen.grant->node == seen.pod.node) {
      state->see_claimed(seen.pod.id, seen.pod.node, claimed_by(seen, counted));
    }
  }
  return state;
}

}  // namespace aliquot::kube
