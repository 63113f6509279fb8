// A ResourceClaim as the API server shows it (resource.k8s.io/v1), of which only what was allocated
// of our driver's devices is kept: who it is, for which pods it is reserved, and which devices each
// of its requests has, with what it consumes of them. And which containers of a pod use which
// claims.
//
// What is allocated is the scheduler's word. What a user may write into a claim (its configuration)
// means nothing here but that there is one.
#pragma once

#include <boost/json/fwd.hpp>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/units.hpp"
#include "kube/model/pod.hpp"

namespace aliquot::kube {

// Of a share: what a device has to be consumed.
inline constexpr std::string_view kMemoryCapacity = "memory";    // bytes
inline constexpr std::string_view kComputeCapacity = "compute";  // percent of a GPU

struct ClaimName {
  std::string space;
  std::string name;
  std::string uid;
  friend auto operator<=>(const ClaimName&, const ClaimName&) = default;
};

struct ClaimedDevice {
  std::string request;  // of the claim; of one with alternatives, without the alternative
  std::string pool;
  std::string device;
  std::string share_id = {};         // of a device that several claims have
  std::optional<Bytes> memory = {};  // that it consumes; nothing: the device has no such thing
  std::optional<std::int64_t> compute = {};  // percent; 0: in proportion to the memory
  bool admin = false;                        // it consumes nothing: to look at
  friend bool operator==(const ClaimedDevice&, const ClaimedDevice&) = default;
};

struct Claim {
  ClaimName id;
  std::vector<PodName> pods;  // that it is reserved for
  std::vector<ClaimedDevice> devices;
  bool configured = false;  // it, or its class, has parameters for our driver
  friend bool operator==(const Claim&, const Claim&) = default;
};

// An error says what is wrong with it; not_found: it is not allocated.
Result<Claim> read_claim(const boost::json::object& object, std::string_view driver);

// What a container names among its resources.
struct ClaimUse {
  std::string claim;    // the object's name, in the pod's namespace
  std::string request;  // empty: all of them
  friend auto operator<=>(const ClaimUse&, const ClaimUse&) = default;
};
// By container, of a pod's object. A claim that is not made yet is left out.
std::map<std::string, std::vector<ClaimUse>> claims_of(const boost::json::object& pod);

// Whether a container that names this gets what this request of the claim has.
inline bool uses(const ClaimUse& use, const std::string& claim, const std::string& request) {
  return use.claim == claim && (use.request.empty() || use.request == request);
}

}  // namespace aliquot::kube
