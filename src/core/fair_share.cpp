#include "core/fair_share.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace aliquot::core {
namespace {

double seconds_of(Millis length) { return static_cast<double>(length.value()) / 1e3; }

double gpus_of(Compute held) {
  return static_cast<double>(held.value()) / static_cast<double>(kWholeGpu.value());
}

// For a user without usage nothing is lost in rounding, for one without shares nothing is left.
double fair_factor(double norm_usage, double norm_shares) {
  if (norm_usage <= 0) return 1;
  return norm_shares > 0 ? std::exp2(-norm_usage / norm_shares) : 0;
}

std::int64_t weighted(std::int64_t weight, double factor) {
  // To the nearest, without the call that llround is: a plan asks millions of times.
  return static_cast<std::int64_t>(static_cast<double>(weight) * std::clamp(factor, 0.0, 1.0) +
                                   0.5);
}

Compute worth(const Node& node) {
  return node.gpus.empty() ? kWholeGpu * (node.cpus / kOneCpu)
                           : kWholeGpu * static_cast<std::int64_t>(node.gpus.size());
}

Compute part_of_cpus(const Node& node, CpuMilli cpus) {
  if (node.cpus <= CpuMilli(0)) return Compute(0);
  return scale_down(worth(node), std::min(cpus, node.cpus).value(), node.cpus.value());
}

}  // namespace

Compute part_of_gpu(const Portion& portion, Bytes memory) {
  const Compute of_memory =
      memory > Bytes(0)
          ? Compute(scale_up(std::min(portion.memory, memory), kWholeGpu.value(), memory.value())
                        .value())
          : Compute(0);
  return std::min(std::max(of_memory, portion.compute), kWholeGpu);
}

Compute billed(const Cluster& cluster, const Use& use) {
  const Node& node = cluster.node(use.node);
  if (use.gpus.empty()) return part_of_cpus(node, use.cpus);
  Compute sum;
  for (const GpuUse& one : use.gpus) {
    sum += one.whole ? kWholeGpu : part_of_gpu(one.portion, node.gpus[one.gpu].memory);
  }
  return sum;
}

Compute billed(const Cluster& cluster, const Shape& shape) {
  if (cluster.size() == 0) return Compute(0);
  const Node& node = cluster.node(0);
  if (shape.kind == Shape::Kind::no_gpu) return part_of_cpus(node, shape.cpus);
  Compute each = kWholeGpu;
  if (shape.kind == Shape::Kind::share && !node.gpus.empty()) {
    const Gpu& gpu = node.gpus.front();
    if (const auto portion = portion_on(shape.what, node, gpu)) {
      each = part_of_gpu(*portion, gpu.memory);
    }
  }
  return each * shape.count;
}

double part_of_all(const Cluster& cluster, const Shape& shape) {
  Compute all;
  for (NodeIndex node = 0; node < cluster.size(); ++node) all += worth(cluster.node(node));
  if (all <= Compute(0)) return 0;
  return std::min(gpus_of(billed(cluster, shape)) / gpus_of(all), 1.0);
}

double faded(Millis half_life, Millis length) {
  if (half_life <= Millis(0) || length <= Millis(0)) return 1;
  return std::exp2(-seconds_of(length) / seconds_of(half_life));
}

double charge_of(Compute held, Millis length, Millis half_life) {
  if (held <= Compute(0) || length <= Millis(0)) return 0;
  if (half_life <= Millis(0)) return gpus_of(held) * seconds_of(length);
  // The integral of what is left of each moment. expm1 keeps short lengths exact.
  const double rate = std::numbers::ln2 / seconds_of(half_life);
  return gpus_of(held) * -std::expm1(-rate * seconds_of(length)) / rate;
}

double UsageBook::usage(Uid user, WallTime now) const {
  const auto found = entries_.find(user);
  if (found == entries_.end()) return 0;
  return found->second.amount * faded(half_life_, now - found->second.at);
}

UsageBook::Entry UsageBook::charge(Uid user, Compute held, Millis length, WallTime now) {
  Entry& entry = entries_[user];
  entry = {usage(user, now) + charge_of(held, length, half_life_), now};
  return entry;
}

double age_factor(const PriorityWeights& weights, Millis waited) {
  if (weights.max_age <= Millis(0) || waited <= Millis(0)) return 0;
  return std::min(seconds_of(waited) / seconds_of(weights.max_age), 1.0);
}

Priority weigh(const PriorityFactors& factors, const PriorityWeights& weights, std::int64_t nice) {
  Priority priority{.age = weighted(weights.age, factors.age),
                    .fair_share = weighted(weights.fair_share, factors.fair_share),
                    .job_size = weighted(weights.job_size, factors.job_size),
                    .partition = weighted(weights.partition, factors.partition),
                    .qos = weighted(weights.qos, factors.qos),
                    .nice = nice};
  priority.total = std::max<std::int64_t>(priority.age + priority.fair_share + priority.job_size +
                                              priority.partition + priority.qos - nice,
                                          1);
  return priority;
}

void find_standings(const std::vector<Sharer>& sharers, std::vector<Standing>& all) {
  double shares = 0;
  double usage = 0;
  for (const Sharer& one : sharers) {
    shares += one.shares;
    usage += one.usage;
  }
  all.clear();
  for (const Sharer& one : sharers) {
    Standing standing{.norm_shares = shares > 0 ? one.shares / shares : 0,
                      .norm_usage = usage > 0 ? one.usage / usage : 0};
    standing.factor = fair_factor(standing.norm_usage, standing.norm_shares);
    all.push_back(standing);
  }
}

PriorityModel::PriorityModel(PriorityWeights weights, Millis half_life, std::vector<Sharer> sharers)
    : weights_(weights), half_life_(half_life), sharers_(std::move(sharers)) {
  refresh();
}

void PriorityModel::refresh() {
  find_standings(sharers_, standings_);
  fair_.clear();
  for (const Standing& one : standings_) fair_.push_back(weighted(weights_.fair_share, one.factor));
}

PriorityFactors PriorityModel::factors(const Urgency& urgency) const {
  PriorityFactors all = urgency.factors;
  all.age = age_factor(weights_, urgency.waited + passed_);
  all.fair_share = standings_[urgency.sharer].factor;
  return all;
}

Priority PriorityModel::priority(const Urgency& urgency) const {
  if (urgency.fixed) return {.total = *urgency.fixed};
  return weigh(factors(urgency), weights_, urgency.nice);
}

std::int64_t PriorityModel::fixed_part(const Urgency& urgency) const {
  return weighted(weights_.job_size, urgency.factors.job_size) +
         weighted(weights_.partition, urgency.factors.partition) +
         weighted(weights_.qos, urgency.factors.qos) - urgency.nice;
}

std::int64_t PriorityModel::age_part(Millis waited) const {
  return weighted(weights_.age, age_factor(weights_, waited));
}

void PriorityModel::pass(Millis length) {
  if (length <= Millis(0)) return;
  const double left = faded(half_life_, length);
  const double each = charge_of(kWholeGpu, length, half_life_);
  for (Sharer& one : sharers_) one.usage = one.usage * left + gpus_of(one.held) * each;
  passed_ += length;
  refresh();
}

void PriorityModel::hold(std::size_t sharer, Compute held) { sharers_[sharer].held += held; }
void PriorityModel::let_go(std::size_t sharer, Compute held) { sharers_[sharer].held -= held; }

}  // namespace aliquot::core
