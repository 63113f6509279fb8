// The device plugin on the wire: a gRPC server for each resource, on a socket of its own in the
// kubelet's device-plugins folder, and its registration with the kubelet. A kubelet that starts
// removes all sockets there and has forgotten all plugins: then all are made anew.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "kube/node/plugin.hpp"

namespace aliquot::kube {

// One resource, served. From any thread.
class ResourceServer {
 public:
  // An existing socket is replaced.
  static Result<std::unique_ptr<ResourceServer>> listen(Plugin& plugin, const Resource& resource,
                                                        const std::filesystem::path& socket);
  virtual ~ResourceServer() = default;
  // Has the kubelet told of what changed.
  virtual void changed() = 0;

 protected:
  ResourceServer() = default;
};

// Tells the kubelet behind this socket of a resource.
Result<void> register_resource(const std::filesystem::path& kubelet, const Resource& resource,
                               Millis patience);

class PluginServers {
 public:
  PluginServers(Plugin& plugin, std::filesystem::path folder);
  PluginServers(const PluginServers&) = delete;
  PluginServers& operator=(const PluginServers&) = delete;
  ~PluginServers();

  // Often, from one thread: serves and registers where the kubelet's socket is another than before,
  // or one of ours is gone. An error: it is to be tried again.
  Result<void> look();
  [[nodiscard]] bool registered() const { return known_.has_value(); }

 private:
  // What tells a socket from another one at its place.
  using Identity = std::tuple<dev_t, ino_t, std::int64_t>;
  [[nodiscard]] std::optional<Identity> identity() const;
  [[nodiscard]] bool served() const;

  Plugin& plugin_;
  std::filesystem::path folder_;
  std::optional<Identity> known_;  // the kubelet that we are registered with
  struct Servers;
  std::shared_ptr<Servers> servers_;
};

}  // namespace aliquot::kube
