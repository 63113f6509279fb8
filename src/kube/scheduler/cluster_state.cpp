#include "kube/scheduler/cluster_state.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "kube/model/limits.hpp"

namespace aliquot::kube {
namespace {

constexpr Millis kExpireEvery = seconds(1);

bool same_layout(const NodeGpus& a, const NodeGpus& b) {
  const auto same = [](const NodeGpu& one, const NodeGpu& other) {
    return one.uuid == other.uuid && one.model == other.model && one.memory == other.memory &&
           one.mig == other.mig;
  };
  return a.unit == b.unit && a.over_commit == b.over_commit && a.nvidia == b.nvidia &&
         std::ranges::equal(a.gpus, b.gpus, same);
}

bool same_layout(const std::optional<NodeFacts>& a, const NodeFacts& b) {
  if (!a || a->cpus != b.cpus || a->gpus.has_value() != b.gpus.has_value()) return false;
  return !b.gpus || same_layout(*a->gpus, *b.gpus);
}

core::Node core_node(const NodeFacts& facts) {
  core::Node node{.id = NodeId(facts.name), .cpus = facts.cpus, .memory = Bytes(0)};
  node.compute_limit = facts.gpus->over_commit;
  for (const NodeGpu& gpu : facts.gpus->gpus) {
    node.gpus.push_back({.id = gpu.uuid,
                         .model = gpu.model,
                         .memory = gpu.memory,
                         .health = gpu.health,
                         .mig_profile = gpu.mig});
  }
  return node;
}

// All shares of a pod on one GPU, wherever that may be.
core::Portion most_of(const PodRequest& request, const core::GpuState& gpu,
                      const core::GpuUnits& units) {
  core::Portion all;
  const core::Portion whole{gpu.memory, units.compute_limit};
  if (request.whole > 0) return whole;
  for (const ShareNeed& share : request.shares) {
    const core::Portion part = portion_of(share.amounts, gpu.memory, units).value_or(whole);
    all.memory = std::min(all.memory + part.memory, gpu.memory);
    all.compute = std::min(all.compute + part.compute, units.compute_limit);
  }
  return all;
}

Result<void> check_settings(const StateSettings& settings) {
  if (settings.unit <= Bytes(0) || settings.unit > kMostMemory) {
    return fail(Error::Code::invalid_argument, "{} bytes are no unit of GPU memory", settings.unit);
  }
  TRY(core::make_policy(settings.policy, settings.profile));
  return {};
}

}  // namespace

Result<std::unique_ptr<ClusterState>> ClusterState::create(StateSettings settings, SealKey key,
                                                           const Clock& clock) {
  TRY(check_settings(settings));
  return std::unique_ptr<ClusterState>(
      new ClusterState(std::move(settings), std::move(key), clock));
}

Result<std::unique_ptr<ClusterState>> ClusterState::create_to_look(StateSettings settings,
                                                                   const Clock& clock) {
  TRY(check_settings(settings));
  return std::unique_ptr<ClusterState>(new ClusterState(std::move(settings), std::nullopt, clock));
}

Result<Asked> ClusterState::ask(const Pod& pod) const {
  Asked asked;
  asked.ours = TRY(read_request(pod, settings_.names, settings_.unit, false));
  if (asks_nvidia(pod)) {
    asked.with_nvidia = TRY(read_request(pod, settings_.names, settings_.unit, true));
  }
  return asked;
}

void ClusterState::see_pod(const Pod& pod) {
  const std::string& uid = pod.id.uid;
  auto asked = ask(pod);
  PodEntry& entry = pods_[uid];
  KnownPod& known = entry.known;
  known.id = pod.id;
  known.resource_version = pod.resource_version;
  known.node = pod.node;
  known.terminating = pod.terminating;
  known.over = pod.over();
  entry.asked = asked ? std::move(*asked) : Asked{odd_request(pod, settings_.names), {}};
  known.gpushare = entry.asked.ours.gpushare;
  read_grant_of(pod, entry);
  // Once its own annotation says the same, that counts.
  const bool told = entry.assumed && entry.assumed->doubtful && entry.grant == entry.assumed->grant;
  if (told || !pod.node.empty()) entry.assumed.reset();
  settle(uid, entry);
}

void ClusterState::read_grant_of(const Pod& pod, PodEntry& entry) const {
  const std::string* text = pod.annotation(settings_.names.grant());
  const std::string* seal = pod.annotation(settings_.names.grant_seal());
  const std::string both = (text == nullptr ? "" : *text) + "\n" + (seal == nullptr ? "" : *seal);
  if (both == entry.grant_text) return;
  entry.grant_text = both;
  entry.grant.reset();
  entry.known.forged.clear();
  if (text == nullptr) return;
  auto grant = key_ ? granted(pod, settings_.names, *key_) : read_grant(*text);
  if (grant) {
    entry.grant = std::move(*grant);
  } else {
    entry.known.forged = grant.error().message;
    spdlog::warn("{}", grant.error().message);
  }
}

void ClusterState::see_claimed(const PodName& pod, const std::string& node,
                               std::map<GpuId, core::GrantedGpu> gpus) {
  PodEntry& entry = pods_[pod.uid];
  entry.known.id = pod;
  entry.known.node = node;
  entry.claimed = std::move(gpus);
  settle(pod.uid, entry);
}

void ClusterState::lose_pod(const std::string& uid) {
  const auto found = pods_.find(uid);
  if (found == pods_.end()) return;
  leave(uid, found->second);
  timed_.erase(uid);
  pods_.erase(found);
}

void ClusterState::keep_only(const std::set<std::string>& uids) {
  std::vector<std::string> gone;
  for (const auto& [uid, entry] : pods_) {
    if (!entry.assumed && !uids.contains(uid)) gone.push_back(uid);
  }
  for (const std::string& uid : gone) lose_pod(uid);
}

void ClusterState::see_node(NodeFacts facts) {
  NodeEntry& node = nodes_[facts.name];
  if (!same_layout(node.facts, facts) || node.facts->trouble != facts.trouble) outdated_ = true;
  node.facts = std::move(facts);
  if (outdated_ || !node.at) return;
  if (node.tangled) {
    book_again(node);
  } else {
    apply_health(node);
  }
}

void ClusterState::lose_node(const std::string& name) {
  const auto found = nodes_.find(name);
  if (found == nodes_.end()) return;
  found->second.facts.reset();
  if (found->second.pods.empty()) nodes_.erase(found);
  outdated_ = true;
}

void ClusterState::expire() {
  expired_ = clock_.mono();
  for (const std::string& uid : std::vector<std::string>(timed_.begin(), timed_.end())) {
    PodEntry& entry = pods_.at(uid);
    if (entry.assumed && entry.assumed->settled && clock_.mono() >= entry.assumed->until) {
      entry.assumed.reset();
    }
    const bool never_seen = entry.known.id.uid.empty() && !entry.assumed;
    settle(uid, entry);
    if (never_seen) lose_pod(uid);
  }
}

// Whether what it holds may end without an event.
bool ClusterState::timed(const PodEntry& entry) const {
  if (entry.assumed) return true;
  return entry.known.node.empty() && !entry.known.over && entry.grant.has_value();
}

ClusterState::Holding ClusterState::holding_of(const PodEntry& entry) const {
  const auto request_on = [&](const std::string& name) -> const PodRequest& {
    const NodeGpus* gpus = gpus_of(name);
    return entry.asked.on(gpus != nullptr && gpus->nvidia);
  };
  const auto hold = [&](const PodGrant& grant) {
    const PodRequest& request = request_on(grant.node);
    return Holding{grant.node, request.cpus, held_by(request, grant.containers), false};
  };
  if (entry.known.over) return {};
  if (entry.claimed) return {entry.known.node, CpuMilli(0), *entry.claimed, false};
  if (entry.assumed) return hold(entry.assumed->grant);
  const std::string& bound = entry.known.node;
  if (!bound.empty()) {
    const PodRequest& request = request_on(bound);
    if (!request.asks()) return {bound, request.cpus, {}, false};
    if (entry.grant && entry.grant->node == bound && covers(entry.grant->containers, request)) {
      return hold(*entry.grant);
    }
    return {bound, request.cpus, {}, true};
  }
  if (!entry.grant || entry.grant_text == entry.started_over) return {};
  const Millis age = clock_.wall() - entry.grant->assumed;
  // A clock that was set far back is no reason to wait for ever.
  if (age >= settings_.patience || Millis(0) - age >= settings_.patience) return {};
  return hold(*entry.grant);
}

void ClusterState::settle(const std::string& uid, PodEntry& entry) {
  entry.known.binding = entry.assumed.has_value();
  if (timed(entry)) {
    timed_.insert(uid);
  } else {
    timed_.erase(uid);
  }
  Holding holding = holding_of(entry);
  if (holding == entry.holding) return;
  leave(uid, entry);
  entry.holding = std::move(holding);
  enter(uid, entry);
}

void ClusterState::enter(const std::string& uid, PodEntry& entry) {
  if (entry.holding.node.empty()) return;
  NodeEntry& node = nodes_[entry.holding.node];
  node.pods.insert(uid);
  if (outdated_ || !node.at) return;
  if (node.tangled) return book_again(node);
  book(entry, node);
  // What got into its way must not depend on who came first.
  if (node.tangled) book_again(node);
}

void ClusterState::leave(const std::string& uid, PodEntry& entry) {
  const auto found = nodes_.find(entry.holding.node);
  if (found == nodes_.end()) return;
  NodeEntry& node = found->second;
  node.pods.erase(uid);
  if (entry.booked && !outdated_) {
    if (!decisions_->cluster.give_back(*entry.booked)) std::abort();  // it was taken as it is
  }
  entry.booked.reset();
  entry.holding = {};
  if (!outdated_ && node.tangled) book_again(node);
  if (node.pods.empty() && !node.facts) nodes_.erase(found);
}

// What it takes of the node's GPUs; `closed` are those where somebody is whom it excludes.
std::vector<core::GpuUse> ClusterState::uses_of(const PodEntry& entry, const NodeEntry& node,
                                                std::vector<core::GpuIndex>& closed) const {
  const core::Cluster& cluster = decisions_->cluster;
  const core::Node& host = cluster.node(*node.at);
  const auto gpus = cluster.gpus(*node.at);
  const core::GpuUnits& units = cluster.state(*node.at).units;
  std::vector<core::GpuUse> uses;
  for (core::GpuIndex gpu = 0; gpu < gpus.size(); ++gpu) {
    const core::GpuState& state = gpus[gpu];
    if (entry.holding.unknown) {
      // Wherever a GPU is held whole it is not.
      if (state.whole) continue;
      uses.push_back({gpu, most_of(entry.asked.on(node.facts->gpus->nvidia), state, units), false});
      continue;
    }
    const auto held = entry.holding.gpus.find(host.gpus[gpu].id);
    if (held == entry.holding.gpus.end()) continue;
    const bool whole = held->second.whole;
    if (state.whole || (whole && state.jobs > 0)) {
      closed.push_back(gpu);
      continue;
    }
    const core::Portion all{state.memory, units.compute_limit};
    uses.push_back({gpu, whole ? all : held->second.portion, whole});
  }
  return uses;
}

void ClusterState::book(PodEntry& entry, NodeEntry& node) {
  std::vector<core::GpuIndex> closed;
  core::Use use{*node.at, entry.holding.cpus, Bytes(0), uses_of(entry, node, closed)};
  if (!decisions_->cluster.take_up(use)) std::abort();  // what it refuses is left out of it
  entry.booked = std::move(use);
  if (entry.holding.unknown || !closed.empty()) node.tangled = true;
  for (const core::GpuIndex gpu : closed) {
    // Two that exclude each other: nobody else is to come to them.
    static_cast<void>(decisions_->cluster.set_health(*node.at, gpu, core::Health::draining));
  }
}

// In an order that does not depend on who came first.
void ClusterState::book_again(NodeEntry& node) {
  std::vector<PodEntry*> order;
  for (const std::string& uid : node.pods) {
    PodEntry& entry = pods_.at(uid);
    // Whether `nvidia.com/gpu` is ours may have changed with the node.
    if (entry.booked && !decisions_->cluster.give_back(*entry.booked)) std::abort();
    entry.booked.reset();
    order.push_back(&entry);
  }
  node.tangled = false;
  apply_health(node);
  std::ranges::stable_sort(order, {}, [](const PodEntry* entry) {
    const bool whole = std::ranges::any_of(entry->holding.gpus,
                                           [](const auto& held) { return held.second.whole; });
    return entry->holding.unknown ? 2 : whole ? 0 : 1;
  });
  for (PodEntry* entry : order) book(*entry, node);
}

// As the node itself says.
void ClusterState::apply_health(const NodeEntry& node) {
  core::Cluster& cluster = decisions_->cluster;
  const auto& gpus = node.facts->gpus->gpus;
  for (core::GpuIndex gpu = 0; gpu < gpus.size(); ++gpu) {
    static_cast<void>(cluster.set_health(*node.at, gpu, gpus[gpu].health));
    if (cluster.gpus(*node.at)[gpu].foreign_memory == gpus[gpu].foreign) continue;
    static_cast<void>(cluster.observe(
        *node.at, gpu,
        {.utilisation = Compute(0), .foreign_memory = gpus[gpu].foreign, .taken = {}}));
  }
}

void ClusterState::refresh() {
  if (clock_.mono() - expired_ >= kExpireEvery) expire();
  if (outdated_) rebuild();
}

void ClusterState::rebuild() {
  auto policy = core::make_policy(settings_.policy, settings_.profile);
  if (!policy) std::abort();  // create() has made one
  decisions_ = std::make_unique<Decisions>(core::Cluster(), std::move(*policy));
  outdated_ = false;
  for (auto& [name, node] : nodes_) {
    node.at.reset();
    node.trouble.clear();
    node.tangled = false;
    if (!node.facts) continue;
    node.trouble = node.facts->trouble;
    if (!node.facts->gpus) continue;
    if (node.facts->gpus->unit != settings_.unit) {
      node.trouble =
          fmt::format("it counts GPU memory in units of {}, the scheduler of {}",
                      size_for_people(node.facts->gpus->unit), size_for_people(settings_.unit));
    } else if (auto added = decisions_->cluster.add_node(core_node(*node.facts))) {
      node.at = *added;
    } else {
      node.trouble = added.error().message;
    }
    if (!node.at) spdlog::warn("node {}: {}", name, node.trouble);
  }
  // What a pod holds may depend on its node: `nvidia.com/gpu` is ours on some.
  for (auto& [name, node] : nodes_) node.pods.clear();
  for (auto& [uid, entry] : pods_) {
    entry.booked.reset();
    entry.holding = holding_of(entry);
    if (!entry.holding.node.empty()) nodes_[entry.holding.node].pods.insert(uid);
  }
  std::erase_if(nodes_,
                [](const auto& entry) { return !entry.second.facts && entry.second.pods.empty(); });
  for (auto& [name, node] : nodes_) {
    if (node.at) book_again(node);
  }
}

std::optional<KnownPod> ClusterState::find(const std::string& uid) const {
  const auto found = pods_.find(uid);
  if (found == pods_.end() || found->second.known.id.uid.empty()) return std::nullopt;
  return found->second.known;
}

ClusterState::Holding ClusterState::holding(const std::string& uid) const {
  const auto found = pods_.find(uid);
  return found == pods_.end() ? Holding() : found->second.holding;
}

const Asked* ClusterState::asked(const std::string& uid) const {
  const auto found = pods_.find(uid);
  return found == pods_.end() ? nullptr : &found->second.asked;
}

const ClusterState::NodeEntry* ClusterState::find_node(std::string_view name) const {
  const auto found = nodes_.find(name);
  return found == nodes_.end() ? nullptr : &found->second;
}

const NodeGpus* ClusterState::gpus_of(const std::string& name) const {
  const NodeEntry* node = find_node(name);
  return node == nullptr || !node->facts || !node->facts->gpus ? nullptr : &*node->facts->gpus;
}

StateCounts ClusterState::counts() const {
  StateCounts counts;
  counts.pods = pods_.size();
  for (const auto& [uid, entry] : pods_) {
    if (entry.holding.unknown || !entry.holding.gpus.empty()) ++counts.holders;
    if (entry.holding.unknown) ++counts.unknown;
    if (entry.assumed) ++counts.assumed;
  }
  if (decisions_ == nullptr) return counts;
  const core::Cluster& cluster = decisions_->cluster;
  counts.nodes = cluster.size();
  counts.gpus = cluster.gpu_count();
  for (core::NodeIndex node = 0; node < cluster.size(); ++node) {
    for (const core::GpuState& gpu : cluster.gpus(node)) {
      counts.memory += gpu.memory;
      counts.memory_free += gpu.memory_available();
    }
  }
  return counts;
}

}  // namespace aliquot::kube
