// The pods of this node, as the API server said last. Events write it from the loop, everybody
// reads it from any thread; what is read is a snapshot.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/units.hpp"
#include "kube/model/claim.hpp"
#include "kube/model/grant_annotation.hpp"
#include "kube/model/names.hpp"
#include "kube/model/pod.hpp"
#include "kube/model/pod_request.hpp"

namespace aliquot::kube {

// What of a container is in no Pod, since only its node wants to know.
struct ContainerFacts {
  std::optional<Uid> user = {};  // as whom it is to run; absent: as its image says
  std::string id = {};           // the runtime's, which its control group is named after
  bool finished = false;         // it has ended, and is not to be started again
  std::vector<ClaimUse> claims = {};
  friend bool operator==(const ContainerFacts&, const ContainerFacts&) = default;
};

struct NodePod {
  Pod pod;
  PodRequest request;                  // nothing where it asks for what cannot be
  std::optional<PodGrant> grant = {};  // that we wrote; for this node
  std::map<std::string, ContainerFacts> containers = {};

  [[nodiscard]] const ContainerNeed* need(const std::string& container) const;
  [[nodiscard]] const std::vector<core::GrantedGpu>* granted(const std::string& container) const;
};
using NodePodPtr = std::shared_ptr<const NodePod>;

HolderId holder_of(const PodName& pod, const std::string& container);

// How to read what the API server says of pods.
struct PodReader {
  Names names;
  std::string node;
  Bytes unit = gib(1);
  bool nvidia = false;
  SealKey key;

  [[nodiscard]] Result<NodePod> read(const boost::json::object& object) const;
};

class NodePods {
 public:
  void put(NodePod pod);
  void remove(const PodName& pod);
  // Everything that is there has been told.
  void set_synced();
  [[nodiscard]] bool synced() const;

  [[nodiscard]] NodePodPtr find(const std::string& space, const std::string& name) const;
  [[nodiscard]] std::vector<NodePodPtr> all() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, NodePodPtr> pods_;
  bool synced_ = false;
};

}  // namespace aliquot::kube
