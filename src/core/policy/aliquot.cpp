#include <algorithm>
#include <cmath>

#include "core/policy/makers.hpp"
#include "core/policy/prices.hpp"

namespace aliquot::core {
namespace {

// Takes the place whose loss of worth is least, by the prices of what usually comes.
class Aliquot final : public Policy {
 public:
  explicit Aliquot(Profile profile) : Policy("aliquot"), profile_(std::move(profile)) {}

  bool prepare(const Cluster& cluster) override {
    if (cluster.size() != priced_nodes_ || cluster.gpu_count() != priced_gpus_) {
      prices_.start(cluster, profile_);
    } else {
      const auto free = static_cast<double>(cluster.compute_free().value());
      const auto priced = static_cast<double>(priced_free_.value());
      const auto total = static_cast<double>(cluster.compute_total().value());
      const double slack = std::max(kRepriceAt * priced, kCrumbs * total);
      if (std::abs(free - priced) <= slack) return false;
      prices_.update(cluster);
    }
    priced_nodes_ = cluster.size();
    priced_gpus_ = cluster.gpu_count();
    priced_free_ = cluster.compute_free();
    return true;
  }

  double score(const Cluster& cluster, const Shape& shape, const Candidates& fit) override {
    return place(cluster, shape, fit, nullptr);
  }

  std::vector<GpuIndex> choose(const Cluster& cluster, const Shape& shape,
                               const Candidates& fit) override {
    std::vector<GpuIndex> chosen;
    place(cluster, shape, fit, &chosen);
    return chosen;
  }

 private:
  using Lanes = Prices::Lanes;
  // Prices hold until what is free has changed by this part of itself…
  static constexpr double kRepriceAt = 0.05;
  // …or, on a full cluster, by this part of the whole.
  static constexpr double kCrumbs = 0.001;

  // How much a job without GPUs shuns the free GPUs of a node, beside the price of its CPUs.
  static constexpr float kSpareGpus = 0.1F;

  static void add(Lanes& sums, const Lanes& more) {
    for (std::size_t lane = 0; lane < Prices::kLanes; ++lane) sums[lane] += more[lane];
  }
  static void replace(Lanes& sums, const Lanes& old, const Lanes& now) {
    for (std::size_t lane = 0; lane < Prices::kLanes; ++lane) sums[lane] += now[lane] - old[lane];
  }

  // The node's worth after placing minus its worth before.
  double place(const Cluster& cluster, const Shape& shape, const Candidates& fit,
               std::vector<GpuIndex>* chosen) {
    const NodeIndex node = fit.node;
    const CpuMilli cpus = cluster.state(node).cpus_free;
    const auto gpus = cluster.gpus(node);
    const std::uint8_t main_model = gpus.empty() ? std::uint8_t{0} : gpus[0].model;
    const auto node_worth = [&](Lanes gpu_worth, std::uint32_t free_gpus, CpuMilli free_cpus) {
      if (!gpus.empty()) add(gpu_worth, prices_.together(main_model, free_gpus));
      return prices_.node_worth(gpu_worth, free_cpus);
    };
    NodeNote scratch;
    NodeNote& note = fit.note != nullptr ? *fit.note : scratch;
    if (!note.written) {
      note = {.written = true};
      for (GpuIndex gpu = 0; gpu < gpus.size(); ++gpu) {
        add(note.lanes, prices_.worth(gpus[gpu].model, prices_.row_of(cluster, node, gpu)));
        if (gpus[gpu].free() && gpus[gpu].model == main_model) ++note.count;
      }
      note.sum = node_worth(note.lanes, note.count, cpus);
    }
    Lanes sums = note.lanes;
    std::uint32_t free = note.count;
    const float before = note.sum;
    if (shape.kind == Shape::Kind::no_gpu) {
      // Where CPUs are plenty, best beside GPUs that are used up.
      return static_cast<double>(node_worth(sums, free, cpus - shape.cpus) - before -
                                 kSpareGpus * sums[0]);
    }

    if (shape.kind == Shape::Kind::whole) {
      for (std::uint32_t i = 0; i < shape.count; ++i) {
        const GpuIndex gpu = fit.gpus[i];
        const std::uint8_t model = gpus[gpu].model;
        replace(sums, prices_.worth(model, prices_.row_of(cluster, node, gpu)),
                prices_.worth(model, prices_.empty_row()));
        if (model == main_model) --free;
      }
      if (chosen != nullptr) chosen->assign(fit.gpus.begin(), fit.gpus.begin() + shape.count);
    } else {
      open_ = fit.gpus;
      for (std::uint32_t part = 0; part < shape.count; ++part) {
        float best = 0;
        std::size_t best_at = open_.size();
        Lanes best_sums = {};
        std::uint32_t best_free = 0;
        tried_.clear();
        for (std::size_t at = 0; at < open_.size(); ++at) {
          const GpuIndex gpu = open_[at];
          const std::uint8_t model = gpus[gpu].model;
          const Portion portion =
              *portion_of(shape.what, gpus[gpu].memory, cluster.state(node).units);
          const std::uint32_t now = prices_.row_of(cluster, node, gpu);
          const std::uint32_t after = prices_.row_after(cluster, node, gpu, portion);
          // GPUs in the same state are worth the same: only the first of them is tried.
          const Change change{model, now, after};
          if (std::ranges::find(tried_, change) != tried_.end()) continue;
          tried_.push_back(change);
          Lanes here = sums;
          replace(here, prices_.worth(model, now), prices_.worth(model, after));
          const std::uint32_t left = free - (gpus[gpu].free() && model == main_model ? 1 : 0);
          const float worth = node_worth(here, left, cpus - shape.cpus);
          if (best_at == open_.size() || worth > best) {
            best = worth;
            best_at = at;
            best_sums = here;
            best_free = left;
          }
        }
        sums = best_sums;
        free = best_free;
        if (chosen != nullptr) chosen->push_back(open_[best_at]);
        open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(best_at));
      }
    }
    return static_cast<double>(node_worth(sums, free, cpus - shape.cpus) - before);
  }

  struct Change {
    std::uint8_t model;
    std::uint32_t now;
    std::uint32_t after;
    friend bool operator==(const Change&, const Change&) = default;
  };

  Profile profile_;
  Prices prices_;
  Compute priced_free_;
  std::size_t priced_nodes_ = 0;
  std::size_t priced_gpus_ = 0;
  std::vector<GpuIndex> open_;
  std::vector<Change> tried_;
};

}  // namespace

std::unique_ptr<Policy> make_aliquot(const Profile& profile) {
  return std::make_unique<Aliquot>(profile);
}

}  // namespace aliquot::core
