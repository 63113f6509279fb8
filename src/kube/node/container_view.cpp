#include "kube/node/container_view.hpp"

#include <unistd.h>

#include <algorithm>

#include "enforce/abi.h"
#include "kube/model/node_gpus.hpp"

namespace aliquot::kube {
namespace {

namespace fs = std::filesystem;

void add_standin(const ViewSettings& settings, ContainerView& view) {
  const gpu::StandIn& standin = *settings.standin;
  for (const std::string& variable : gpu::environment(standin)) {
    const auto equals = variable.find('=');
    view.environment[variable.substr(0, equals)] = variable.substr(equals + 1);
  }
  view.environment["LD_LIBRARY_PATH"] = standin.directory.string();
  view.mounts.push_back({standin.directory.string(), standin.directory.string(), true});
  view.mounts.push_back({standin.state.string(), standin.state.string(), false});
}

void add_share(const ViewSettings& settings, const fs::path& links, ContainerView& view) {
  const fs::path root = kViewRoot;
  const std::string boards = settings.run / "boards";
  view.mounts.push_back({root / "grant", links / "grant", true});
  view.mounts.push_back(
      {root / "grant" / ALIQUOT_USAGE_FILE, links / "grant" / ALIQUOT_USAGE_FILE, false});
  view.mounts.push_back({root / "mps", links / "mps", false});
  view.mounts.push_back({boards, boards, true});
  view.environment["CUDA_MPS_PIPE_DIRECTORY"] = root / "mps";
  if (!settings.library) return;
  view.mounts.push_back({root / "lib", links / "lib", true});
  view.mounts.push_back({"/etc/ld.so.preload", links / "lib" / kPreloadFile, true});
  view.environment[ALIQUOT_GRANT_VARIABLE] = root / "grant";
}

// What gpushare's own plugin says, as far as it follows from the devices.
void add_gpushare(const ViewSettings& settings, const gpu::Device& device, std::size_t units,
                  ContainerView& view) {
  view.environment[std::string(kGpushareIndex)] = std::to_string(device.index);
  view.environment["ALIYUN_COM_GPU_MEM_CONTAINER"] = std::to_string(units);
  view.environment[std::string(kGpushareDevice)] =
      std::to_string(device.gpu.memory / settings.unit);
}

}  // namespace

fs::path links_of(const fs::path& run, const DeviceIds& ids) {
  return run / "pods" / digest_of(ids);
}

ContainerView view_of_gpus(const ViewSettings& settings, const std::vector<GpuId>& gpus,
                           const std::optional<fs::path>& links) {
  ContainerView view;
  std::vector<std::string> uuids;
  for (const GpuId& gpu : gpus) uuids.push_back(gpu.value());
  const std::string visible = fmt::format("{}", fmt::join(uuids, ","));
  view.environment["CUDA_VISIBLE_DEVICES"] = visible;
  view.environment["NVIDIA_VISIBLE_DEVICES"] = visible;
  if (settings.standin) {
    add_standin(settings, view);
  } else {
    for (const gpu::Device& device : settings.gpus) {
      if (!device.minor || std::ranges::find(gpus, device.gpu.id) == gpus.end()) continue;
      view.device_nodes.push_back(fmt::format("/dev/nvidia{}", *device.minor));
    }
    view.device_nodes.insert(view.device_nodes.end(), settings.device_nodes.begin(),
                             settings.device_nodes.end());
  }
  if (links) add_share(settings, *links, view);
  return view;
}

ContainerView view_of(const ViewSettings& settings, const Resource& resource,
                      const DeviceIds& ids) {
  std::vector<GpuId> gpus;
  for (const std::string& id : sorted(ids)) {
    const auto device = parse_device_id(id);
    if (device && std::ranges::find(gpus, device->first) == gpus.end()) {
      gpus.push_back(device->first);
    }
  }
  const bool shared = resource.kind == Kind::memory;
  ContainerView view = view_of_gpus(
      settings, gpus, shared ? std::optional(links_of(settings.run, ids)) : std::nullopt);
  for (const gpu::Device& device : settings.gpus) {
    if (resource.name == kGpushareMem && gpus.size() == 1 && device.gpu.id == gpus.front()) {
      add_gpushare(settings, device, ids.size(), view);
    }
  }
  return view;
}

std::vector<std::string> common_device_nodes() {
  std::vector<std::string> nodes = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"};
  std::erase_if(nodes, [](const std::string& node) { return ::access(node.c_str(), F_OK) != 0; });
  return nodes;
}

}  // namespace aliquot::kube
