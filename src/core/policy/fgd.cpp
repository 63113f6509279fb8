#include <algorithm>
#include <cmath>
#include <tuple>

#include "core/policy/makers.hpp"
#include "core/policy/published.hpp"

namespace aliquot::core {
namespace {

using published::milli;

// Fragmentation gradient descent: the place that adds least to what a typical job could not use.
class Fgd final : public Policy {
 public:
  explicit Fgd(Profile profile) : Policy("fgd"), profile_(std::move(profile)) {}

  bool prepare(const Cluster& cluster) override {
    if (known_models_ == cluster.model_count()) return false;
    known_models_ = cluster.model_count();
    learn(cluster);
    return true;
  }

  double score(const Cluster& cluster, const Shape& shape, const Candidates& fit) override {
    return best(cluster, shape, fit).score;
  }

  std::vector<GpuIndex> choose(const Cluster& cluster, const Shape& shape,
                               const Candidates& fit) override {
    return best(cluster, shape, fit).gpus;
  }

 private:
  struct Typical {
    std::int64_t cpus = 0;
    std::int64_t milli = 0;  // on each GPU; 0: CPU only
    std::uint32_t count = 0;
    std::vector<std::string> names;  // of models, as they were asked for
    std::uint64_t models = 0;
    double weight = 0;

    // The published kinds: requests that name their models differently are not the same.
    [[nodiscard]] auto kind() const { return std::tie(cpus, milli, count, names); }
  };
  struct Choice {
    double score = -1;
    std::vector<GpuIndex> gpus;
  };
  // One node as the published policy sees it: milli left on each GPU.
  struct View {
    std::int64_t cpus = 0;
    std::vector<std::int64_t> left;
    std::vector<std::uint8_t> models;
  };

  static constexpr double kTypicalPart = 0.95;

  void learn(const Cluster& cluster) {
    typical_.clear();
    double total = 0;
    for (const ProfileEntry& entry : profile_) {
      const auto shape = cluster.shape(entry.request);
      if (!shape) continue;  // a model that this cluster does not have
      if (!std::isnormal(entry.weight) || entry.weight < 0) continue;
      if (!std::isfinite(total + entry.weight)) continue;
      total += entry.weight;
      Typical kind{shape->cpus.value(),
                   asked_milli(cluster, *shape),
                   shape->count,
                   entry.request.gpus ? entry.request.gpus->models : std::vector<std::string>(),
                   shape->models,
                   entry.weight};
      const auto same = std::ranges::find_if(
          typical_, [&](const Typical& other) { return other.kind() == kind.kind(); });
      if (same == typical_.end()) {
        typical_.push_back(std::move(kind));
      } else {
        same->weight += kind.weight;
      }
    }
    // Of two kinds equally frequent the larger one is the more typical.
    std::ranges::sort(typical_, [](const Typical& a, const Typical& b) {
      return a.weight != b.weight ? a.weight > b.weight : a.kind() > b.kind();
    });
    double kept = 0;
    const auto last = std::ranges::find_if(typical_, [&](const Typical& kind) {
      if (kept >= kTypicalPart * total) return true;
      kept += kind.weight;
      return false;
    });
    typical_.erase(last, typical_.end());
    for (Typical& kind : typical_) kind.weight = kind.weight / total / (kept / total);
  }

  // The share's milli on the first GPU that could hold it: exact where compute was asked for.
  static std::int64_t asked_milli(const Cluster& cluster, const Shape& shape) {
    if (shape.kind == Shape::Kind::no_gpu) return 0;
    if (shape.kind == Shape::Kind::whole) return static_cast<std::int64_t>(published::kGpuMilli);
    for (NodeIndex node = 0; node < cluster.size(); ++node) {
      const Node& host = cluster.node(node);
      for (GpuIndex gpu = 0; gpu < host.gpus.size(); ++gpu) {
        if (((shape.models >> cluster.gpus(node)[gpu].model) & 1U) == 0) continue;
        if (const auto portion = portion_on(shape.what, host, host.gpus[gpu])) {
          return milli(portion->compute);
        }
      }
    }
    return static_cast<std::int64_t>(published::kGpuMilli);
  }

  // Summed by what is lacking, as published: where a placement changes nothing, what rounding
  // leaves of it decides between 49 and 50 points.
  [[nodiscard]] double fragments() const {
    std::int64_t idle = 0;
    for (const std::int64_t left : view_.left) idle += left;
    double both = 0;
    double gpus = 0;
    double cpus = 0;
    double asks_none = 0;
    double asks_none_lacks_cpus = 0;
    double model = 0;
    for (const Typical& kind : typical_) {
      const bool enough_cpus = kind.cpus <= view_.cpus;
      const auto all = kind.weight * static_cast<double>(idle);
      if (kind.count == 0) {
        (enough_cpus ? asks_none : asks_none_lacks_cpus) += all;
        continue;
      }
      std::int64_t unfit = 0;
      std::uint32_t fitting = 0;
      bool right_model = false;
      for (std::size_t gpu = 0; gpu < view_.left.size(); ++gpu) {
        const bool right = ((kind.models >> view_.models[gpu]) & 1U) != 0;
        right_model = right_model || right;
        if (right && view_.left[gpu] >= kind.milli) {
          ++fitting;
        } else {
          unfit += view_.left[gpu];
        }
      }
      if (!right_model) {
        model += all;
      } else if (fitting < kind.count) {
        (enough_cpus ? gpus : both) += all;
      } else if (!enough_cpus) {
        cpus += all;
      } else {
        gpus += kind.weight * static_cast<double>(unfit);
      }
    }
    return both + gpus + cpus + asks_none + asks_none_lacks_cpus + model;
  }

  // The gain in the published scale: whole points of 100 times a sigmoid.
  [[nodiscard]] double gain(double before) const {
    const double part = 1 / (1 + std::exp((fragments() - before) / published::kGpuMilli));
    return static_cast<int>(part * 100);
  }

  Choice best(const Cluster& cluster, const Shape& shape, const Candidates& fit) {
    view_.cpus = cluster.state(fit.node).cpus_free.value();
    view_.left.clear();
    view_.models.clear();
    const auto gpus = cluster.gpus(fit.node);
    for (GpuIndex gpu = 0; gpu < gpus.size(); ++gpu) {
      view_.left.push_back(gpus[gpu].usable ? milli(gpus[gpu].compute_free) : 0);
      view_.models.push_back(gpus[gpu].model);
    }
    const double before = fragments();
    view_.cpus -= shape.cpus.value();

    Choice choice;
    if (shape.kind != Shape::Kind::share) {
      choice.gpus.assign(fit.gpus.begin(), fit.gpus.begin() + shape.count);
      for (const GpuIndex gpu : choice.gpus) view_.left[gpu] = 0;
      choice.score = gain(before);
      return choice;
    }
    // One share after the other, each on the GPU that is best for it.
    std::vector<GpuIndex> open = fit.gpus;
    for (std::uint32_t part = 0; part < shape.count; ++part) {
      double best_gain = -1;
      std::size_t best_at = 0;
      for (std::size_t at = 0; at < open.size(); ++at) {
        const std::int64_t left = view_.left[open[at]];
        // GPUs in the same state score the same: only the first of them is tried.
        const bool seen = std::any_of(
            open.begin(), open.begin() + static_cast<std::ptrdiff_t>(at), [&](GpuIndex gpu) {
              return view_.left[gpu] == left && view_.models[gpu] == view_.models[open[at]];
            });
        if (seen) continue;
        view_.left[open[at]] = left - share_on(cluster, shape, fit.node, open[at]);
        const double here = gain(before);
        view_.left[open[at]] = left;
        if (here > best_gain) {
          best_gain = here;
          best_at = at;
        }
      }
      const GpuIndex gpu = open[best_at];
      view_.left[gpu] -= share_on(cluster, shape, fit.node, gpu);
      choice.gpus.push_back(gpu);
      choice.score = best_gain;
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(best_at));
    }
    return choice;
  }

  static std::int64_t share_on(const Cluster& cluster, const Shape& shape, NodeIndex node,
                               GpuIndex gpu) {
    const Node& host = cluster.node(node);
    const auto portion = portion_on(shape.what, host, host.gpus[gpu]);
    return portion ? milli(portion->compute) : 0;
  }

  Profile profile_;
  std::vector<Typical> typical_;
  std::size_t known_models_ = 0;
  View view_;
};

}  // namespace

std::unique_ptr<Policy> make_fgd(const Profile& profile) { return std::make_unique<Fgd>(profile); }

}  // namespace aliquot::core
