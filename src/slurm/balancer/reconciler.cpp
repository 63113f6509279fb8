#include "slurm/balancer/reconciler.hpp"

#include <algorithm>
#include <utility>

#include "slurm/balancer/state_file.hpp"
#include "slurm/sample_text.hpp"

namespace aliquot::slurm {
namespace {

constexpr Millis kTellEvery = seconds(5);
// Each text is a call of its own: with many nodes they are told more seldom, so that slurmctld
// hears twenty a second at most.
constexpr Millis kTellPause = Millis(50);

bool has_gpus(const SlurmNode& node) {
  return node.gres.starts_with("gpu") || node.gres.find(",gpu") != std::string::npos;
}

Compute load_of(const GpuLoad& gpu) {
  if (!gpu.trouble.empty()) return kWholeGpu;
  if (gpu.memory <= Bytes(0)) return gpu.utilisation;
  const Bytes foreign = std::min(foreign_memory(gpu), gpu.memory);
  return std::max(gpu.utilisation, Compute(foreign / mib(1) * kWholeGpu.value() /
                                           std::max<std::int64_t>(gpu.memory / mib(1), 1)));
}

}  // namespace

std::optional<Compute> mean_load(const NodeSample& sample) {
  if (sample.gpus.empty()) return std::nullopt;
  std::int64_t sum = 0;
  for (const auto& gpu : sample.gpus) sum += load_of(gpu).value();
  return Compute(sum / static_cast<std::int64_t>(sample.gpus.size()));
}

Reconciler::Reconciler(SlurmClient& client, BalanceMode mode, std::filesystem::path state)
    : client_(client), mode_(mode), state_(std::move(state)) {}

Result<void> Reconciler::recall() {
  memory_.bases = TRY(load_bases(state_));
  stored_ = true;
  return {};
}

Result<void> Reconciler::look() {
  looked_ = false;
  auto found = TRY(client_.nodes());
  std::map<std::string, Known, std::less<>> nodes;
  for (SlurmNode& node : found) {
    Known known{{node.name, node.weight, has_gpus(node), node.extra.starts_with(kSampleMark)},
                std::move(node.extra)};
    if (const auto before = nodes_.find(node.name); before != nodes_.end()) {
      known.told = before->second.told;
    }
    nodes.emplace(std::move(node.name), std::move(known));
  }
  nodes_ = std::move(nodes);
  looked_ = true;
  return {};
}

Result<Reconciler::Outcome> Reconciler::round(const Heard& heard, const Round& round) {
  Outcome outcome;
  if (round.look || !looked_) {
    TRY(look());
    for (const auto& [name, weight] : set_) {
      const auto found = nodes_.find(name);
      if (found != nodes_.end() && found->second.node.weight != weight) ++outcome.resets;
    }
  }
  Loads loads;
  for (const auto& [name, sample] : heard) {
    if (const auto mean = mean_load(sample.sample)) loads[name] = {*mean, sample.heard};
  }
  std::vector<WeighedNode> nodes;
  nodes.reserve(nodes_.size());
  for (const auto& [name, known] : nodes_) nodes.push_back(known.node);
  const Plan plan = plan_weights(nodes, loads, memory_, {mode_, round.now, round.patient});
  if (plan.bases_changed || !stored_) {
    TRY(store_bases(state_, plan.memory.bases));
    stored_ = true;
  }
  memory_ = plan.memory;
  TRY(set_weights(plan, outcome));
  TRY(publish(heard, round.now, round.patient, outcome));
  return outcome;
}

Result<void> Reconciler::set_weights(const Plan& plan, Outcome& outcome) {
  for (const auto& [weight, names] : plan.changes) {
    ++outcome.calls;
    if (auto done = client_.update_nodes(names, weight, std::nullopt); !done) {
      looked_ = false;
      return done;
    }
    outcome.weights += names.size();
    for (const auto& name : names) {
      nodes_.find(name)->second.node.weight = weight;
      set_[name] = weight;
    }
  }
  return {};
}

Result<void> Reconciler::publish(const Heard& heard, MonoTime now, bool patient, Outcome& outcome) {
  const Millis pause = std::max(kTellEvery, kTellPause * static_cast<std::int64_t>(nodes_.size()));
  for (auto& [name, known] : nodes_) {
    if (!known.node.gpus || !may_hold_samples(known.extra) || now - known.told < pause) continue;
    const auto found = heard.find(name);
    const bool fresh = found != heard.end() && now - found->second.heard <= kStaleAfter;
    if (!fresh && patient) continue;
    // A node that never had an agent needs no mark.
    if (!fresh && known.extra.empty()) continue;
    const std::string text =
        fresh ? format_sample_text(found->second.sample.gpus, found->second.sample.version)
              : std::string(kNoSamples);
    if (!sample_texts_differ(known.extra, text)) continue;
    ++outcome.calls;
    if (auto done = client_.update_nodes({name}, std::nullopt, text); !done) {
      looked_ = false;
      return done;
    }
    known.extra = text;
    known.node.marked = true;
    known.told = now;
  }
  return {};
}

Result<void> Reconciler::restore() {
  TRY(look());
  std::vector<WeighedNode> nodes;
  std::vector<std::string> marked;
  for (const auto& [name, known] : nodes_) {
    nodes.push_back(known.node);
    if (known.node.marked) marked.push_back(name);
  }
  Outcome outcome;
  const Plan plan = plan_weights(nodes, {}, memory_, {BalanceMode::off, MonoTime()});
  TRY(set_weights(plan, outcome));
  set_.clear();
  if (!marked.empty()) TRY(client_.update_nodes(marked, std::nullopt, std::string()));
  return {};
}

}  // namespace aliquot::slurm
