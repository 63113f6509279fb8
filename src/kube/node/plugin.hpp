// What the device plugin answers and does, without the wire (plugin_server.hpp). One for all
// resources of the node: what is taken by one is gone for the others.
//
// Which devices are taken, and by whom, is the kubelet's to say. We know it from three sides: what
// we were asked to allocate a moment ago, what podresources lists, and what containers are held to.
// A GPU that is held whole has no healthy units, one with units taken is not a healthy whole GPU;
// devices that are held stay healthy, or the kubelet would count them off its node.
//
// A container is released when neither the API server nor the kubelet has it any more: each of them
// alone can be wrong for a while (a kubelet that has just started lists nobody).
//
// From any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "kube/node/allocations.hpp"
#include "kube/node/container_view.hpp"
#include "kube/node/corrections.hpp"
#include "kube/node/node_pods.hpp"
#include "kube/node/pod_resources.hpp"
#include "kube/node/preferred.hpp"

namespace aliquot::kube {

struct PluginDevice {
  std::string id;
  bool healthy = true;
  friend bool operator==(const PluginDevice&, const PluginDevice&) = default;
};

class Plugin {
 public:
  struct Parts {
    std::string node;
    ViewSettings view;
    std::vector<Resource> resources;
    Compute over_commit = kWholeGpu;
    PodResources& kubelet;
    const NodePods& pods;
    Allocations& allocations;
    const Clock& clock;
    // The pod as the API server has it now; it may take a moment, and fail.
    std::function<Result<NodePod>(const std::string& space, const std::string& name)> fetch;
  };
  explicit Plugin(Parts parts);

  [[nodiscard]] const std::vector<Resource>& resources() const { return parts_.resources; }

  // All devices of a resource, in an order that stays.
  [[nodiscard]] std::vector<PluginDevice> devices(const Resource& resource) const;
  // Changes with what devices() says.
  [[nodiscard]] std::uint64_t version() const;
  // Called, from any thread, after version() has changed.
  void on_change(std::function<void()> call);

  [[nodiscard]] DeviceIds preferred(const Resource& resource, const Wanted& wanted);
  // Never fails: that would be the end of the pod.
  [[nodiscard]] ContainerView allocate(const Resource& resource, const DeviceIds& ids);
  // An error is said to the kubelet, which tries again.
  Result<void> pre_start(const Resource& resource, const DeviceIds& ids);

  void set_health(const std::map<GpuId, core::Health>& health);
  // Often, from one thread: looks what the kubelet says, and releases what is over.
  void look();
  // What the annotations of pods must be, as of the last look.
  [[nodiscard]] std::vector<Correction> corrections() const;

 private:
  // Devices that we have just been asked for; nobody lists them yet.
  struct Handed {
    DeviceIds ids;
    MonoTime since;
    std::optional<std::string> candidate;  // whom they were offered for
  };
  struct Found {  // a container that is about to start
    NodePodPtr pod;
    std::string container;
  };

  [[nodiscard]] Result<Found> find_container(const Resource& resource, const DeviceIds& ids,
                                             const std::vector<ContainerDevices>& listed) const;
  // Of the pod's init containers the first that may have these devices; one that has started before
  // only where there is no other and nobody else has them.
  [[nodiscard]] const ContainerNeed* find_init(const NodePod& pod, const Resource& resource,
                                               std::size_t size, bool again) const;
  [[nodiscard]] NodePodPtr find_pod(const std::string& space, const std::string& name) const;
  [[nodiscard]] Result<Allocation> allocation_of(const Resource& resource, const DeviceIds& ids,
                                                 const Found& found) const;
  [[nodiscard]] core::Portion portion_of(const NodePod& pod, const ContainerNeed* need,
                                         const std::string& container, const gpu::Device& gpu,
                                         std::int64_t units) const;
  [[nodiscard]] const gpu::Device* gpu_of(const GpuId& id) const;
  void note_listed(const std::vector<ContainerDevices>& listed);
  void recount();  // with mutex_ held
  [[nodiscard]] Truth truth_of(const std::vector<ContainerDevices>& listed) const;

  Parts parts_;
  mutable std::mutex mutex_;
  std::vector<ContainerDevices> listed_;                         // when the kubelet last said
  std::map<std::string, std::map<std::string, Handed>> handed_;  // by resource and digest
  std::map<std::string, DeviceIds> offered_;            // by candidate: what was last offered to it
  std::map<std::string, std::set<std::string>> taken_;  // by resource
  std::set<GpuId> claimed_;                             // that claims have something of
  // Of each pod, by its uid, the containers that were about to start once: an init container that
  // was is over when its devices come again, whatever the API server knows of it by then.
  std::map<std::string, std::set<std::string>> started_;
  std::map<HolderId, MonoTime> over_since_;  // pods that have ended and are still listed
  std::map<GpuId, core::Health> health_;
  std::vector<Correction> corrections_;
  std::uint64_t version_ = 0;
  std::function<void()> on_change_;
};

}  // namespace aliquot::kube
