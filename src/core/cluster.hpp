// The nodes and what is free on them now. Cluster is where amounts are added and subtracted, and it
// refuses whatever would break an invariant: no GPU over its memory or its compute limit, a whole
// GPU never together with a share, no node over its CPUs or memory. It knows no jobs: Ledger does.
//
// A copy is a snapshot to try things on. Every change is logged by node, so that whoever caches
// something per node (Index) looks only at what changed.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "core/device.hpp"
#include "core/request.hpp"

namespace aliquot::core {

// Positions in the cluster, in the order in which the nodes were given.
using NodeIndex = std::uint32_t;
using GpuIndex = std::uint32_t;

// What monitoring saw on one GPU.
struct GpuSample {
  Compute utilisation;   // time with a kernel running, of kWholeGpu
  Bytes foreign_memory;  // held by processes that no job of ours owns
  MonoTime taken;
  friend bool operator==(const GpuSample&, const GpuSample&) = default;
};

// Everything a decision needs of one GPU, in one cache line.
struct GpuState {
  Bytes memory;  // all there is
  Bytes memory_free;
  Compute compute_free;
  std::uint8_t model = 0;  // its bit in Shape::models
  std::uint32_t jobs = 0;
  bool whole = false;  // held by one job alone
  bool usable = true;  // healthy enough for new jobs
  bool stale = false;  // the sample is too old: counts as busy
  bool sampled = false;
  Bytes foreign_memory = Bytes(0);
  Compute utilisation = Compute(0);  // kWholeGpu while stale
  MonoTime taken = {};

  [[nodiscard]] bool free() const { return jobs == 0 && usable && foreign_memory == Bytes(0); }
  // What a new share may take: what no job holds and no foreign process sits on.
  [[nodiscard]] Bytes memory_available() const {
    return memory_free > foreign_memory ? memory_free - foreign_memory : Bytes(0);
  }
};

struct NodeState {
  CpuMilli cpus_free;
  Bytes memory_free;
  GpuUnits units = {};
  std::uint32_t first_gpu = 0;  // where its GPUs begin among all
  std::uint32_t gpu_count = 0;
  // Over the usable GPUs: the largest rest a share could get, and how many nobody is on. They spare
  // most looks at the GPUs themselves.
  Compute most_compute_free = Compute(0);
  std::uint32_t free_gpus = 0;
  std::uint32_t jobs = 0;
  // Running jobs by how many whole GPUs they hold here; [0] are the jobs with shares. The last
  // entry counts all larger ones.
  std::array<std::uint32_t, 17> jobs_by_gpus = {};
};

// What a job takes on one GPU of its node.
struct GpuUse {
  GpuIndex gpu = 0;
  Portion portion;
  bool whole = false;
  friend bool operator==(const GpuUse&, const GpuUse&) = default;
};

// What a job takes on its node.
struct Use {
  NodeIndex node = 0;
  CpuMilli cpus;
  Bytes memory;
  std::vector<GpuUse> gpus;
  friend bool operator==(const Use&, const Use&) = default;
};

// A request with its model constraint resolved against one cluster: what matching and caching need.
struct Shape {
  enum class Kind : std::uint8_t { no_gpu, whole, share };
  Kind kind = Kind::no_gpu;
  std::uint32_t count = 0;
  GpuPart what;
  std::uint64_t models = 0;                   // bit per model of the cluster
  std::uint64_t devices = ~std::uint64_t{0};  // bit per GPU of a node that it may have
  CpuMilli cpus;
  Bytes memory;
  friend bool operator==(const Shape&, const Shape&) = default;
};
struct ShapeHash {
  std::size_t operator()(const Shape& shape) const noexcept;
};

class Cluster {
 public:
  // Refuses duplicate names, negative amounts and more GPUs or models than we can number.
  static Result<Cluster> create(std::vector<Node> nodes);
  Result<NodeIndex> add_node(Node node);
  Result<void> add_gpu(NodeIndex node, Gpu gpu);

  [[nodiscard]] std::size_t size() const { return nodes_.size(); }
  [[nodiscard]] const Node& node(NodeIndex node) const { return nodes_[node]; }
  [[nodiscard]] const NodeState& state(NodeIndex node) const { return states_[node]; }
  [[nodiscard]] std::span<const GpuState> gpus(NodeIndex node) const {
    return {gpu_states_.data() + states_[node].first_gpu, states_[node].gpu_count};
  }
  [[nodiscard]] std::uint8_t model(NodeIndex node, GpuIndex gpu) const {
    return gpus(node)[gpu].model;
  }
  // Tell the processor that this node is looked at soon; its GPUs, once the node is there.
  void prefetch(NodeIndex node) const {
    __builtin_prefetch(&states_[node]);
    __builtin_prefetch(&states_[node].jobs_by_gpus);
  }
  void prefetch_gpus(NodeIndex node) const {
    for (const GpuState& gpu : gpus(node)) __builtin_prefetch(&gpu);
  }
  [[nodiscard]] std::size_t gpu_count() const { return gpu_states_.size(); }
  [[nodiscard]] std::size_t model_count() const { return models_.size(); }
  [[nodiscard]] std::optional<NodeIndex> find(std::string_view node) const;

  // Compute that may still be granted, and that could be granted at all, over all usable GPUs.
  [[nodiscard]] Compute compute_free() const { return compute_free_; }
  [[nodiscard]] Compute compute_total() const { return compute_total_; }

  // An unknown model is an error that names the known ones.
  [[nodiscard]] Result<Shape> shape(const Request& request) const;

  // Take or give back exactly this; on error nothing has changed.
  Result<void> take(const Use& use);
  // Whether it could be taken.
  [[nodiscard]] bool can_take(const Use& use) const { return check_take(use).has_value(); }
  // The same for a job that runs already, even on a machine that has become smaller than what its
  // jobs hold. What is not there is owed: what jobs give back pays it first, before any is free.
  Result<void> take_up(const Use& use);
  Result<void> give_back(const Use& use);

  Result<void> set_health(NodeIndex node, GpuIndex gpu, Health health);
  Result<void> observe(NodeIndex node, GpuIndex gpu, const GpuSample& sample);
  // Samples taken before `now - max_age` count as busy from now on.
  void expire_samples(MonoTime now, Millis max_age);

  // How many changes there have been.
  [[nodiscard]] std::uint64_t version() const { return version_; }
  // Calls visit(node) for every change since then, oldest first, perhaps twice for one node; false
  // when they are no longer known and everything must be looked at again.
  template <class Visitor>
  bool visit_changes(std::uint64_t since, Visitor&& visit) const;

 private:
  struct Owed {
    CpuMilli cpus = CpuMilli(0);
    Bytes memory = Bytes(0);
    std::map<GpuIndex, Portion> gpus = {};
  };
  Result<void> check_use(const Use& use) const;
  Result<void> check_take(const Use& use) const;
  void enter(const Use& use);
  Result<void> append_gpu(NodeIndex node, Gpu gpu);
  Result<std::uint8_t> intern_model(const Gpu& gpu);
  GpuState& gpu_state(NodeIndex node, GpuIndex gpu) {
    return gpu_states_[states_[node].first_gpu + gpu];
  }
  [[nodiscard]] const GpuState& gpu_state(NodeIndex node, GpuIndex gpu) const {
    return gpu_states_[states_[node].first_gpu + gpu];
  }
  Result<void> check_position(NodeIndex node, GpuIndex gpu) const;
  void changed(NodeIndex node);

  std::vector<Node> nodes_;
  std::vector<NodeState> states_;
  std::vector<GpuState> gpu_states_;
  std::unordered_map<std::string, NodeIndex> names_;
  std::vector<std::string> models_;  // lower case; a profile and a model of one name are two
  std::uint64_t slice_models_ = 0;   // which of them are MIG profiles
  Compute compute_free_;
  Compute compute_total_;
  std::map<NodeIndex, Owed> owed_;  // empty, but for machines that shrank
  std::uint64_t version_ = 0;
  std::vector<NodeIndex> log_;  // ring: change number v is at v % size
};

template <class Visitor>
bool Cluster::visit_changes(std::uint64_t since, Visitor&& visit) const {
  if (version_ - since > log_.size()) return false;
  for (std::uint64_t v = since; v < version_; ++v) visit(log_[v & (log_.size() - 1)]);
  return true;
}

}  // namespace aliquot::core
