// The node agent of Kubernetes: device plugin or DRA driver, the node's word on its GPUs, and what
// holds the node's containers to their shares. It decides nothing about who gets what: the
// scheduler and the kubelet do.
//
// The API server is talked to from the loop's thread; the kubelet, the driver and processes are
// waited for on workers. Containers that run need none of them, and not the agent either.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <filesystem>
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
#include "kube/api/api.hpp"
#include "kube/api/events.hpp"
#include "kube/api/reflector.hpp"
#include "kube/model/node_gpus.hpp"
#include "kube/node/allocations.hpp"
#include "kube/node/driver.hpp"
#include "kube/node/driver_server.hpp"
#include "kube/node/node_pods.hpp"
#include "kube/node/plugin.hpp"
#include "kube/node/plugin_server.hpp"
#include "kube/node/pod_resources.hpp"
#include "kube/node/slice_publisher.hpp"
#include "kube/node/slices.hpp"
#include "node/enforcer.hpp"
#include "node/gpu_faults.hpp"
#include "node/share_meter.hpp"
#include "node/worker.hpp"

namespace aliquot::kube {

struct AgentOptions {
  PodReader reader;  // names, node, unit, key
  bool gpushare = false;
  Compute over_commit = kWholeGpu;
  std::filesystem::path run;
  std::filesystem::path kubelet = "/var/lib/kubelet";
  std::filesystem::path library;  // the folder of the copy that containers get; empty: none
  std::optional<gpu::StandIn> standin = {};
  // Claims instead of resources: the DRA driver instead of the device plugin.
  bool dra = false;
  std::filesystem::path cdi = "/var/run/cdi";
  std::string policy = "aliquot";  // in which order claims get GPUs
};

// What it works with. All of it outlives the agent.
struct AgentParts {
  boost::asio::io_context& context;
  Api& api;
  gpu::Devices& devices;
  const std::vector<gpu::Device>& gpus;
  node::Enforcer& enforcer;
  const Clock& clock;
};

class Agent {
 public:
  // Takes up the containers of the agent before it.
  static Result<std::unique_ptr<Agent>> create(AgentParts parts, AgentOptions options);
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;
  ~Agent();

  // From now on; until it is destroyed. Containers go on.
  void start();

  // For probes. Alive: the workers are not stuck. Ready: the kubelet knows us, we know the pods.
  [[nodiscard]] bool alive() const;
  [[nodiscard]] bool ready() const;
  // In Prometheus' text format, from a worker.
  void metrics(std::function<void(std::string)> done);

 private:
  Agent(AgentParts parts, AgentOptions options);
  Result<void> open();
  void open_driver();
  [[nodiscard]] ViewSettings view_settings() const;

  // On the loop, unless we are gone by then.
  void post(std::function<void()> task);
  template <class F>
  auto guarded(F task) {
    return [alive = std::weak_ptr<int>(token_), task = std::move(task)](const auto&... what) {
      if (!alive.expired()) task(what...);
    };
  }
  void hear_pod(EventType type, const boost::json::object& object);
  void hear_node(const boost::json::object& object);
  void correct(const std::vector<Correction>& corrections, const std::string& reason);
  void mark_assigned();
  void patch_pod(const NodePodPtr& pod, const AnnotationPatch& patch, const std::string& reason,
                 const std::string& why);
  void publish();
  void publish_slices();
  void say_once(const std::string& trouble);
  void tell(const std::vector<node::Escape>& escapes, const std::string& reason);
  void after(boost::asio::steady_timer& timer, Millis pause, void (Agent::*next)());
  void look();
  void sample();

  // On workers.
  Result<boost::json::object> get(const std::string& target);
  Result<Claim> fetch_claim(const ClaimName& name);
  Result<NodePod> fetch(const std::string& space, const std::string& name);
  void look_at_kubelet();
  void look_at_gpus();
  [[nodiscard]] std::string write_metrics();

  const AgentParts parts_;
  const AgentOptions options_;
  NodePods pods_;
  std::unique_ptr<PodResources> kubelet_;
  std::unique_ptr<Allocations> allocations_;
  std::unique_ptr<Plugin> plugin_;
  std::unique_ptr<PluginServers> servers_;
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<DriverServer> driver_server_;
  std::unique_ptr<SlicePublisher> slices_;
  std::unique_ptr<Reflector> pod_watch_;
  std::unique_ptr<Reflector> node_watch_;
  std::unique_ptr<Events> events_;
  node::GpuFaults faults_;  // the monitor's
  node::ShareMeter meter_;  // of whoever writes the metrics

  mutable std::mutex mutex_;
  NodeGpus gpus_;  // what the node says
  std::vector<node::GpuView> views_;
  MonoTime looked_;
  MonoTime sampled_;
  bool registered_ = false;
  std::string kubelet_trouble_;

  // The loop's.
  std::optional<std::string> published_;  // as the API server has it; absent: not known yet
  bool publishing_ = false;
  std::string node_uid_;
  std::vector<SliceGpu> sliced_;  // what the slices were last made of
  std::string sliced_for_;        // and for which node
  std::string slice_trouble_;
  std::string said_;  // what is in the way of writing
  MonoTime publish_after_ = {};
  std::map<std::string, std::string> patched_;  // pods under way or just done: resourceVersion
  bool looking_now_ = false;
  bool sampling_now_ = false;
  boost::asio::steady_timer looking_;
  boost::asio::steady_timer sampling_;
  std::shared_ptr<int> token_ = std::make_shared<int>(0);

  node::Worker worker_{"aq-kubelet"};
  node::Worker monitor_{"aq-monitor"};
};

}  // namespace aliquot::kube
