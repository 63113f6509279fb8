#include "kube/node/node_pods.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "kube/model/json_read.hpp"

namespace aliquot::kube {
namespace {

namespace json = boost::json;

std::optional<Uid> run_as(const json::object& in) {
  const auto* context = find_object(in, "securityContext");
  const auto user = context == nullptr ? std::nullopt : find_number(*context, "runAsUser");
  if (!user || *user < 0 || *user > std::numeric_limits<std::uint32_t>::max()) return std::nullopt;
  return Uid(static_cast<std::uint32_t>(*user));
}

void read_specs(const json::object& spec, std::string_view list, NodePod& pod) {
  const auto* containers = find_array(spec, list);
  if (containers == nullptr) return;
  const auto general = run_as(spec);
  for (const json::value& value : *containers) {
    const auto* container = value.if_object();
    if (container == nullptr) continue;
    const auto own = run_as(*container);
    pod.containers[std::string(find_text(*container, "name"))].user = own ? own : general;
  }
}

void read_statuses(const json::object& status, std::string_view list, NodePod& pod) {
  const auto* containers = find_array(status, list);
  if (containers == nullptr) return;
  for (const json::value& value : *containers) {
    const auto* container = value.if_object();
    if (container == nullptr) continue;
    const auto found = pod.containers.find(std::string(find_text(*container, "name")));
    if (found == pod.containers.end()) continue;
    // "containerd://4f0c…"
    const std::string_view id = find_text(*container, "containerID");
    const auto slashes = id.find("://");
    if (slashes != std::string_view::npos) found->second.id = id.substr(slashes + 3);
    const auto* state = find_object(*container, "state");
    const auto* ended = state == nullptr ? nullptr : find_object(*state, "terminated");
    // An init container that has done its work is not started again while its pod lives.
    found->second.finished = ended != nullptr && find_number(*ended, "exitCode") == 0;
  }
}

}  // namespace

const ContainerNeed* NodePod::need(const std::string& container) const {
  const auto found = std::ranges::find(request.needs, container, &ContainerNeed::container);
  return found == request.needs.end() ? nullptr : &*found;
}

const std::vector<core::GrantedGpu>* NodePod::granted(const std::string& container) const {
  if (!grant) return nullptr;
  const auto found = grant->containers.find(container);
  return found == grant->containers.end() ? nullptr : &found->second;
}

HolderId holder_of(const PodName& pod, const std::string& container) {
  return HolderId("pod:" + pod.uid + "/" + container);
}

Result<NodePod> PodReader::read(const json::object& object) const {
  NodePod read;
  read.pod = TRY(read_pod(object, names));
  if (auto request = read_request(read.pod, names, unit, nvidia)) read.request = *request;
  if (auto granted = kube::granted(read.pod, names, key); granted && granted->node == node) {
    read.grant = std::move(*granted);
  }
  if (const auto* spec = find_object(object, "spec")) {
    read_specs(*spec, "initContainers", read);
    read_specs(*spec, "containers", read);
  }
  for (auto& [name, claims] : claims_of(object)) read.containers[name].claims = std::move(claims);
  if (const auto* status = find_object(object, "status")) {
    read_statuses(*status, "initContainerStatuses", read);
    read_statuses(*status, "containerStatuses", read);
  }
  return read;
}

void NodePods::put(NodePod pod) {
  const std::pair name(pod.pod.id.space, pod.pod.id.name);
  auto made = std::make_shared<const NodePod>(std::move(pod));
  const std::lock_guard lock(mutex_);
  pods_[name] = std::move(made);
}

void NodePods::remove(const PodName& pod) {
  const std::lock_guard lock(mutex_);
  const auto found = pods_.find({pod.space, pod.name});
  // The next one of that name may be there already.
  if (found != pods_.end() && found->second->pod.id.uid == pod.uid) pods_.erase(found);
}

void NodePods::set_synced() {
  const std::lock_guard lock(mutex_);
  synced_ = true;
}

bool NodePods::synced() const {
  const std::lock_guard lock(mutex_);
  return synced_;
}

NodePodPtr NodePods::find(const std::string& space, const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = pods_.find({space, name});
  return found == pods_.end() ? nullptr : found->second;
}

std::vector<NodePodPtr> NodePods::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<NodePodPtr> all;
  for (const auto& [name, pod] : pods_) all.push_back(pod);
  return all;
}

}  // namespace aliquot::kube
