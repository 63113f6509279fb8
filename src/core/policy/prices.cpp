#include "core/policy/prices.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace aliquot::core {
namespace {

constexpr std::size_t kWhole = std::numeric_limits<std::size_t>::max();
constexpr std::int64_t kComputePerLevel = 100;  // one hundredth of a GPU
constexpr double kMilliPerLevel = 10;
constexpr double kGpuMilli = 1'000;

// In milli of a GPU: two fillings that differ by much less count as equally good.
constexpr double kTemperature = 10;
constexpr double kStartTemperature = 80;
constexpr int kStages = 10;
constexpr int kStageTimes = 30;
constexpr int kUpdateTimes = 12;
// Jobs of several GPUs decide for a whole node at once, so their choice is softened more.
constexpr double kTogetherFactor = 3;
// The jobs we plan for would fill this part of what is free.
constexpr double kHorizon = 0.6;
constexpr double kStep = 0.3;
constexpr double kMaxLogStep = 3;
// CPU prices: none, then steps of this factor up to the average value of a CPU in the profile.
constexpr double kCpuPriceFactor = 0.6;
constexpr std::size_t kMaxSample = 4'096;
// Below this part of the cluster, "what is free" is mostly crumbs; plan for at least as much.
constexpr double kLeastFree = 0.02;
// A double holds exp(709): the ways to fill a GPU may grow to this power of e before they are
// counted by a smaller measure.
constexpr double kMaxLogWays = 500;
constexpr int kRootSteps = 40;

std::uint32_t to_level(Compute compute) {
  return static_cast<std::uint32_t>(compute.value() / kComputePerLevel);
}

// Plain pointers so that the compiler sees lanes that cannot overlap.
void add_product(std::array<double, Prices::kLanes>& sum,
                 const std::array<double, Prices::kLanes>& a,
                 const std::array<double, Prices::kLanes>& b) {
  double* __restrict to = sum.data();
  const double* x = a.data();
  const double* y = b.data();
  for (std::size_t lane = 0; lane < Prices::kLanes; ++lane) to[lane] += x[lane] * y[lane];
}

}  // namespace

void Prices::start(const Cluster& cluster, const Profile& profile) {
  learn(cluster, profile);
  if (kinds_.empty()) learn(cluster, generic_profile());
  const std::vector<SampledNode> nodes = sample(cluster);
  const double jobs = expected_jobs(cluster);
  for (int stage = 0; stage < kStages; ++stage) {
    // Cooling: smooth prices first, sharp ones from there.
    const double cooled = std::pow(kTemperature / kStartTemperature, 1.3 * stage / kStages);
    set_temperature(std::max(kTemperature, kStartTemperature * cooled));
    iterate(nodes, jobs, kStageTimes);
  }
  tabulate(Rows::all);
}

void Prices::update(const Cluster& cluster) {
  iterate(sample(cluster), expected_jobs(cluster), kUpdateTimes);
  tabulate(Rows::all);
}

void Prices::learn(const Cluster& cluster, const Profile& profile) {
  kinds_.clear();
  limits_.clear();
  most_free_ = 0;
  worth_.clear();
  together_.clear();
  tables_.assign(cluster.model_count(), {});
  for (NodeIndex node = 0; node < cluster.size(); ++node) {
    const Compute limit = cluster.node(node).compute_limit;
    if (std::ranges::find(limits_, limit) == limits_.end()) limits_.push_back(limit);
    const auto gpus = static_cast<std::uint32_t>(cluster.node(node).gpus.size());
    most_free_ = std::clamp(gpus, most_free_, kMaxFree);
  }
  levels_ = 0;
  for (const Compute limit : limits_) levels_ = std::max(levels_, to_level(limit));
  rows_per_model_ = levels_ + 1 + limits_.size();
  find_models(cluster);

  double value = 0;
  double cpus = 0;
  for (const ProfileEntry& entry : profile) {
    const auto shape = cluster.shape(entry.request);
    if (!shape || shape->kind == Shape::Kind::no_gpu) continue;
    if (!std::isnormal(entry.weight) || entry.weight < 0) continue;
    // Several shares of one job go to different GPUs: priced as that many jobs.
    const bool shares = shape->kind == Shape::Kind::share;
    const double parts = shares ? shape->count : 1;
    kinds_.push_back({.cpus = static_cast<double>(shape->cpus.value()) / parts,
                      .weight = entry.weight * parts,
                      .gpus = shares ? 1 : shape->count,
                      .models = shape->models});
    add_members(cluster, *shape, kinds_.size() - 1);
    if (kinds_.back().value <= 0) {
      kinds_.pop_back();  // fits no GPU here
      continue;
    }
    value += kinds_.back().weight * kinds_.back().value;
    cpus += kinds_.back().weight * kinds_.back().cpus;
  }
  const double top = cpus > 0 ? value / cpus : 0;
  for (std::size_t lane = 1; lane < kLanes; ++lane) {
    cpu_price_[lane] =
        static_cast<float>(top * std::pow(kCpuPriceFactor, static_cast<double>(kLanes - 1 - lane)));
  }
  for (ModelTable& table : tables_) {
    table.weights.resize(table.sizes.size());
    table.tame_steps.clear();
    for (const std::uint32_t size : table.sizes) {
      table.tame_steps.push_back(std::exp(-kMaxLogWays / levels_ * size));
    }
    table.fillings.resize(levels_ + 1);
  }
}

// The first GPU of each model.
void Prices::find_models(const Cluster& cluster) {
  first_gpus_.clear();
  std::uint64_t done = 0;
  for (NodeIndex node = 0; node < cluster.size(); ++node) {
    for (GpuIndex gpu = 0; gpu < cluster.gpus(node).size(); ++gpu) {
      const std::uint64_t bit = std::uint64_t{1} << cluster.model(node, gpu);
      if ((done & bit) == 0) first_gpus_.emplace_back(node, gpu);
      done |= bit;
    }
  }
}

void Prices::add_members(const Cluster& cluster, const Shape& shape, std::size_t kind) {
  // GPUs of one model are alike: the first one speaks for all.
  for (const auto& [node, gpu] : first_gpus_) {
    const Node& host = cluster.node(node);
    const std::uint8_t model = cluster.model(node, gpu);
    const auto portion = portion_on(shape.what, host, host.gpus[gpu]);
    if (((shape.models >> model) & 1U) == 0 || !portion) continue;
    ModelTable& table = tables_[model];
    if (shape.kind == Shape::Kind::whole) {
      kinds_[kind].value = kGpuMilli * shape.count;
      if (shape.count > 1) {
        table.several.push_back(kind);
      } else {
        table.members.push_back({kind, kWhole, kGpuMilli});
      }
      continue;
    }
    const auto compute = static_cast<double>(portion->compute.value());
    const double memory = host.gpus[gpu].memory > Bytes(0)
                              ? static_cast<double>(portion->memory.value()) /
                                    static_cast<double>(host.gpus[gpu].memory.value())
                              : 0;
    const double milli = std::max(compute * kMilliPerLevel / kComputePerLevel, memory * kGpuMilli);
    if (milli <= 0) continue;
    const auto size = static_cast<std::uint32_t>(std::ceil(milli / kMilliPerLevel));
    auto at = std::ranges::lower_bound(table.sizes, size);
    const auto position = static_cast<std::size_t>(at - table.sizes.begin());
    if (at == table.sizes.end() || *at != size) {
      table.sizes.insert(at, size);
      for (Member& other : table.members) {
        if (other.size != kWhole && other.size >= position) ++other.size;
      }
    }
    table.members.push_back({kind, position, milli});
    kinds_[kind].value = milli;
  }
}

void Prices::set_temperature(double temperature) {
  if (temperature == temperature_) return;
  temperature_ = temperature;
  for (ModelTable& table : tables_) {
    for (Member& member : table.members) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        const double cpus = kinds_[member.kind].cpus * static_cast<double>(cpu_price_[lane]);
        member.factor[lane] = std::exp((member.value - cpus) / temperature);
      }
    }
  }
}

double Prices::expected_jobs(const Cluster& cluster) const {
  const auto total = static_cast<double>(cluster.compute_total().value());
  const auto free = static_cast<double>(cluster.compute_free().value());
  const double milli =
      std::max(free, kLeastFree * total) * kMilliPerLevel / kComputePerLevel * kHorizon;
  double per_job = 0;
  for (const Kind& kind : kinds_) per_job += kind.weight * kind.value;
  return per_job > 0 ? milli / per_job : 0;
}

std::uint32_t Prices::free_row(Compute limit) const {
  const auto known = std::ranges::find(limits_, limit);
  return levels_ + 1 + static_cast<std::uint32_t>(known - limits_.begin());
}

std::uint32_t Prices::row_of(const Cluster& cluster, NodeIndex node, GpuIndex gpu) const {
  const GpuState& state = cluster.gpus(node)[gpu];
  if (state.free()) {
    return free_row(cluster.state(node).units.compute_limit);
  }
  return row_after(cluster, node, gpu, {});
}

std::uint32_t Prices::row_after(const Cluster& cluster, NodeIndex node, GpuIndex gpu,
                                const Portion& taken) const {
  const GpuState& state = cluster.gpus(node)[gpu];
  if (state.whole || !state.usable) return empty_row();
  const Compute limit = cluster.state(node).units.compute_limit;
  std::int64_t level = (state.compute_free - taken.compute).value() / kComputePerLevel;
  const Bytes memory = state.memory;
  if (const Bytes used = memory - state.memory_available() + taken.memory; used > Bytes(0)) {
    // Memory is never over-committed, so its level starts from the same top as compute's.
    const double part = static_cast<double>(used.value()) / static_cast<double>(memory.value());
    const double held = std::ceil(part * static_cast<double>(kWholeGpu.value()));
    level = std::min(level, (limit.value() - static_cast<std::int64_t>(held)) / kComputePerLevel);
  }
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(level, 0, levels_));
}

std::vector<Prices::SampledNode> Prices::sample(const Cluster& cluster) {
  std::vector<SampledNode> nodes;
  // A free row is always needed: jobs of several GPUs are weighed against it.
  for (ModelTable& table : tables_) {
    table.sampled.assign(rows_per_model_, false);
    table.sampled_free = 0;
    std::fill(table.sampled.begin() + levels_ + 1, table.sampled.end(), true);
  }
  const std::size_t stride = (cluster.size() + kMaxSample - 1) / kMaxSample;
  for (std::size_t i = 0; i < cluster.size(); i += std::max<std::size_t>(stride, 1)) {
    const auto node = static_cast<NodeIndex>(i);
    const auto gpus = cluster.gpus(node);
    if (gpus.empty()) continue;
    SampledNode seen{.cpus = static_cast<double>(cluster.state(node).cpus_free.value()),
                     .weight = static_cast<double>(stride),
                     .model = gpus[0].model,
                     .gpus = {}};
    for (GpuIndex gpu = 0; gpu < gpus.size(); ++gpu) {
      const std::uint32_t row = row_of(cluster, node, gpu);
      if (row == empty_row()) continue;
      const std::uint8_t model = cluster.gpus(node)[gpu].model;
      seen.gpus.emplace_back(model, row);
      tables_[model].sampled[row] = true;
      if (row > levels_ && model == seen.model && seen.free < kMaxFree) {
        ++seen.free;
        seen.free_row = row;
      }
    }
    tables_[seen.model].sampled_free |= 1U << seen.free;
    if (!seen.gpus.empty()) nodes.push_back(std::move(seen));
  }
  return nodes;
}

void Prices::iterate(const std::vector<SampledNode>& nodes, double jobs, int times) {
  for (int i = 0; i < times; ++i) {
    tabulate(Rows::sampled);
    spread(nodes);
    collect();
    for (Kind& kind : kinds_) {
      // Too many in the solution: dearer; too few: cheaper. Exact in one step if the number of
      // jobs fell with exp(-price / temperature) alone.
      const double ratio = std::log((kind.used + 1e-12) / (jobs * kind.weight + 1e-12));
      const double step = kStep * temperature_ * std::clamp(ratio, -kMaxLogStep, kMaxLogStep);
      kind.price = std::clamp(kind.price + step, 0.0, kind.value);
    }
  }
}

void Prices::tabulate(Rows which) {
  worth_.resize(tables_.size() * rows_per_model_);
  together_.resize(tables_.size() * (kMaxFree + 1));
  for (Kind& kind : kinds_) kind.discount = std::exp(-kind.price / temperature_);
  for (std::size_t model = 0; model < tables_.size(); ++model) {
    ModelTable& table = tables_[model];
    std::ranges::fill(table.weights, Wide{});
    table.whole = {};
    for (const Member& member : table.members) {
      const double discount = kinds_[member.kind].discount;
      Wide& sum = member.size == kWhole ? table.whole : table.weights[member.size];
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        sum[lane] += member.factor[lane] * discount;
      }
    }
    set_growth(table);
    std::vector<Wide>& fillings = table.fillings;
    fillings[0].fill(1);
    for (std::size_t level = 1; level <= levels_; ++level) {
      Wide sum = {};
      add_product(sum, table.step, fillings[level - 1]);
      for (std::size_t s = 0; s < table.sizes.size() && table.sizes[s] <= level; ++s) {
        add_product(sum, table.steps[s], fillings[level - table.sizes[s]]);
      }
      fillings[level] = sum;
    }
    Lanes* rows = &worth_[model * rows_per_model_];
    for (std::size_t row = 1; row < rows_per_model_; ++row) {
      if (which == Rows::sampled && !table.sampled[row]) continue;
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        const auto level =
            row <= levels_ ? static_cast<std::uint32_t>(row) : to_level(limits_[row - levels_ - 1]);
        double ways = fillings[level][lane];
        if (row > levels_) ways += whole_at(table, level, lane);
        rows[row][lane] =
            static_cast<float>(temperature_ * (std::log(ways) + table.growth[lane] * level));
      }
    }
    tabulate_together(static_cast<std::uint8_t>(model), which);
  }
}

// The ways to fill a GPU grow by a factor with each level, and with over-commit or very many kinds
// beyond what a double holds. Where they would, `fillings` counts level by level in units of that
// factor: the root of "one step, over all sizes, keeps the count".
void Prices::set_growth(ModelTable& table) const {
  table.growth = {};
  table.step.fill(1);
  table.steps = table.weights;
  const double tame = kMaxLogWays / levels_;
  Wide sums;
  sums.fill(std::exp(-tame));
  for (std::size_t s = 0; s < table.sizes.size(); ++s) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] += table.weights[s][lane] * table.tame_steps[s];
    }
  }
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    if (sums[lane] <= 1) continue;  // no level can grow beyond the limit
    const auto grows_faster = [&](double growth) {
      double sum = std::exp(-growth);
      for (std::size_t s = 0; s < table.sizes.size() && sum <= 1; ++s) {
        sum += table.weights[s][lane] * std::exp(-growth * table.sizes[s]);
      }
      return sum > 1;
    };
    double all = 1;
    for (const Wide& weight : table.weights) all += weight[lane];
    double low = tame;
    double high = std::log(all);
    for (int i = 0; i < kRootSteps; ++i) {
      const double middle = (low + high) / 2;
      (grows_faster(middle) ? low : high) = middle;
    }
    table.growth[lane] = high;
    table.step[lane] = std::exp(-high);
    for (std::size_t s = 0; s < table.sizes.size(); ++s) {
      table.steps[s][lane] *= std::exp(-high * table.sizes[s]);
    }
  }
}

// The one way that takes the whole GPU, in the measure of its level.
double Prices::whole_at(const ModelTable& table, std::uint32_t level, std::size_t lane) {
  return table.whole[lane] * std::exp(-table.growth[lane] * level);
}

double Prices::several_gain(const Kind& kind, std::uint32_t free, float whole_worth,
                            float cpu_price) const {
  const double one = kind.value - kind.price - kind.cpus * static_cast<double>(cpu_price) -
                     kind.gpus * static_cast<double>(whole_worth);
  const std::uint32_t jobs = free / kind.gpus;
  return one * jobs / (kTogetherFactor * temperature_);
}

void Prices::tabulate_together(std::uint8_t model, Rows which) {
  const ModelTable& table = tables_[model];
  const Lanes& whole_worth = worth(model, levels_ + 1);
  if (table.several.empty()) return;
  for (std::uint32_t free = 2; free <= most_free_; ++free) {
    if (which == Rows::sampled && ((table.sampled_free >> free) & 1U) == 0) continue;
    Lanes& sums = together_[model * (kMaxFree + 1) + free];
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const auto gain = [&](std::size_t kind) {
        return several_gain(kinds_[kind], free, whole_worth[lane], cpu_price_[lane]);
      };
      double highest = 0;
      for (const std::size_t kind : table.several) {
        if (kinds_[kind].gpus <= free) highest = std::max(highest, gain(kind));
      }
      double sum = std::exp(-highest);
      for (const std::size_t kind : table.several) {
        if (kinds_[kind].gpus <= free) sum += std::exp(gain(kind) - highest);
      }
      sums[lane] = static_cast<float>(kTogetherFactor * temperature_ * (highest + std::log(sum)));
    }
  }
}

void Prices::spread(const std::vector<SampledNode>& nodes) {
  for (Kind& kind : kinds_) kind.used = 0;
  for (ModelTable& table : tables_) {
    table.mass.assign(rows_per_model_, {});
    table.size_used.assign(table.sizes.size(), {});
    table.whole_used = {};
    table.free_nodes.assign(limits_.size() * (kMaxFree + 1), {});
  }
  for (const SampledNode& node : nodes) {
    Lanes sums = together(node.model, node.free);
    for (const auto& [model, row] : node.gpus) {
      const Lanes& gpu = worth(model, row);
      for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += gpu[lane];
    }
    std::size_t best = 0;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] += cpu_price_[lane] * static_cast<float>(node.cpus);
      if (sums[lane] < sums[best]) best = lane;
    }
    for (const auto& [model, row] : node.gpus) {
      if (row <= levels_ || model != node.model) tables_[model].mass[row][best] += node.weight;
    }
    if (node.free > 0) {
      ModelTable& table = tables_[node.model];
      table.free_nodes[(node.free_row - levels_ - 1) * (kMaxFree + 1) + node.free][best] +=
          node.weight;
    }
  }
  for (std::size_t model = 0; model < tables_.size(); ++model) {
    spread_free(static_cast<std::uint8_t>(model));
  }
  for (ModelTable& table : tables_) spread_model(table);
}

// Divides the wholly free GPUs between jobs that take several at once and jobs that take one.
void Prices::spread_free(std::uint8_t model) {
  ModelTable& table = tables_[model];
  for (std::size_t i = 0; i < table.free_nodes.size(); ++i) {
    const std::size_t row = levels_ + 1 + i / (kMaxFree + 1);
    const auto free = static_cast<std::uint32_t>(i % (kMaxFree + 1));
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double nodes = table.free_nodes[i][lane];
      if (nodes == 0) continue;
      const double all =
          static_cast<double>(together(model, free)[lane]) / (kTogetherFactor * temperature_);
      const float whole_worth = worth(model, levels_ + 1)[lane];
      double single = free;
      for (const std::size_t k : table.several) {
        Kind& kind = kinds_[k];
        if (kind.gpus > free) continue;
        const double part = std::exp(several_gain(kind, free, whole_worth, cpu_price_[lane]) - all);
        const std::uint32_t jobs = free / kind.gpus;
        kind.used += nodes * part * jobs;
        single -= part * jobs * kind.gpus;
      }
      table.mass[row][lane] += nodes * std::max(single, 0.0);
    }
  }
}

// Follows the recursion backwards: how many jobs of each size the GPUs in `mass` hold.
void Prices::spread_model(ModelTable& table) {
  const std::vector<Wide>& fillings = table.fillings;
  for (std::size_t row = levels_ + 1; row < rows_per_model_; ++row) {
    const std::uint32_t level = to_level(limits_[row - levels_ - 1]);
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double whole = whole_at(table, level, lane);
      const double each = table.mass[row][lane] / (fillings[level][lane] + whole);
      table.whole_used[lane] += each * whole;
      table.mass[level][lane] += each * fillings[level][lane];
    }
  }
  for (std::size_t level = levels_; level > 0; --level) {
    Wide each = table.mass[level];
    if (std::ranges::all_of(each, [](double mass) { return mass == 0; })) continue;
    for (std::size_t lane = 0; lane < kLanes; ++lane) each[lane] /= fillings[level][lane];
    Wide nothing = {};
    add_product(nothing, table.step, fillings[level - 1]);
    add_product(table.mass[level - 1], each, nothing);
    for (std::size_t s = 0; s < table.sizes.size() && table.sizes[s] <= level; ++s) {
      const std::size_t rest = level - table.sizes[s];
      Wide moved = {};
      add_product(moved, table.steps[s], fillings[rest]);
      add_product(table.mass[rest], moved, each);
      add_product(table.size_used[s], moved, each);
    }
  }
}

// Shares out the jobs of each size among the kinds of that size.
void Prices::collect() {
  for (ModelTable& table : tables_) {
    for (const Member& member : table.members) {
      Kind& kind = kinds_[member.kind];
      const bool whole = member.size == kWhole;
      const Wide& used = whole ? table.whole_used : table.size_used[member.size];
      const Wide& weight = whole ? table.whole : table.weights[member.size];
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        if (used[lane] > 0) {
          kind.used += used[lane] * member.factor[lane] * kind.discount / weight[lane];
        }
      }
    }
  }
}

}  // namespace aliquot::core
