#include "core/policy/used_first.hpp"

#include <algorithm>
#include <utility>

namespace aliquot::core {
namespace {

class UsedFirst final : public Policy {
 public:
  explicit UsedFirst(std::unique_ptr<Policy> inner)
      : Policy(inner->name()), inner_(std::move(inner)) {}

  bool prepare(const Cluster& cluster) override {
    if (cluster.size() == nodes_ && cluster.gpu_count() == gpus_) return false;
    nodes_ = cluster.size();
    gpus_ = cluster.gpu_count();
    std::vector<Node> nodes;
    for (NodeIndex node = 0; node < cluster.size(); ++node) nodes.push_back(cluster.node(node));
    const auto empty = Cluster::create(std::move(nodes));
    return inner_->prepare(empty ? *empty : cluster);
  }

  double score(const Cluster& cluster, const Shape& shape, const Candidates& fit) override {
    return inner_->score(cluster, shape, narrowed(cluster, shape, fit));
  }
  std::vector<GpuIndex> choose(const Cluster& cluster, const Shape& shape,
                               const Candidates& fit) override {
    return inner_->choose(cluster, shape, narrowed(cluster, shape, fit));
  }

 private:
  static Candidates narrowed(const Cluster& cluster, const Shape& shape, const Candidates& fit) {
    Candidates used = fit;
    if (shape.kind != Shape::Kind::share) return used;
    const auto gpus = cluster.gpus(fit.node);
    std::erase_if(used.gpus, [&](GpuIndex gpu) { return gpus[gpu].jobs == 0; });
    return used.gpus.size() >= shape.count ? used : fit;
  }

  std::unique_ptr<Policy> inner_;
  std::size_t nodes_ = 0;
  std::size_t gpus_ = 0;
};

}  // namespace

std::unique_ptr<Policy> used_first(std::unique_ptr<Policy> inner) {
  return std::make_unique<UsedFirst>(std::move(inner));
}

}  // namespace aliquot::core
