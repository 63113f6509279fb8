#include "kube/node/agent.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/json.hpp>
#include <chrono>
#include <future>
#include <utility>

#include "core/watchdog.hpp"
#include "kube/node/process_holder.hpp"
#include "net/http.hpp"
#include "node/monitor.hpp"

namespace aliquot::kube {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;

constexpr Millis kLookEvery = Millis(500);
constexpr Millis kSampleEvery = seconds(1);  // while there are no shares to watch
// A pod that is to start waits so long for the API server's word; then what we have heard counts.
constexpr std::chrono::seconds kFetch(2);
constexpr Millis kListing = seconds(2);
// What changes all the time is not told each time.
constexpr Millis kPublishPause = seconds(10);
// A worker that is busy with one thing for so long is stuck.
constexpr Millis kHung = seconds(90);

core::Health health_of(const gpu::Sample& sample) {
  if (sample.health == core::Health::ok && !sample.trouble.empty()) return core::Health::draining;
  return sample.health;
}

}  // namespace

Agent::Agent(AgentParts parts, AgentOptions options)
    : parts_(parts),
      options_(std::move(options)),
      looking_(parts.context),
      sampling_(parts.context) {}

Agent::~Agent() {
  // Servers of MPS that nobody uses do not stay behind.
  if (!allocations_) return;
  std::set<HolderId> active;
  for (const Allocation& allocation : allocations_->list()) active.insert(allocation.grant.holder);
  parts_.enforcer.stop(active);
}

Result<std::unique_ptr<Agent>> Agent::create(AgentParts parts, AgentOptions options) {
  auto agent = std::unique_ptr<Agent>(new Agent(parts, std::move(options)));
  TRY(agent->open());
  return agent;
}

Result<void> Agent::open() {
  const PodReader& reader = options_.reader;
  gpus_ = {.unit = reader.unit,
           .over_commit = options_.over_commit,
           .nvidia = reader.nvidia,
           .gpus = {}};
  for (const gpu::Device& device : parts_.gpus) {
    gpus_.gpus.push_back({.uuid = device.gpu.id,
                          .index = device.index,
                          .model = device.gpu.model,
                          .memory = device.gpu.memory,
                          .health = device.gpu.health,
                          .foreign = Bytes(0),
                          .mig = device.gpu.mig_profile});
  }
  kubelet_ = open_pod_resources(options_.kubelet / "pod-resources" / "kubelet.sock", kListing);
  allocations_ = TRY(Allocations::create(
      {.run = options_.run, .library = options_.library, .enforcer = parts_.enforcer}));
  plugin_ = std::make_unique<Plugin>(
      Plugin::Parts{.node = reader.node,
                    .view = view_settings(),
                    .resources = served(reader.names, reader.nvidia, options_.gpushare),
                    .over_commit = options_.over_commit,
                    .kubelet = *kubelet_,
                    .pods = pods_,
                    .allocations = *allocations_,
                    .clock = parts_.clock,
                    .fetch = [this](const std::string& space, const std::string& name) {
                      return fetch(space, name);
                    }});
  if (options_.dra) {
    open_driver();
  } else {
    servers_ = std::make_unique<PluginServers>(*plugin_, options_.kubelet / "device-plugins");
  }
  events_ = std::make_unique<Events>(
      parts_.context, parts_.api, parts_.clock,
      EventsOptions{.component = "aliquot-kube-node", .host = reader.node});
  const std::string name = net::percent_encode(reader.node);
  pod_watch_ = std::make_unique<Reflector>(
      parts_.context, parts_.api,
      ReflectorOptions{.target = "/api/v1/pods?fieldSelector=spec.nodeName%3D" + name},
      [this](EventType type, const json::object& object) { hear_pod(type, object); },
      [this] { pods_.set_synced(); });
  node_watch_ = std::make_unique<Reflector>(
      parts_.context, parts_.api,
      ReflectorOptions{.target = "/api/v1/nodes?fieldSelector=metadata.name%3D" + name},
      [this](EventType type, const json::object& object) {
        if (type != EventType::deleted) hear_node(object);
      });
  return {};
}

ViewSettings Agent::view_settings() const {
  return {.run = options_.run,
          .gpus = parts_.gpus,
          .unit = options_.reader.unit,
          .library = !options_.library.empty(),
          .standin = options_.standin,
          .device_nodes = common_device_nodes()};
}

void Agent::start() {
  {
    const std::lock_guard lock(mutex_);
    looked_ = sampled_ = parts_.clock.mono();
  }
  pod_watch_->start();
  node_watch_->start();
  if (slices_) slices_->start();
  look();
  sample();
}

void Agent::after(asio::steady_timer& timer, Millis pause, void (Agent::*next)()) {
  timer.expires_after(std::chrono::milliseconds(pause.value()));
  timer.async_wait([this, next](const boost::system::error_code& error) {
    if (!error) (this->*next)();
  });
}

// ---- the API server
// ------------------------------------------------------------------------------

void Agent::hear_pod(EventType type, const json::object& object) {
  if (type == EventType::deleted) {
    const PodName id{std::string(meta_text(object, "namespace")),
                     std::string(meta_text(object, "name")), std::string(meta_text(object, "uid"))};
    pods_.remove(id);
    patched_.erase(id.uid);
    return;
  }
  auto pod = options_.reader.read(object);
  if (!pod) {
    spdlog::warn("a pod cannot be read: {}", pod.error().message);
    return;
  }
  pods_.put(std::move(*pod));
}

void Agent::hear_node(const json::object& object) {
  const auto* meta = find_object(object, "metadata");
  const auto* annotations = meta == nullptr ? nullptr : find_object(*meta, "annotations");
  node_uid_ = meta_text(object, "uid");
  published_ = annotations == nullptr
                   ? std::string()
                   : std::string(find_text(*annotations, options_.reader.names.gpus()));
  publish();
}

void Agent::publish() {
  if (!published_ || publishing_) return;
  NodeGpus wanted;
  {
    const std::lock_guard lock(mutex_);
    wanted = gpus_;
  }
  const std::string text = write_node_gpus(wanted);
  if (text == *published_) return;
  const auto calm = [](NodeGpus gpus) {
    for (NodeGpu& gpu : gpus.gpus) gpu.foreign = Bytes(0);
    return gpus;
  };
  const auto before = read_node_gpus(*published_);
  const MonoTime now = parts_.clock.mono();
  if (before && calm(*before) == calm(wanted) && now < publish_after_) return;
  publish_after_ = now + kPublishPause;
  publishing_ = true;
  const json::object body{{"metadata", {{"annotations", {{options_.reader.names.gpus(), text}}}}}};
  parts_.api.send({.method = "PATCH",
                   .target = object_path("api/v1", {}, "nodes", options_.reader.node),
                   .body = json::serialize(body),
                   .content_type = std::string(kMergePatch)},
                  guarded([this](const Result<ApiResponse>& response) {
                    publishing_ = false;
                    const auto object = object_of(response);
                    // The next look tries again.
                    say_once(object ? ""
                                    : fmt::format("cannot say what GPUs node {} has: {}",
                                                  options_.reader.node, object.error().message));
                    if (object) hear_node(*object);
                  }));
}

// What is in the way for long is said once.
void Agent::say_once(const std::string& trouble) {
  if (!trouble.empty() && trouble != said_) spdlog::warn("{}", trouble);
  said_ = trouble;
}

void Agent::post(std::function<void()> task) {
  asio::post(parts_.context, guarded(std::move(task)));
}

Result<json::object> Agent::get(const std::string& target) {
  auto promise = std::make_shared<std::promise<Result<json::object>>>();
  auto future = promise->get_future();
  // Nothing of ours in it: who waits may have given up, and we may be gone, before it is answered.
  asio::post(parts_.context, [&api = parts_.api, target, promise] {
    api.send({.target = target}, [promise](const Result<ApiResponse>& response) {
      promise->set_value(object_of(response));
    });
  });
  if (future.wait_for(kFetch) != std::future_status::ready) {
    return fail(Error::Code::unavailable, "the API server takes its time");
  }
  return future.get();
}

Result<NodePod> Agent::fetch(const std::string& space, const std::string& name) {
  return options_.reader.read(TRY(get(object_path("api/v1", space, "pods", name))));
}

void Agent::patch_pod(const NodePodPtr& pod, const AnnotationPatch& patch,
                      const std::string& reason, const std::string& why) {
  const PodName id = pod->pod.id;
  // What was sent for this version of the pod is under way, or its event is.
  const auto sent = patched_.find(id.uid);
  if (sent != patched_.end() && sent->second == pod->pod.resource_version) return;
  patched_[id.uid] = pod->pod.resource_version;
  parts_.api.send({.method = "PATCH",
                   .target = object_path("api/v1", id.space, "pods", id.name),
                   .body = annotation_patch(patch, id.uid, pod->pod.resource_version),
                   .content_type = std::string(kMergePatch)},
                  guarded([this, id, reason, why](const Result<ApiResponse>& response) {
                    const auto object = object_of(response);
                    if (object) {
                      if (!why.empty()) {
                        spdlog::info("pod {}/{}: {}", id.space, id.name, why);
                        events_->tell({.name_space = id.space, .name = id.name, .uid = id.uid},
                                      Severity::normal, reason, why);
                      }
                      return;
                    }
                    patched_.erase(id.uid);  // tried again with what is there then
                    if (object.error().code == Error::Code::failed_state) return;
                    say_once(fmt::format("pod {}/{}: cannot write what it holds: {}", id.space,
                                         id.name, object.error().message));
                  }));
}

void Agent::correct(const std::vector<Correction>& corrections, const std::string& reason) {
  NodeGpus gpus;
  {
    const std::lock_guard lock(mutex_);
    gpus = gpus_;
  }
  for (const Correction& correction : corrections) {
    const NodePod& pod = *correction.pod;
    AnnotationPatch patch = grant_annotations(pod.pod.id, pod.request, correction.grant, gpus,
                                              options_.reader.names, options_.reader.key);
    std::vector<std::string> words;
    for (const auto& [container, granted] : correction.grant.containers) {
      for (const core::GrantedGpu& gpu : granted) {
        words.push_back(gpu.whole ? fmt::format("{} has GPU {}", container, gpu.gpu)
                                  : fmt::format("{} has {} MiB of GPU {}", container,
                                                gpu.portion.memory / mib(1), gpu.gpu));
      }
    }
    patch_pod(correction.pod, patch, reason,
              fmt::format("the grant now says what it was given: {}", fmt::join(words, ", ")));
  }
}

// Tells gpushare's users that the pod has what it was promised.
void Agent::mark_assigned() {
  std::set<std::string> held;
  for (const Allocation& allocation : allocations_->list()) held.insert(allocation.pod.uid);
  for (const NodePodPtr& pod : pods_.all()) {
    const std::string name(kGpushareAssigned);
    const auto* assigned = pod->pod.annotation(name);
    if (assigned == nullptr || *assigned != "false" || !held.contains(pod->pod.id.uid)) continue;
    patch_pod(pod, {{name, "true"}}, "", "");
  }
}

void Agent::tell(const std::vector<node::Escape>& escapes, const std::string& reason) {
  for (const node::Escape& escape : escapes) {
    spdlog::warn("{}: {}", escape.job, escape.what);
    const auto allocation = allocations_->find(escape.job);
    if (!allocation) continue;
    const PodName& pod = allocation->pod;
    events_->tell({.name_space = pod.space, .name = pod.name, .uid = pod.uid}, Severity::warning,
                  reason, fmt::format("container {}: {}", allocation->container, escape.what));
  }
}

// ---- the kubelet
// ---------------------------------------------------------------------------------

void Agent::look() {
  if (!std::exchange(looking_now_, true)) {
    worker_.post([this] {
      look_at_kubelet();
      post([this, corrections = plugin_->corrections()] {
        looking_now_ = false;
        correct(corrections, "GpuCorrected");
        if (driver_) correct(driver_->grants(), "GpuAssigned");
        mark_assigned();
        publish_slices();
      });
    });
  }
  after(looking_, kLookEvery, &Agent::look);
}

void Agent::look_at_kubelet() {
  const auto served = options_.dra ? driver_server_->look() : servers_->look();
  const std::string trouble = served ? "" : served.error().message;
  {
    const std::lock_guard lock(mutex_);
    registered_ = bool(served);
    if (std::exchange(kubelet_trouble_, trouble) != trouble && !trouble.empty()) {
      spdlog::warn("{}", trouble);
    }
  }
  plugin_->look();
  if (driver_) driver_->look();
  parts_.enforcer.tick();
  const std::lock_guard lock(mutex_);
  looked_ = parts_.clock.mono();
}

// ---- the GPUs
// ------------------------------------------------------------------------------------

void Agent::sample() {
  if (!std::exchange(sampling_now_, true)) {
    monitor_.post([this] {
      look_at_gpus();
      post([this] {
        sampling_now_ = false;
        publish();
      });
    });
  }
  after(sampling_, parts_.enforcer.watching() ? core::kWatchInterval : kSampleEvery,
        &Agent::sample);
}

void Agent::look_at_gpus() {
  const auto held = allocations_->list();
  std::vector<node::RunningJob> running;
  for (const Allocation& allocation : held) {
    std::vector<GpuId> gpus;
    for (const core::GrantedGpu& gpu : allocation.grant.gpus) gpus.push_back(gpu.gpu);
    running.push_back({.id = allocation.grant.holder,
                       .uid = allocation.grant.owner,
                       .mark = {},
                       .gpus = std::move(gpus),
                       .gid = allocation.grant.group});
  }
  const ProcessHolders holders(held, pods_.all());
  const node::FencedJob fenced = holders_among(holders);
  auto views = node::look_at_gpus(parts_.devices, running, fenced, false);
  if (!views) {
    spdlog::warn("cannot sample the GPUs: {}", views.error().message);
  } else {
    const auto members = node::members_by(running, fenced, false);
    auto escapes = parts_.enforcer.inspect(*views, members);
    auto broken = faults_.look(*views, running, members);
    if (!escapes.empty() || !broken.empty()) {
      post([this, escapes = std::move(escapes), broken = std::move(broken)] {
        tell(escapes, "GpuLimitExceeded");
        tell(broken, "GpuBroken");
      });
    }
    std::map<GpuId, core::Health> health;
    {
      const std::lock_guard lock(mutex_);
      for (const node::GpuView& view : *views) {
        health[view.sample.id] = health_of(view.sample);
        Bytes foreign(0);
        for (const node::GpuProcess& process : view.processes) {
          if (!process.holder) foreign += process.memory;
        }
        for (NodeGpu& gpu : gpus_.gpus) {
          if (gpu.uuid != view.sample.id) continue;
          gpu.health = health[view.sample.id];
          // In steps, or it would be another one each time.
          gpu.foreign = mib(256) * ((foreign + mib(256) - Bytes(1)) / mib(256));
        }
      }
      views_ = std::move(*views);
    }
    plugin_->set_health(health);
  }
  const std::lock_guard lock(mutex_);
  sampled_ = parts_.clock.mono();
}

// ---- for people and probes
// -----------------------------------------------------------------------

bool Agent::alive() const {
  const std::lock_guard lock(mutex_);
  const MonoTime now = parts_.clock.mono();
  return now - looked_ < kHung && now - sampled_ < kHung;
}

bool Agent::ready() const {
  const std::lock_guard lock(mutex_);
  return registered_ && pods_.synced();
}

void Agent::metrics(std::function<void(std::string)> done) {
  monitor_.post(
      [this, done = std::move(done)] { post([done, text = write_metrics()] { done(text); }); });
}

}  // namespace aliquot::kube
