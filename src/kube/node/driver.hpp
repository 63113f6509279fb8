// The DRA driver without the wire (driver_server.hpp): what the scheduler has allocated to a claim
// is held here, through the same Allocations as what the device plugin gives, and written down for
// the runtime. One grant for each request of a claim, which all containers that name it share.
//
// A claim is read from the API server each time: what its status says is allocated counts, and no
// more than the GPU has. When a claim is over is the kubelet's to say; one that neither the API
// server nor the kubelet knows any more is over, too.
//
// From any thread.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "kube/model/claim.hpp"
#include "kube/node/allocations.hpp"
#include "kube/node/container_view.hpp"
#include "kube/node/corrections.hpp"
#include "kube/node/node_pods.hpp"
#include "kube/node/pod_resources.hpp"

namespace aliquot::kube {

// A device of a claim, as the kubelet is to know it.
struct PreparedDevice {
  std::string request;
  std::string pool;
  std::string device;
  std::string share_id;
  std::string cdi;  // empty: what there is to see comes with another device of the request
  friend bool operator==(const PreparedDevice&, const PreparedDevice&) = default;
};

class Driver {
 public:
  struct Parts {
    std::string domain = "aliquot.dev";
    std::string node;
    std::filesystem::path cdi;
    ViewSettings view;
    Compute over_commit = kWholeGpu;
    PodResources& kubelet;
    const NodePods& pods;
    Allocations& allocations;
    const Clock& clock;
    // As the API server has them now; they may take a moment, and fail.
    std::function<Result<Claim>(const ClaimName&)> fetch;
    std::function<Result<NodePod>(const std::string& space, const std::string& name)> fetch_pod;
  };
  explicit Driver(Parts parts);

  // Again and again for one claim; an error is said to the kubelet, which tries again.
  Result<std::vector<PreparedDevice>> prepare(const ClaimName& name);
  Result<void> unprepare(const std::string& uid);

  // Often, from one thread: releases what is over.
  void look();
  // What the annotations of pods must be, of those that do not say what their claims have.
  [[nodiscard]] std::vector<Correction> grants() const;

 private:
  Result<std::vector<Allocation>> allocations_of(const Claim& claim) const;
  Result<Allocation> allocation_of(const Claim& claim, const std::string& request) const;
  Result<core::GrantedGpu> granted_of(const Claim& claim, const ClaimedDevice& device,
                                      bool& proportional) const;
  // Whose containers have the claim, and that none of them has another part of a GPU, too.
  Result<void> find_users(const Claim& claim, std::vector<Allocation>& allocations) const;
  Result<void> check_room(const std::vector<Allocation>& allocations) const;
  Result<void> write_view(const ClaimName& name, const std::vector<Allocation>& allocations) const;
  [[nodiscard]] const gpu::Device* gpu_of(const std::string& device, bool& whole) const;
  // Who has not said how much compute he wants shares what the others leave.
  void share_compute();
  void drop(const std::string& uid);

  const Parts parts_;
  std::mutex working_;                          // one claim at a time
  std::map<std::string, MonoTime> over_since_;  // by the claim's uid
};

}  // namespace aliquot::kube
