// What ClusterState decides for a pod: where it fits, where it is best, and which GPUs it gets.
#include <algorithm>

#include "base/text.hpp"
#include "kube/scheduler/cluster_state.hpp"

namespace aliquot::kube {

ClusterState::AskedShapes ClusterState::shapes(const Asked& asked) const {
  AskedShapes all{shapes_of(decisions_->cluster, asked.ours), std::nullopt};
  if (asked.with_nvidia) all.with_nvidia = shapes_of(decisions_->cluster, *asked.with_nvidia);
  return all;
}

std::string ClusterState::why_not_ours(const NodeEntry* node) const {
  if (node != nullptr && !node->trouble.empty()) return node->trouble;
  return "no GPUs that Aliquot shares: aliquot-kube-node does not run there";
}

std::vector<ClusterState::Verdict> ClusterState::check(const Asked& asked,
                                                       std::span<const std::string_view> nodes) {
  refresh();
  const AskedShapes all = shapes(asked);
  std::vector<Verdict> verdicts;
  verdicts.reserve(nodes.size());
  for (const std::string_view name : nodes) {
    const NodeEntry* node = find_node(name);
    const bool ours = node != nullptr && node->at;
    const bool nvidia = ours && node->facts->gpus->nvidia;
    const PodRequest& request = asked.on(nvidia);
    if (!request.asks()) {
      verdicts.push_back({.fits = true});
      continue;
    }
    if (!ours) {
      verdicts.push_back({.fits = false, .curable = false, .why = why_not_ours(node)});
      continue;
    }
    const Result<PodShapes>& wanted = nvidia && all.with_nvidia ? *all.with_nvidia : all.ours;
    if (!wanted) {
      verdicts.push_back({.fits = false, .curable = false, .why = wanted.error().message});
    } else if (fits(decisions_->cluster, *node->at, *wanted)) {
      verdicts.push_back({.fits = true});
    } else {
      PodRefusal refusal = explain_pod(decisions_->cluster, *node->at, *wanted);
      verdicts.push_back(
          {.fits = false, .curable = refusal.curable, .why = std::move(refusal.why)});
    }
  }
  return verdicts;
}

std::vector<std::optional<float>> ClusterState::rank(const Asked& asked,
                                                     std::span<const std::string_view> nodes) {
  refresh();
  decisions_->index.prepare();
  const AskedShapes all = shapes(asked);
  const bool no_gpus = !asked.asks();
  std::span<const float> scores;  // of `ours`, where it is one shape
  if (all.ours && (no_gpus || all.ours->only() != nullptr)) {
    core::Shape shape = no_gpus ? core::Shape() : *all.ours->only();
    shape.cpus = all.ours->cpus;
    scores = decisions_->index.scores(shape);
  }
  std::vector<std::optional<float>> ranks;
  ranks.reserve(nodes.size());
  for (const std::string_view name : nodes) {
    std::optional<float>& rank = ranks.emplace_back();
    const NodeEntry* node = find_node(name);
    if (node == nullptr || !node->at) continue;
    const bool nvidia = node->facts->gpus->nvidia && all.with_nvidia;
    const Result<PodShapes>& wanted = nvidia ? *all.with_nvidia : all.ours;
    if (!wanted || (!no_gpus && !asked.on(nvidia).asks())) continue;
    if (!nvidia && !scores.empty()) {
      if (scores[*node->at] != core::Index::kUnfit) rank = scores[*node->at];
      continue;
    }
    const auto placed = place_pod(decisions_->cluster, *decisions_->policy, *node->at, *wanted);
    if (placed) rank = static_cast<float>(placed->score);
  }
  return ranks;
}

Result<PodGrant> ClusterState::place(const Asked& asked, const std::string& name) {
  refresh();
  PodGrant grant{.node = name, .assumed = clock_.wall(), .containers = {}};
  const NodeEntry* node = find_node(name);
  const bool ours = node != nullptr && node->at;
  const PodRequest& request = asked.on(ours && node->facts->gpus->nvidia);
  if (!request.asks()) return grant;
  if (!ours) return fail(Error::Code::not_found, "node {}: {}", name, why_not_ours(node));
  const PodShapes wanted = TRY(shapes_of(decisions_->cluster, request));
  decisions_->index.prepare();
  const auto placed = place_pod(decisions_->cluster, *decisions_->policy, *node->at, wanted);
  if (!placed) {
    return fail(Error::Code::unavailable, "node {}: {}", name,
                explain_pod(decisions_->cluster, *node->at, wanted).why);
  }
  grant.containers = grants_of(decisions_->cluster, *node->at, request, placed->placement);
  return grant;
}

void ClusterState::start_over(const std::string& uid) {
  const auto found = pods_.find(uid);
  if (found == pods_.end() || found->second.assumed || !found->second.grant) return;
  found->second.started_over = found->second.grant_text;
  settle(uid, found->second);
}

void ClusterState::assume(const std::string& uid, const Asked& asked, PodGrant grant) {
  PodEntry& entry = pods_[uid];
  entry.asked = asked;
  entry.assumed = Assumption{std::move(grant), false, false, {}};
  settle(uid, entry);
}

void ClusterState::confirm(const std::string& uid) {
  const auto found = pods_.find(uid);
  if (found == pods_.end() || !found->second.assumed) return;
  found->second.assumed->settled = true;
  found->second.assumed->until = clock_.mono() + settings_.patience;
}

void ClusterState::doubt(const std::string& uid) {
  const auto found = pods_.find(uid);
  if (found == pods_.end() || !found->second.assumed) return;
  if (found->second.grant == found->second.assumed->grant) return undo(uid);
  confirm(uid);
  found->second.assumed->doubtful = true;
}

void ClusterState::undo(const std::string& uid) {
  const auto found = pods_.find(uid);
  if (found == pods_.end() || !found->second.assumed) return;
  found->second.assumed.reset();
  settle(uid, found->second);
  if (found->second.known.id.uid.empty()) lose_pod(uid);
}

std::map<std::string, std::map<GpuId, ClusterState::GpuPicture>> ClusterState::picture() {
  refresh();
  const core::Cluster& cluster = decisions_->cluster;
  std::map<std::string, std::map<GpuId, GpuPicture>> all;
  for (core::NodeIndex node = 0; node < cluster.size(); ++node) {
    const core::Node& host = cluster.node(node);
    auto& gpus = all[host.id.value()];
    for (core::GpuIndex gpu = 0; gpu < host.gpus.size(); ++gpu) {
      const core::GpuState& state = cluster.gpus(node)[gpu];
      gpus[host.gpus[gpu].id] = {state.memory, state.memory_free, state.compute_free,
                                 state.jobs,   state.whole,       state.usable};
    }
  }
  return all;
}

}  // namespace aliquot::kube
