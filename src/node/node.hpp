// What a machine does for grants, whatever engine makes them: its GPUs, and what holds jobs to
// their parts of them. Each daemon that runs jobs on a machine has one.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.hpp"
#include "base/units.hpp"
#include "gpu/devices.hpp"
#include "node/enforce_settings.hpp"
#include "node/enforcer.hpp"

namespace aliquot::node {

struct NodeOptions {
  std::filesystem::path run;      // grants/, boards/ and mps/ lie in it
  std::filesystem::path library;  // libaliquot.so
  std::optional<gpu::StandIn> standin = {};
  EnforceSettings enforce = {};
  Compute compute_limit = kWholeGpu;  // over that: compute is over-committed
  Cgroups* cgroups = nullptr;         // see EnforcerOptions
  bool walled = false;                // see EnforcerOptions
};

class Node {
 public:
  // A driver that is not there, or has no GPU, is none: the node then has no GPUs.
  static Result<std::unique_ptr<Node>> open(NodeOptions options);

  [[nodiscard]] gpu::Devices& devices() const { return *devices_; }
  [[nodiscard]] const std::vector<gpu::Device>& gpus() const { return gpus_; }
  [[nodiscard]] Enforcer& enforcer() const { return *enforcer_; }
  [[nodiscard]] const std::optional<gpu::StandIn>& standin() const { return standin_; }

 private:
  Node() = default;

  std::optional<gpu::StandIn> standin_;
  std::unique_ptr<gpu::Devices> devices_;
  std::vector<gpu::Device> gpus_;
  std::unique_ptr<Enforcer> enforcer_;  // looks at the devices
};

}  // namespace aliquot::node
