#include "kube/node/corrections.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

namespace aliquot::kube {
namespace {

using Granted = std::vector<core::GrantedGpu>;

std::vector<GpuId> gpus_of(const Granted& granted) {
  std::vector<GpuId> gpus;
  for (const core::GrantedGpu& one : granted) gpus.push_back(one.gpu);
  std::ranges::sort(gpus);
  return gpus;
}

bool same_size(const Granted& one, const Granted& other) {
  return one.size() == other.size() && !one.empty() && one.front().whole == other.front().whole &&
         (one.front().whole || one.front().portion.memory == other.front().portion.memory);
}

// The same portions on these GPUs.
Granted moved_to(Granted granted, const Granted& where) {
  for (std::size_t i = 0; i < granted.size() && i < where.size(); ++i) {
    granted[i].gpu = where[i].gpu;
    if (granted[i].whole) granted[i].portion = where[i].portion;
  }
  return granted;
}

// Init containers, of which the kubelet says nothing, are where the pod's others are.
void add_missing(const NodePod& pod, ContainerGrants& containers) {
  for (const ContainerNeed& need : pod.request.needs) {
    if (containers.contains(need.container)) continue;
    for (const auto& [name, granted] : containers) {
      if (granted.empty() || granted.front().whole != need.whole()) continue;
      Granted own = granted;
      if (const auto* amounts = std::get_if<core::Amounts>(&need.gpus.what)) {
        own.resize(1);
        if (amounts->memory) own.front().portion.memory = *amounts->memory;
        if (amounts->compute) own.front().portion.compute = *amounts->compute;
      } else {
        own.resize(std::min(own.size(), static_cast<std::size_t>(need.gpus.count)));
      }
      containers.emplace(need.container, std::move(own));
      break;
    }
  }
}

}  // namespace

std::vector<Correction> find_corrections(const std::string& node,
                                         const std::vector<NodePodPtr>& pods, const Truth& truth,
                                         WallTime now) {
  std::map<std::string, Correction> changed;  // by uid
  const auto change = [&](const NodePodPtr& pod) -> PodGrant& {
    auto [found, fresh] = changed.try_emplace(pod->pod.id.uid);
    if (fresh) {
      found->second.pod = pod;
      found->second.grant = pod->grant ? *pod->grant : PodGrant{node, now, {}};
    }
    return found->second.grant;
  };
  std::set<std::pair<std::string, std::string>> swapped;  // uid and container, once each
  // The container that was to have what this one got.
  const auto give_back = [&](const Granted& got, const Granted& meant) {
    for (const NodePodPtr& other : pods) {
      const std::string& uid = other->pod.id.uid;
      if (!other->grant || other->pod.over() || truth.contains(uid)) continue;
      for (const auto& [name, granted] : other->grant->containers) {
        if (!same_size(granted, got) || gpus_of(granted) != gpus_of(got)) continue;
        if (!swapped.emplace(uid, name).second) continue;
        change(other).containers[name] = moved_to(granted, meant);
        return;
      }
    }
  };

  for (const NodePodPtr& pod : pods) {
    const auto its = truth.find(pod->pod.id.uid);
    if (its == truth.end() || pod->pod.over()) continue;
    for (const auto& [container, got] : its->second) {
      const auto* said = pod->granted(container);
      if (said != nullptr && gpus_of(*said) == gpus_of(got) && same_size(*said, got)) continue;
      change(pod).containers[container] = got;
      if (said != nullptr && same_size(*said, got)) give_back(got, *said);
    }
    if (!pod->grant && changed.contains(pod->pod.id.uid)) {
      add_missing(*pod, change(pod).containers);
    }
  }
  std::vector<Correction> all;
  for (auto& [uid, correction] : changed) all.push_back(std::move(correction));
  return all;
}

}  // namespace aliquot::kube
