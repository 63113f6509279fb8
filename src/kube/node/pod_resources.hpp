// Who holds which devices, as the kubelet says: its podresources socket. That is the truth on a
// node. Init containers are not in it, but for sidecars.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "kube/node/resources.hpp"

namespace aliquot::kube {

struct ContainerDevices {
  std::string space;
  std::string pod;
  std::string container;
  std::map<std::string, DeviceIds> devices;  // by the resource's name
  std::vector<std::string> claims = {};      // that it names, of whatever driver
  friend bool operator==(const ContainerDevices&, const ContainerDevices&) = default;
};

class PodResources {
 public:
  PodResources() = default;
  PodResources(const PodResources&) = delete;
  PodResources& operator=(const PodResources&) = delete;
  virtual ~PodResources() = default;

  // Of containers without devices and claims nothing is said. From any thread.
  virtual Result<std::vector<ContainerDevices>> list() = 0;
};

// The kubelet may be away: then each call says so, after at most this long.
std::unique_ptr<PodResources> open_pod_resources(const std::filesystem::path& socket,
                                                 Millis patience);

}  // namespace aliquot::kube
