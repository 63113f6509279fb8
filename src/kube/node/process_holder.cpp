#include "kube/node/process_holder.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "sys/process.hpp"

namespace aliquot::kube {
namespace {

constexpr std::string_view kPod = "pod";

// "kubepods-besteffort-pod1234_5678.slice" and "pod1234-5678": what follows the last "pod".
std::string_view uid_in(std::string_view part) {
  const auto at = part.rfind(kPod);
  if (at == std::string_view::npos || (at > 0 && part[at - 1] != '-')) return {};
  part.remove_prefix(at + kPod.size());
  return part.substr(0, part.find('.'));
}

// "cri-containerd-4f0c….scope" and "4f0c…".
std::string_view id_in(std::string_view part) {
  if (const auto dot = part.find('.'); dot != std::string_view::npos) part = part.substr(0, dot);
  if (const auto dash = part.rfind('-'); dash != std::string_view::npos) {
    part.remove_prefix(dash + 1);
  }
  return part;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> containers_of(
    const Allocation& allocation, const std::vector<NodePodPtr>& pods) {
  if (!allocation.claim) return {{allocation.pod.uid, allocation.container}};
  std::vector<std::pair<std::string, std::string>> all;
  const ClaimPart& claim = *allocation.claim;
  for (const NodePodPtr& pod : pods) {
    if (pod->pod.id.space != claim.name.space) continue;
    for (const auto& [name, facts] : pod->containers) {
      const bool named = std::ranges::any_of(facts.claims, [&](const ClaimUse& use) {
        return uses(use, claim.name.name, claim.request);
      });
      if (named) all.emplace_back(pod->pod.id.uid, name);
    }
  }
  // The API server has not said so yet.
  if (all.empty()) all.emplace_back(allocation.pod.uid, allocation.container);
  return all;
}

ProcessHolders::ProcessHolders(const std::vector<Allocation>& held,
                               const std::vector<NodePodPtr>& pods) {
  std::map<std::string, PodHolders> known;
  for (const Allocation& allocation : held) {
    for (const auto& [uid, container] : containers_of(allocation, pods)) {
      const auto pod = std::ranges::find_if(
          pods, [&, &uid = uid](const NodePodPtr& one) { return one->pod.id.uid == uid; });
      PodHolders& holders = known[uid];
      const auto* facts = static_cast<const ContainerFacts*>(nullptr);
      if (pod != pods.end()) {
        const auto found = (*pod)->containers.find(container);
        if (found != (*pod)->containers.end()) facts = &found->second;
      }
      if (facts != nullptr && !facts->id.empty()) {
        holders.by_id.emplace(facts->id, allocation.grant.holder);
      } else {
        holders.unknown.push_back(allocation.grant.holder);
      }
    }
  }
  for (auto& [uid, holders] : known) {
    for (const NodePodPtr& pod : pods) {
      if (pod->pod.id.uid != uid) continue;
      for (const auto& [name, facts] : pod->containers) {
        if (!facts.id.empty() && !holders.by_id.contains(facts.id)) {
          holders.others.push_back(facts.id);
        }
      }
    }
    std::string systemd = uid;
    std::ranges::replace(systemd, '-', '_');
    pods_.emplace(systemd, holders);
    pods_.emplace(uid, std::move(holders));
  }
}

std::optional<HolderId> ProcessHolders::find(std::string_view groups) const {
  for (const std::string_view line : split(groups, '\n')) {
    const auto parts = split(line, '/');
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = pods_.find(std::string(uid_in(parts[i])));
      if (found == pods_.end()) continue;
      const PodHolders& pod = found->second;
      const std::string id(id_in(parts[i + 1]));
      if (const auto holder = pod.by_id.find(id); holder != pod.by_id.end()) return holder->second;
      if (std::ranges::find(pod.others, id) != pod.others.end()) return std::nullopt;
      // A container that was started again, of which the API server has not said so yet.
      if (pod.unknown.size() == 1) return pod.unknown.front();
      if (pod.unknown.empty() && pod.by_id.size() == 1) return pod.by_id.begin()->second;
      return std::nullopt;
    }
  }
  return std::nullopt;
}

node::FencedJob holders_among(const ProcessHolders& holders) {
  return [&holders](Pid pid) -> std::optional<HolderId> {
    return holders.find(sys::read_proc(pid, "cgroup").value_or(""));
  };
}

}  // namespace aliquot::kube
