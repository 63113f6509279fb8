// What a container gets to see of its GPUs: environment, mounts and device nodes. It follows from
// the devices alone, since the kubelet asks for it (Allocate) before anybody knows for whom. What
// depends on the pod lies behind links in a folder named after the devices, which are set before
// the container is made (PreStartContainer): the runtime follows a link that is a mount's source.
//
//   in the container               on the host
//   /run/aliquot/lib               RUN/pods/DIGEST/lib          the library; read-only
//   /etc/ld.so.preload             RUN/pods/DIGEST/lib/ld.so.preload  names it; read-only
//   /run/aliquot/grant             RUN/pods/DIGEST/grant        its grant folder; read-only
//   /run/aliquot/grant/usage       RUN/pods/DIGEST/grant/usage  the one file it writes
//   /run/aliquot/mps               RUN/pods/DIGEST/mps          its MPS server's pipes, or nothing
//   RUN/boards                     RUN/boards                   where the grant says the board is
//
// The library is not named by LD_PRELOAD: that is the user's to unset, other images have their own
// in it, and musl, which cannot load a library of glibc's, would try to. musl reads no
// ld.so.preload.
//
// Nobody but root walks through RUN/grants, so a container reaches the grant that is mounted into
// it and no other, and nobody outside reaches any: that is why `usage` can be open to whatever user
// the image runs as. A container's root is root, too: what is not its own to write is mounted
// read-only.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "gpu/devices.hpp"
#include "kube/node/resources.hpp"

namespace aliquot::kube {

struct MountPoint {
  std::string container;
  std::string host;
  bool read_only = true;
  friend bool operator==(const MountPoint&, const MountPoint&) = default;
};

struct ContainerView {
  std::map<std::string, std::string> environment;
  std::vector<MountPoint> mounts;
  std::vector<std::string> device_nodes;
  friend bool operator==(const ContainerView&, const ContainerView&) = default;
};

// The same for all containers of the node.
struct ViewSettings {
  std::filesystem::path run;  // the same path on the host and here
  std::vector<gpu::Device> gpus;
  Bytes unit = gib(1);
  bool library = true;                       // else shares are held without it
  std::optional<gpu::StandIn> standin = {};  // where its libraries are on the host
  std::vector<std::string> device_nodes;     // that every container with a GPU gets
};

inline constexpr const char* kViewRoot = "/run/aliquot";
// Beside the library.
inline constexpr const char* kPreloadFile = "ld.so.preload";

// Where the links of a container with these devices are.
std::filesystem::path links_of(const std::filesystem::path& run, const DeviceIds& ids);

// Of these GPUs, with what is behind these links; none: of whole GPUs.
ContainerView view_of_gpus(const ViewSettings& settings, const std::vector<GpuId>& gpus,
                           const std::optional<std::filesystem::path>& links);

// Whatever the ids are, there is an answer: an error here would be the end of the pod.
ContainerView view_of(const ViewSettings& settings, const Resource& resource, const DeviceIds& ids);

// Of those, the ones that are on this machine.
std::vector<std::string> common_device_nodes();

}  // namespace aliquot::kube
