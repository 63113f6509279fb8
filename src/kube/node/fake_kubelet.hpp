// A node in memory, for tests of the device plugin: a kubelet that allocates as the real one does
// (it asks for a preference where there is a choice, and takes it), pods with grants as the
// scheduler writes them, and a plugin that can be killed and started again on what it left behind.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "gpu/fake_devices.hpp"
#include "gpu/fake_mps.hpp"
#include "kube/model/node_gpus.hpp"
#include "kube/node/plugin.hpp"
#include "node/testing.hpp"

namespace aliquot::kube {

class FakePodResources final : public PodResources {
 public:
  Result<std::vector<ContainerDevices>> list() override {
    if (away) return fail(Error::Code::unavailable, "no kubelet");
    return listed;
  }
  std::vector<ContainerDevices> listed;
  bool away = false;
};

inline std::string fake_uuid(int gpu) {
  return fmt::format("GPU-00000000-0000-0000-0000-00000000000{}", gpu);
}

// What a container of a test pod asks for.
struct Ask {
  std::string name;
  std::int64_t units = 0;  // 0: `whole` GPUs
  std::int64_t whole = 0;
  Role role = Role::app;
  std::optional<Uid> user = {};
};

class FakeNode {
 public:
  explicit FakeNode(int gpus = 3, std::int64_t units = 8, bool with_mps = false)
      : units_(units), with_mps_(with_mps) {
    for (int i = 0; i < gpus; ++i) {
      gpus_.push_back(
          {.gpu = {.id = GpuId(fake_uuid(i)), .model = "a100", .memory = gib(units) + mib(300)},
           .index = i,
           .minor = i,
           .capability = 8});
    }
    std::filesystem::create_directories(run());
    std::filesystem::create_directories(library());
    std::ofstream(library() / "libaliquot.so") << "";
    start();
  }

  [[nodiscard]] std::filesystem::path run() const { return folder_.path() / "run"; }
  [[nodiscard]] std::filesystem::path library() const { return folder_.path() / "lib"; }
  [[nodiscard]] const std::vector<gpu::Device>& gpus() const { return gpus_; }

  // Also what happens after kill -9: nothing of the old one is told that it ends.
  void start() {
    plugin_.reset();
    allocations_.reset();
    enforcer_.reset();
    auto mps = std::make_unique<gpu::FakeMps>();
    if (mps_ != nullptr) mps->daemons = daemons_;  // they go on without us
    mps_ = mps.get();
    node::EnforcerOptions options{
        .run = run(),
        .library = library() / "libaliquot.so",
        .facts = {.driver_version = "550", .no_mps = with_mps_ ? "" : "none here"},
        .mps = nullptr,
        .clock = &clock_,
        .walled = true};
    for (const gpu::Device& gpu : gpus_) options.facts.capabilities.emplace(gpu.gpu.id, 8);
    if (with_mps_) options.mps = std::move(mps);
    if (!with_mps_) mps_ = nullptr;
    auto made = node::Enforcer::create(std::move(options));
    ASSERT_TRUE(made) << made.error().message;
    enforcer_ = std::move(*made);
    auto allocations =
        Allocations::create({.run = run(), .library = library(), .enforcer = *enforcer_});
    ASSERT_TRUE(allocations) << allocations.error().message;
    allocations_ = std::move(*allocations);
    plugin_ = std::make_unique<Plugin>(
        Plugin::Parts{.node = "n1",
                      .view = {.run = run(), .gpus = gpus_, .unit = gib(1), .device_nodes = {}},
                      .resources = served(names_, true, true),
                      .kubelet = kubelet_,
                      .pods = *pods_,
                      .allocations = *allocations_,
                      .clock = clock_,
                      .fetch = {}});
  }
  // Before start(): servers of MPS outlive us.
  void kill() {
    if (mps_ != nullptr) daemons_ = mps_->daemons;
    start();
  }

  // A pod that is bound here. grants: by container, which GPUs; none: it came without our
  // scheduler.
  NodePodPtr add_pod(const std::string& name, const std::vector<Ask>& asks,
                     const std::map<std::string, std::vector<int>>& grants) {
    NodePod pod;
    pod.pod.id = {"default", name, fmt::format("uid-{}-{}", name, ++serial_)};
    pod.pod.node = "n1";
    pod.pod.phase = "Pending";
    pod.pod.resource_version = std::to_string(++serial_);
    for (const Ask& ask : asks) {
      ContainerNeed need{.container = ask.name, .role = ask.role, .gpus = {}, .resource = {}};
      if (ask.units > 0) {
        need.units = ask.units;
        need.gpus.what = core::Amounts{.memory = gib(ask.units), .compute = {}};
        need.resource = names_.gpu_mem();
      } else {
        need.gpus = {.count = ask.whole, .what = core::WholeGpu{}, .models = {}};
        need.resource = names_.gpu();
      }
      pod.request.needs.push_back(std::move(need));
      pod.containers[ask.name].user = ask.user;
    }
    if (!grants.empty()) {
      clock_.advance(Millis(1));
      pod.grant = PodGrant{"n1", clock_.wall(), {}};
      for (const Ask& ask : asks) {
        for (const int gpu : grants.at(ask.name)) {
          pod.grant->containers[ask.name].push_back(granted(ask.units, gpu));
        }
      }
    }
    pods_->put(pod);
    return pods_->find("default", name);
  }
  [[nodiscard]] core::GrantedGpu granted(std::int64_t units, int gpu) const {
    const gpu::Device& device = gpus_[static_cast<std::size_t>(gpu)];
    if (units == 0) return {device.gpu.id, {device.gpu.memory, kWholeGpu}, true};
    return {device.gpu.id,
            {gib(units), scale_down(kWholeGpu, gib(units).value(), device.gpu.memory.value())},
            false};
  }

  // The kubelet takes the pod in. False: it has too few; it has nothing of the pod then, and does
  // not try again.
  bool admit(const NodePodPtr& pod) {
    if (allocate_all(pod)) return true;
    forget(pod);
    return false;
  }
  // Whatever had made a pod that was turned away makes another one, placed as that was.
  NodePodPtr make_again(const NodePodPtr& pod) {
    NodePod again = *pods_->find(pod->pod.id.space, pod->pod.id.name);
    change(pod, [](NodePod& old) { old.pod.phase = "Failed"; });
    plugin_->look();
    pods_->remove(pod->pod.id);
    again.pod.id.uid = fmt::format("uid-{}-{}", again.pod.id.name, ++serial_);
    again.pod.resource_version = std::to_string(++serial_);
    clock_.advance(Millis(1));
    if (again.grant) again.grant->assumed = clock_.wall();
    pods_->put(again);
    return pods_->find(again.pod.id.space, again.pod.id.name);
  }
  // Init containers first, whose devices serve the others again.
  bool allocate_all(const NodePodPtr& pod) {
    std::map<std::string, std::set<std::string>> reusable;  // by resource
    std::map<std::string, ContainerDevices> got;
    for (const ContainerNeed& need : pod->request.needs) {
      const Resource resource{need.resource, need.whole() ? Kind::whole : Kind::memory};
      const auto size = static_cast<std::size_t>(need.whole() ? need.gpus.count : need.units);
      DeviceIds ids(reusable[need.resource].begin(), reusable[need.resource].end());
      if (ids.size() > size) ids.resize(size);
      if (ids.size() < size) {
        DeviceIds available = ids;
        for (const PluginDevice& device : plugin_->devices(resource)) {
          if (device.healthy && !allocated_.contains(device.id) &&
              std::ranges::find(available, device.id) == available.end()) {
            available.push_back(device.id);
          }
        }
        if (available.size() < size) return false;
        if (available.size() > size) {
          const auto preferred = plugin_->preferred(resource, {available, ids, size});
          // As the kubelet does: what is available of it, then whatever there is.
          for (const std::string& id : preferred) {
            if (ids.size() < size && std::ranges::find(available, id) != available.end() &&
                std::ranges::find(ids, id) == ids.end()) {
              ids.push_back(id);
            }
          }
        }
        for (const std::string& id : available) {
          if (ids.size() < size && std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
        }
      }
      ids = sorted(std::move(ids));
      (void)plugin_->allocate(resource, ids);
      for (const std::string& id : ids) allocated_[id] = pod->pod.id.uid;
      if (need.role == Role::init) {
        reusable[need.resource].insert(ids.begin(), ids.end());
      } else {
        for (const std::string& id : ids) reusable[need.resource].erase(id);
        kubelet_.listed.push_back(
            {pod->pod.id.space, pod->pod.id.name, need.container, {{need.resource, ids}}});
      }
      ids_[{pod->pod.id.uid, need.container}] = ids;
    }
    return true;
  }
  [[nodiscard]] const DeviceIds& ids(const NodePodPtr& pod, const std::string& container) const {
    return ids_.at({pod->pod.id.uid, container});
  }
  [[nodiscard]] GpuId gpu(const NodePodPtr& pod, const std::string& container) const {
    return parse_device_id(ids(pod, container).front())->first;
  }
  Result<void> start_container(const NodePodPtr& pod, const std::string& container) {
    const ContainerNeed* need = pod->need(container);
    return plugin_->pre_start({need->resource, need->whole() ? Kind::whole : Kind::memory},
                              ids(pod, container));
  }
  void change(const NodePodPtr& pod, const std::function<void(NodePod&)>& how) {
    NodePod changed = *pods_->find(pod->pod.id.space, pod->pod.id.name);
    how(changed);
    changed.pod.resource_version = std::to_string(++serial_);
    pods_->put(std::move(changed));
  }
  // The kubelet has nothing of it any more.
  void forget(const NodePodPtr& pod) {
    std::erase_if(kubelet_.listed,
                  [&](const ContainerDevices& one) { return one.pod == pod->pod.id.name; });
    std::erase_if(allocated_, [&](const auto& one) { return one.second == pod->pod.id.uid; });
  }
  // Writes what the annotations must be, as the agent does.
  std::size_t correct() {
    const auto corrections = plugin_->corrections();
    for (const Correction& one : corrections) {
      const auto now = pods_->find(one.pod->pod.id.space, one.pod->pod.id.name);
      if (now == nullptr || now->pod.resource_version != one.pod->pod.resource_version) continue;
      change(one.pod, [&](NodePod& pod) { pod.grant = one.grant; });
    }
    return corrections.size();
  }
  // Which GPUs the pod's annotation says, by container.
  [[nodiscard]] std::map<std::string, std::vector<GpuId>> says(const NodePodPtr& pod) const {
    std::map<std::string, std::vector<GpuId>> gpus;
    const auto now = pods_->find(pod->pod.id.space, pod->pod.id.name);
    if (now == nullptr || !now->grant) return gpus;
    for (const auto& [name, granted] : now->grant->containers) {
      for (const auto& gpu : granted) gpus[name].push_back(gpu.gpu);
    }
    return gpus;
  }
  [[nodiscard]] std::set<std::string> holders() const {
    std::set<std::string> all;
    for (const Allocation& one : allocations_->list()) all.insert(one.grant.holder.value());
    return all;
  }
  [[nodiscard]] std::size_t folders(const std::string& name) const {
    std::error_code error;
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(run() / name, error)) {
      if (entry.exists()) ++count;
    }
    return count;
  }

  Plugin& plugin() { return *plugin_; }
  Allocations& allocations() { return *allocations_; }
  node::Enforcer& enforcer() { return *enforcer_; }
  FakePodResources& kubelet() { return kubelet_; }
  NodePods& pods() { return *pods_; }
  ManualClock& clock() { return clock_; }
  [[nodiscard]] const Names& names() const { return names_; }
  [[nodiscard]] std::int64_t units() const { return units_; }
  gpu::FakeMps* mps() { return mps_; }

 private:
  test::Folder folder_;
  const Names names_;
  const std::int64_t units_;
  const bool with_mps_;
  std::vector<gpu::Device> gpus_;
  ManualClock clock_;
  FakePodResources kubelet_;
  std::unique_ptr<NodePods> pods_ = std::make_unique<NodePods>();
  std::map<std::filesystem::path, gpu::FakeMps::Daemon> daemons_;
  gpu::FakeMps* mps_ = nullptr;
  std::unique_ptr<node::Enforcer> enforcer_;
  std::unique_ptr<Allocations> allocations_;
  std::unique_ptr<Plugin> plugin_;
  std::map<std::string, std::string> allocated_;                  // id → pod's uid
  std::map<std::pair<std::string, std::string>, DeviceIds> ids_;  // by uid and container
  std::int64_t serial_ = 0;
};

}  // namespace aliquot::kube
