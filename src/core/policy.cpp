#include "core/policy.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "base/text.hpp"
#include "core/policy/all.hpp"

namespace aliquot::core {
namespace {

struct Known {
  PolicyInfo info;
  std::unique_ptr<Policy> (*make)(const Profile&);
};

template <auto Make>
std::unique_ptr<Policy> without_profile(const Profile&) {
  return Make();
}

const std::vector<Known>& entries() {
  static const std::vector<Known> all = {
      {{"aliquot", "prices every rest by the jobs that could still use it; the default"},
       make_aliquot},
      {{"least-occupied", "the GPU with the fewest jobs"}, without_profile<make_least_occupied>},
      {{"least-utilised", "the GPU that is really least busy"},
       without_profile<make_least_utilised>},
      {{"best-fit", "the node left with the least CPU and GPU"}, without_profile<make_best_fit>},
      {{"dot-product", "the node least in line with the request"},
       without_profile<make_dot_product>},
      {{"gpu-packing", "used GPUs first, then used nodes"}, without_profile<make_gpu_packing>},
      {{"gpu-clustering", "jobs of one size together"}, without_profile<make_gpu_clustering>},
      {{"fgd", "fragmentation gradient descent"}, make_fgd},
  };
  return all;
}

}  // namespace

std::vector<GpuIndex> Policy::choose(const Cluster& cluster, const Shape& shape,
                                     const Candidates& fit) {
  const auto gpus = cluster.gpus(fit.node);
  std::vector<GpuIndex> order = fit.gpus;
  std::ranges::stable_sort(order, {}, [&](GpuIndex gpu) { return gpus[gpu].compute_free; });
  order.resize(shape.count);
  return order;
}

std::vector<PolicyInfo> policies() {
  std::vector<PolicyInfo> all;
  for (const Known& entry : entries()) all.push_back(entry.info);
  return all;
}

Result<std::unique_ptr<Policy>> make_policy(std::string_view name, const Profile& profile) {
  std::vector<std::string_view> names;
  for (const Known& entry : entries()) {
    if (entry.info.name == name) return entry.make(profile);
    names.push_back(entry.info.name);
  }
  return fail(Error::Code::not_found, "no placement policy {}; there are: {}", quote(name),
              fmt::join(names, ", "));
}

}  // namespace aliquot::core
