// What every rest of a GPU is worth to the jobs that usually come. docs/placement.md has the
// reasoning; in short:
//
// Filling a cluster is a linear programme: choose how many jobs of each kind go into each GPU so
// that the most compute is used, with no more jobs of a kind than arrive. Its dual gives each kind
// a price: high where such jobs are rare and any room will do, zero where more come than can be
// placed. A GPU with rest r is then worth the best filling of r by jobs at value minus price, which
// a knapsack recursion over r yields for all r at once. CPUs enter by a second price, per node: a
// node is worth the least, over a few CPU prices (the lanes), of its GPUs' worth at that price plus
// its CPUs' cost.
//
// Everything is softened by a temperature (log-sum-exp for max), which makes the prices smooth and
// unique and values a rest also for being useful to many kinds.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/cluster.hpp"
#include "core/profile.hpp"

namespace aliquot::core {

class Prices {
 public:
  static constexpr std::size_t kLanes = 8;
  using Lanes = std::array<float, kLanes>;

  // Reads the kinds of jobs from the profile; prices them for this cluster as it is now.
  void start(const Cluster& cluster, const Profile& profile);
  // Brings the prices up to date after the cluster has filled or emptied a little.
  void update(const Cluster& cluster);

  // A GPU's worth at each CPU price depends on its model and its row: how much is left of it.
  [[nodiscard]] std::uint32_t row_of(const Cluster& cluster, NodeIndex node, GpuIndex gpu) const;
  [[nodiscard]] std::uint32_t row_after(const Cluster& cluster, NodeIndex node, GpuIndex gpu,
                                        const Portion& taken) const;
  [[nodiscard]] std::uint32_t empty_row() const { return 0; }
  [[nodiscard]] const Lanes& worth(std::uint8_t model, std::uint32_t row) const {
    return worth_[model * rows_per_model_ + row];
  }
  // What `free` wholly free GPUs of one node are worth together, beyond the sum: jobs that need
  // several at once.
  [[nodiscard]] const Lanes& together(std::uint8_t model, std::uint32_t free) const {
    return together_[model * (kMaxFree + 1) + std::min<std::uint32_t>(free, kMaxFree)];
  }
  // The least over the lanes of what the GPUs and the free CPUs are worth.
  [[nodiscard]] float node_worth(const Lanes& gpus, CpuMilli cpus) const {
    const auto free = static_cast<float>(cpus.value());
    float least = gpus[0] + cpu_price_[0] * free;
    for (std::size_t lane = 1; lane < kLanes; ++lane) {
      least = std::min(least, gpus[lane] + cpu_price_[lane] * free);
    }
    return least;
  }

 private:
  static constexpr std::uint32_t kMaxFree = 16;
  using Wide = std::array<double, kLanes>;

  // A kind of job that takes one GPU or a part of one, or several whole ones.
  struct Kind {
    double cpus = 0;
    double weight = 0;
    double value = 0;  // milli of GPU it uses, all GPUs together
    std::uint32_t gpus = 1;
    std::uint64_t models = 0;
    double price = 0;
    double discount = 1;  // of its weights, by the price
    double used = 0;      // by the current solution
  };
  // A kind on one model: its size there and its Boltzmann weight before the price.
  struct Member {
    std::size_t kind = 0;
    std::size_t size = 0;  // position in sizes; kWhole for a whole GPU
    double value = 0;
    Wide factor = {};
  };
  struct ModelTable {
    std::vector<std::uint32_t> sizes;  // levels that shares take, ascending
    std::vector<Member> members;
    std::vector<std::size_t> several;  // kinds of several whole GPUs
    std::vector<Wide> weights;         // by size
    Wide whole = {};
    std::vector<double> tame_steps;  // by size: what a step shrinks by if growth is just bearable
    Wide growth = {};                // by how many powers of e a level's measure exceeds the last
    Wide step = {};                  // from level to level without a job, in that measure
    std::vector<Wide> steps;         // and with one, by size
    std::vector<bool> sampled;       // by row: whether a sampled GPU is there
    std::uint32_t sampled_free = 0;  // bit by number of free GPUs: whether a sampled node has them
    std::vector<Wide> fillings;      // by level: the sum over all ways to fill it
    std::vector<Wide> mass;          // by row: GPUs of the sampled nodes that are there
    std::vector<Wide> free_nodes;    // by limit and number of free GPUs: nodes that have them
    std::vector<Wide> size_used;
    Wide whole_used = {};
  };
  struct SampledNode {
    double cpus = 0;
    double weight = 1;
    std::uint8_t model = 0;  // of its first GPU; free GPUs of this model count together
    std::uint32_t free = 0;
    std::uint32_t free_row = 0;
    std::vector<std::pair<std::uint8_t, std::uint32_t>> gpus;  // model and row
  };

  void learn(const Cluster& cluster, const Profile& profile);
  void add_members(const Cluster& cluster, const Shape& shape, std::size_t kind);
  void find_models(const Cluster& cluster);
  void set_temperature(double temperature);
  std::vector<SampledNode> sample(const Cluster& cluster);
  void iterate(const std::vector<SampledNode>& nodes, double jobs, int times);
  enum class Rows : std::uint8_t { all, sampled };
  void tabulate(Rows which);
  void set_growth(ModelTable& table) const;
  static double whole_at(const ModelTable& table, std::uint32_t level, std::size_t lane);
  void tabulate_together(std::uint8_t model, Rows which);
  double several_gain(const Kind& kind, std::uint32_t free, float whole_worth,
                      float cpu_price) const;
  void spread(const std::vector<SampledNode>& nodes);
  void spread_free(std::uint8_t model);
  void spread_model(ModelTable& table);
  void collect();
  double expected_jobs(const Cluster& cluster) const;

  [[nodiscard]] std::uint32_t free_row(Compute limit) const;

  std::vector<Kind> kinds_;
  std::vector<std::pair<NodeIndex, GpuIndex>> first_gpus_;  // one of each model
  std::vector<ModelTable> tables_;                          // by model
  std::vector<Compute> limits_;                             // distinct compute limits of the nodes
  std::uint32_t levels_ = 0;                                // of the largest limit
  std::uint32_t most_free_ = 0;                             // GPUs on one node, up to kMaxFree
  std::size_t rows_per_model_ = 0;
  std::vector<Lanes> worth_;
  std::vector<Lanes> together_;
  Lanes cpu_price_ = {};
  double temperature_ = 0;
};

}  // namespace aliquot::core
