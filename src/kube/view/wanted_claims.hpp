// What claims (DRA) ask of our devices, whether or not they have got it: read from their specs, and
// put together for a pod as if its containers had asked by limits. So that people see what a pod
// waits for that names claims.
#pragma once

#include <boost/json/object.hpp>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kube/model/names.hpp"
#include "kube/scheduler/cluster_state.hpp"
#include "kube/view/seen_pod.hpp"

namespace aliquot::kube {

struct WantedPart {
  std::string request;
  bool whole = false;
  std::int64_t count = 1;
  std::optional<Bytes> memory = {};  // of a share; neither this nor compute: all of a GPU's
  std::optional<Compute> compute = {};
  friend bool operator==(const WantedPart&, const WantedPart&) = default;
};

// By namespace and name.
using WantedClaims = std::map<std::pair<std::string, std::string>, std::vector<WantedPart>>;

// What a claim asks of our two classes of devices; what it asks of others is left out.
std::vector<WantedPart> read_wanted_parts(const boost::json::object& claim, const Names& names);

Asked asked_by_claims(const SeenPod& seen, const WantedClaims& claims);

}  // namespace aliquot::kube
