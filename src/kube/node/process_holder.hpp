// Which container of ours a process is in: by the name of its control group, which the kubelet and
// the runtime made (…/pod<uid>/<container id>, with either driver and version). Nothing of the
// container's own counts.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "kube/node/allocations.hpp"
#include "kube/node/node_pods.hpp"
#include "node/monitor.hpp"

namespace aliquot::kube {

// The containers that have what is held: of a claim all that name it. By the pod's uid.
std::vector<std::pair<std::string, std::string>> containers_of(const Allocation& allocation,
                                                               const std::vector<NodePodPtr>& pods);

class ProcessHolders {
 public:
  // Of the containers that are held, those whose ids are not known yet as well.
  ProcessHolders(const std::vector<Allocation>& held, const std::vector<NodePodPtr>& pods);

  // By the text of /proc/PID/cgroup. A container of a pod with one GPU container is that one before
  // its id is known; others are nobody's until then.
  [[nodiscard]] std::optional<HolderId> find(std::string_view groups) const;

 private:
  struct PodHolders {
    std::map<std::string, HolderId> by_id;  // the runtime's
    std::vector<std::string> others;        // ids of containers that hold nothing
    std::vector<HolderId> unknown;          // whose id is not known yet
  };
  std::map<std::string, PodHolders> pods_;  // by uid, and by uid as systemd has it in names
};

// holders must live as long.
node::FencedJob holders_among(const ProcessHolders& holders);

}  // namespace aliquot::kube
