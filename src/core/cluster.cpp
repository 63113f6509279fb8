#include "core/cluster.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <functional>

#include "base/size.hpp"
#include "base/text.hpp"

namespace aliquot::core {
namespace {

constexpr std::size_t kShortestLog = 1024;

void mix(std::size_t& seed, std::uint64_t value) {
  std::uint64_t x = seed ^ (value + 0x9e3779b97f4a7c15ULL + (std::uint64_t{seed} << 6U));
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  seed = static_cast<std::size_t>(x ^ (x >> 27U));
}

std::size_t by_gpus(const Use& use) {
  const auto wholes = std::ranges::count_if(use.gpus, &GpuUse::whole);
  return std::min(static_cast<std::size_t>(wholes), NodeState{}.jobs_by_gpus.size() - 1);
}

// Names are single words in messages and in the ledger's text form.
bool is_word(std::string_view name) {
  return !name.empty() && std::ranges::none_of(name, [](char letter) {
    const auto code = static_cast<unsigned char>(letter);
    return code <= ' ' || code == 0x7f;
  });
}

Result<void> check_node(const Node& node) {
  if (!is_word(node.id.value())) {
    return fail(Error::Code::invalid_argument, "{} is no name for a node: it must be one word",
                quote(node.id.value()));
  }
  if (node.cpus < CpuMilli(0) || node.memory < Bytes(0)) {
    return fail(Error::Code::invalid_argument, "node {}: negative CPUs or memory", node.id);
  }
  if (node.compute_limit < kWholeGpu || node.compute_limit > 100 * kWholeGpu) {
    return fail(Error::Code::invalid_argument,
                "node {}: the over-commit factor must be between 1 and 100", node.id);
  }
  if (node.mps_per_gpu < 1 || node.shards_per_gpu < 1) {
    return fail(Error::Code::invalid_argument, "node {}: mps and shards per GPU must be at least 1",
                node.id);
  }
  return {};
}

}  // namespace

std::size_t ShapeHash::operator()(const Shape& shape) const noexcept {
  std::size_t seed = shape.count;
  mix(seed, static_cast<std::uint64_t>(shape.kind));
  mix(seed, shape.models);
  mix(seed, shape.devices);
  mix(seed, static_cast<std::uint64_t>(shape.cpus.value()));
  mix(seed, static_cast<std::uint64_t>(shape.memory.value()));
  mix(seed, shape.what.index());
  if (const auto* amounts = std::get_if<Amounts>(&shape.what)) {
    mix(seed, static_cast<std::uint64_t>(amounts->memory.value_or(Bytes(-1)).value()));
    mix(seed, static_cast<std::uint64_t>(amounts->compute.value_or(Compute(-1)).value()));
  } else if (const auto* tickets = std::get_if<Tickets>(&shape.what)) {
    mix(seed, static_cast<std::uint64_t>(tickets->kind));
    mix(seed, static_cast<std::uint64_t>(tickets->count));
  }
  return seed;
}

Result<Cluster> Cluster::create(std::vector<Node> nodes) {
  Cluster cluster;
  for (Node& node : nodes) TRY(cluster.add_node(std::move(node)));
  return cluster;
}

Result<NodeIndex> Cluster::add_node(Node node) {
  TRY(check_node(node));
  if (names_.contains(node.id.value())) {
    return fail(Error::Code::already_exists, "there is a node {} already", node.id);
  }
  const auto index = static_cast<NodeIndex>(nodes_.size());
  std::vector<Gpu> gpus = std::move(node.gpus);
  node.gpus.clear();
  names_.emplace(node.id.value(), index);
  states_.push_back({.cpus_free = node.cpus,
                     .memory_free = node.memory,
                     .units = units_of(node),
                     .first_gpu = static_cast<std::uint32_t>(gpu_states_.size())});
  nodes_.push_back(std::move(node));
  const std::size_t known_models = models_.size();
  const std::uint64_t known_slices = slice_models_;
  for (Gpu& gpu : gpus) {
    if (auto added = append_gpu(index, std::move(gpu)); !added) {
      // All or nothing: the node is the last one, so it comes off again.
      models_.resize(known_models);
      slice_models_ = known_slices;
      gpu_states_.resize(states_.back().first_gpu);
      for (const Gpu& placed : nodes_.back().gpus) {
        if (placed.health != Health::ok) continue;
        compute_free_ -= nodes_.back().compute_limit;
        compute_total_ -= nodes_.back().compute_limit;
      }
      names_.erase(nodes_.back().id.value());
      nodes_.pop_back();
      states_.pop_back();
      return tl::make_unexpected(std::move(added).error());
    }
  }
  changed(index);
  return index;
}

Result<void> Cluster::add_gpu(NodeIndex node, Gpu gpu) {
  if (node >= nodes_.size()) return fail(Error::Code::not_found, "no node number {}", node);
  TRY(append_gpu(node, std::move(gpu)));
  changed(node);
  return {};
}

Result<void> Cluster::append_gpu(NodeIndex node, Gpu gpu) {
  Node& host = nodes_[node];
  if (!is_word(gpu.id.value()) || gpu.model.empty()) {
    return fail(Error::Code::invalid_argument,
                "node {}: a GPU needs an id of one word and a model, not {} and {}", host.id,
                quote(gpu.id.value()), quote(gpu.model));
  }
  if (gpu.memory < Bytes(0)) {
    return fail(Error::Code::invalid_argument, "GPU {}: negative memory", gpu.id);
  }
  if (host.gpus.size() >= kMaxGpusPerNode) {
    return fail(Error::Code::out_of_range, "node {}: more than {} GPUs", host.id, kMaxGpusPerNode);
  }
  if (std::ranges::any_of(host.gpus, [&](const Gpu& other) { return other.id == gpu.id; })) {
    return fail(Error::Code::already_exists, "node {} has a GPU {} already", host.id, gpu.id);
  }
  const std::uint8_t model = TRY(intern_model(gpu));
  const auto at = static_cast<std::ptrdiff_t>(states_[node].first_gpu + host.gpus.size());
  const bool usable = gpu.health == Health::ok;
  gpu_states_.insert(gpu_states_.begin() + at, GpuState{.memory = gpu.memory,
                                                        .memory_free = gpu.memory,
                                                        .compute_free = host.compute_limit,
                                                        .model = model,
                                                        .usable = usable});
  ++states_[node].gpu_count;
  for (std::size_t later = node + 1; later < states_.size(); ++later) ++states_[later].first_gpu;
  if (usable) {
    compute_free_ += host.compute_limit;
    compute_total_ += host.compute_limit;
  }
  host.gpus.push_back(std::move(gpu));
  return {};
}

Result<std::uint8_t> Cluster::intern_model(const Gpu& gpu) {
  const std::string name = to_lower(model_name(gpu));
  const bool slice = !gpu.mig_profile.empty();
  std::size_t index = 0;
  while (index < models_.size() &&
         (models_[index] != name || (((slice_models_ >> index) & 1U) != 0) != slice)) {
    ++index;
  }
  if (index == models_.size()) {
    if (models_.size() >= kMaxModels) {
      return fail(Error::Code::out_of_range, "more than {} GPU models in one cluster", kMaxModels);
    }
    models_.push_back(name);
    if (slice) slice_models_ |= std::uint64_t{1} << index;
  }
  return static_cast<std::uint8_t>(index);
}

std::optional<NodeIndex> Cluster::find(std::string_view node) const {
  const auto found = names_.find(std::string(node));
  if (found == names_.end()) return std::nullopt;
  return found->second;
}

Result<Shape> Cluster::shape(const Request& request) const {
  if (request.cpus < CpuMilli(0) || request.memory < Bytes(0)) {
    return fail(Error::Code::invalid_argument, "a request for negative CPUs or memory");
  }
  Shape shape;
  shape.cpus = request.cpus;
  shape.memory = request.memory;
  if (!request.gpus) return shape;

  const GpuRequest& gpus = *request.gpus;
  if (gpus.count < 1 || gpus.count > static_cast<std::int64_t>(kMaxGpusPerNode)) {
    return fail(Error::Code::invalid_argument, "a request for {} GPUs: ask for 1 to {}", gpus.count,
                kMaxGpusPerNode);
  }
  if (const auto* amounts = std::get_if<Amounts>(&gpus.what)) {
    if (!amounts->memory && !amounts->compute) {
      return fail(Error::Code::invalid_argument, "a share needs memory or compute");
    }
    if (amounts->memory.value_or(Bytes(0)) < Bytes(0) ||
        amounts->compute.value_or(Compute(0)) < Compute(0)) {
      return fail(Error::Code::invalid_argument, "a share of negative size");
    }
  }
  if (const auto* tickets = std::get_if<Tickets>(&gpus.what); tickets && tickets->count < 1) {
    return fail(Error::Code::invalid_argument, "a share of {} tickets: ask for at least 1",
                tickets->count);
  }
  shape.kind =
      std::holds_alternative<WholeGpu>(gpus.what) ? Shape::Kind::whole : Shape::Kind::share;
  shape.count = static_cast<std::uint32_t>(gpus.count);
  shape.what = gpus.what;
  if (gpus.models.empty()) shape.models = ~slice_models_;
  for (const std::string& model : gpus.models) {
    const std::string name = to_lower(model);
    std::uint64_t known = 0;
    for (std::size_t i = 0; i < models_.size(); ++i) {
      // A slice `a100_1g.10gb` is also reached by its profile alone.
      const bool slice = ((slice_models_ >> i) & 1U) != 0;
      if (models_[i] == name || (slice && models_[i].ends_with("_" + name))) {
        known |= std::uint64_t{1} << i;
      }
    }
    if (known == 0) {
      return fail(Error::Code::not_found, "no GPU of model {} here; there are: {}", quote(model),
                  fmt::join(models_, ", "));
    }
    shape.models |= known;
  }
  return shape;
}

// Whether this is a use at all, and nobody is where it wants to be alone.
Result<void> Cluster::check_use(const Use& use) const {
  if (use.node >= nodes_.size()) return fail(Error::Code::not_found, "no node number {}", use.node);
  const Node& node = nodes_[use.node];
  if (use.cpus < CpuMilli(0) || use.memory < Bytes(0)) {
    return fail(Error::Code::invalid_argument, "node {}: taking a negative amount", node.id);
  }
  for (std::size_t i = 0; i < use.gpus.size(); ++i) {
    const GpuUse& wanted = use.gpus[i];
    TRY(check_position(use.node, wanted.gpu));
    const GpuState& gpu = gpus(use.node)[wanted.gpu];
    const GpuId& id = node.gpus[wanted.gpu].id;
    if (i > 0 && use.gpus[i - 1].gpu >= wanted.gpu) {
      return fail(Error::Code::invalid_argument, "GPU {} twice or out of order in one use", id);
    }
    if (wanted.portion.memory < Bytes(0) || wanted.portion.compute < Compute(0)) {
      return fail(Error::Code::invalid_argument, "GPU {}: taking a negative amount", id);
    }
    if (gpu.whole) return fail(Error::Code::unavailable, "GPU {} is held whole", id);
    if (!wanted.whole) continue;
    if (gpu.jobs > 0) return fail(Error::Code::unavailable, "GPU {} is shared by jobs", id);
    if (wanted.portion != Portion{node.gpus[wanted.gpu].memory, node.compute_limit}) {
      return fail(Error::Code::invalid_argument, "GPU {}: a whole GPU is all of it", id);
    }
  }
  return {};
}

Result<void> Cluster::check_take(const Use& use) const {
  TRY(check_use(use));
  const Node& node = nodes_[use.node];
  const NodeState& state = states_[use.node];
  if (use.cpus > state.cpus_free || use.memory > state.memory_free) {
    return fail(Error::Code::unavailable, "node {} has not enough CPUs or memory left", node.id);
  }
  for (const GpuUse& wanted : use.gpus) {
    const GpuState& gpu = gpu_state(use.node, wanted.gpu);
    const GpuId& id = node.gpus[wanted.gpu].id;
    if (wanted.portion.memory > gpu.memory_free) {
      return fail(Error::Code::unavailable, "GPU {} has {} of memory left, not {}", id,
                  format_size(gpu.memory_free), format_size(wanted.portion.memory));
    }
    if (wanted.portion.compute > gpu.compute_free) {
      return fail(Error::Code::unavailable, "GPU {} has too little compute left", id);
    }
  }
  return {};
}

Result<void> Cluster::take(const Use& use) {
  TRY(check_take(use));
  enter(use);
  return {};
}

Result<void> Cluster::take_up(const Use& use) {
  TRY(check_use(use));
  // It takes what there is, and owes the rest.
  Use there = use;
  Owed owed;
  const auto cut = [](auto& wanted, auto free, auto& rest) {
    rest += wanted - std::min(wanted, free);
    wanted = std::min(wanted, free);
    return rest > decltype(free)(0);
  };
  bool any = cut(there.cpus, states_[use.node].cpus_free, owed.cpus);
  any |= cut(there.memory, states_[use.node].memory_free, owed.memory);
  for (GpuUse& wanted : there.gpus) {
    const GpuState& gpu = gpu_state(use.node, wanted.gpu);
    Portion rest;
    bool some = cut(wanted.portion.memory, gpu.memory_free, rest.memory);
    some |= cut(wanted.portion.compute, gpu.compute_free, rest.compute);
    if (some) owed.gpus[wanted.gpu] = rest;
    any |= some;
  }
  enter(there);
  if (!any) return {};
  Owed& all = owed_[use.node];
  all.cpus += owed.cpus;
  all.memory += owed.memory;
  for (const auto& [gpu, rest] : owed.gpus) {
    all.gpus[gpu].memory += rest.memory;
    all.gpus[gpu].compute += rest.compute;
  }
  return {};
}

void Cluster::enter(const Use& use) {
  NodeState& state = states_[use.node];
  state.cpus_free -= use.cpus;
  state.memory_free -= use.memory;
  ++state.jobs;
  if (!use.gpus.empty()) ++state.jobs_by_gpus[by_gpus(use)];
  for (const GpuUse& taken : use.gpus) {
    GpuState& gpu = gpu_state(use.node, taken.gpu);
    gpu.memory_free -= taken.portion.memory;
    gpu.compute_free -= taken.portion.compute;
    gpu.whole = taken.whole;
    ++gpu.jobs;
    if (gpu.usable) compute_free_ -= taken.portion.compute;
  }
  changed(use.node);
}

Result<void> Cluster::give_back(const Use& use) {
  if (use.node >= nodes_.size()) return fail(Error::Code::not_found, "no node number {}", use.node);
  const Node& node = nodes_[use.node];
  NodeState& state = states_[use.node];
  const std::size_t kind = by_gpus(use);
  const auto debt = owed_.find(use.node);
  Owed owed = debt == owed_.end() ? Owed() : debt->second;
  bool held = state.jobs > 0 && use.cpus >= CpuMilli(0) && use.memory >= Bytes(0) &&
              use.cpus <= node.cpus - state.cpus_free + owed.cpus &&
              use.memory <= node.memory - state.memory_free + owed.memory &&
              (use.gpus.empty() || state.jobs_by_gpus[kind] > 0);
  for (std::size_t i = 0; held && i < use.gpus.size(); ++i) {
    const GpuUse& back = use.gpus[i];
    TRY(check_position(use.node, back.gpu));
    const GpuState& gpu = gpu_state(use.node, back.gpu);
    const auto rest = owed.gpus.find(back.gpu);
    const Portion more = rest == owed.gpus.end() ? Portion() : rest->second;
    held = (i == 0 || use.gpus[i - 1].gpu < back.gpu) && gpu.jobs > 0 && gpu.whole == back.whole &&
           back.portion.memory >= Bytes(0) && back.portion.compute >= Compute(0) &&
           back.portion.memory <= node.gpus[back.gpu].memory - gpu.memory_free + more.memory &&
           back.portion.compute <= node.compute_limit - gpu.compute_free + more.compute;
  }
  if (!held) {
    return fail(Error::Code::failed_state, "node {}: giving back what is not held", node.id);
  }

  // What comes back pays what is owed first.
  const auto pay = [](auto amount, auto& rest) {
    const auto paid = std::min(amount, rest);
    rest -= paid;
    return amount - paid;
  };
  state.cpus_free += pay(use.cpus, owed.cpus);
  state.memory_free += pay(use.memory, owed.memory);
  --state.jobs;
  if (!use.gpus.empty()) --state.jobs_by_gpus[kind];
  for (const GpuUse& back : use.gpus) {
    GpuState& gpu = gpu_state(use.node, back.gpu);
    Portion none;
    const auto found = owed.gpus.find(back.gpu);
    Portion& rest = found == owed.gpus.end() ? none : found->second;
    const Compute compute = pay(back.portion.compute, rest.compute);
    gpu.memory_free += pay(back.portion.memory, rest.memory);
    gpu.compute_free += compute;
    gpu.whole = false;
    --gpu.jobs;
    if (gpu.usable) compute_free_ += compute;
  }
  if (debt != owed_.end()) debt->second = std::move(owed);
  changed(use.node);
  return {};
}

Result<void> Cluster::set_health(NodeIndex node, GpuIndex gpu, Health health) {
  TRY(check_position(node, gpu));
  Health& now = nodes_[node].gpus[gpu].health;
  if (health == now) return {};
  now = health;
  GpuState& state = gpu_state(node, gpu);
  const Compute limit = nodes_[node].compute_limit;
  if (health == Health::ok) {
    compute_free_ += state.compute_free;
    compute_total_ += limit;
  } else if (state.usable) {
    compute_free_ -= state.compute_free;
    compute_total_ -= limit;
  }
  state.usable = health == Health::ok;
  changed(node);
  return {};
}

Result<void> Cluster::observe(NodeIndex node, GpuIndex gpu, const GpuSample& sample) {
  TRY(check_position(node, gpu));
  if (sample.utilisation < Compute(0) || sample.foreign_memory < Bytes(0)) {
    return fail(Error::Code::invalid_argument, "GPU {}: a negative sample",
                nodes_[node].gpus[gpu].id);
  }
  GpuState& state = gpu_state(node, gpu);
  state.utilisation = std::min(sample.utilisation, kWholeGpu);
  state.foreign_memory = sample.foreign_memory;
  state.taken = sample.taken;
  state.sampled = true;
  state.stale = false;
  changed(node);
  return {};
}

void Cluster::expire_samples(MonoTime now, Millis max_age) {
  for (NodeIndex node = 0; node < nodes_.size(); ++node) {
    bool any = false;
    for (GpuIndex gpu = 0; gpu < nodes_[node].gpus.size(); ++gpu) {
      GpuState& state = gpu_state(node, gpu);
      if (!state.sampled || state.stale || now - state.taken <= max_age) continue;
      state.stale = true;
      state.utilisation = kWholeGpu;
      any = true;
    }
    if (any) changed(node);
  }
}

Result<void> Cluster::check_position(NodeIndex node, GpuIndex gpu) const {
  if (node >= nodes_.size()) return fail(Error::Code::not_found, "no node number {}", node);
  if (gpu >= nodes_[node].gpus.size()) {
    return fail(Error::Code::not_found, "node {} has no GPU number {}", nodes_[node].id, gpu);
  }
  return {};
}

void Cluster::changed(NodeIndex node) {
  NodeState& state = states_[node];
  state.most_compute_free = Compute(0);
  state.free_gpus = 0;
  for (const GpuState& gpu : gpus(node)) {
    if (gpu.free()) ++state.free_gpus;
    if (gpu.usable && !gpu.whole) {
      state.most_compute_free = std::max(state.most_compute_free, gpu.compute_free);
    }
  }
  const std::size_t wanted = std::bit_ceil(std::max(kShortestLog, nodes_.size()));
  if (log_.size() < wanted) {
    // A longer ring numbers its places anew: whoever looks next looks at everything.
    version_ += log_.size() + wanted + 1;
    log_.assign(wanted, node);
  }
  log_[version_ & (log_.size() - 1)] = node;
  ++version_;
}

}  // namespace aliquot::core
