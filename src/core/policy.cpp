#include "core/policy.hpp"

#include <fmt/ranges.h>

#include <array>

#include "base/text.hpp"
#include "core/policy/makers.hpp"

namespace aliquot::core {
namespace {

struct Known {
  PolicyInfo info;
  std::unique_ptr<Policy> (*make)(const Profile&);
};

constexpr std::array kPolicies = {
    Known{{"aliquot", "prices every rest by the jobs that could still use it; the default"},
          make_aliquot},
    Known{{"least-occupied", "the GPU with the fewest jobs"}, make_least_occupied},
    Known{{"least-utilised", "the GPU that is really least busy"}, make_least_utilised},
    Known{{"best-fit", "the node left with the least CPU and GPU"}, make_best_fit},
    Known{{"dot-product", "the node least in line with the request"}, make_dot_product},
    Known{{"gpu-packing", "used GPUs first, then used nodes"}, make_gpu_packing},
    Known{{"gpu-clustering", "jobs of one size together"}, make_gpu_clustering},
    Known{{"fgd", "fragmentation gradient descent"}, make_fgd},
};

}  // namespace

std::vector<GpuIndex> tightest(const Cluster& cluster, const Shape& shape, const Candidates& fit) {
  const auto gpus = cluster.gpus(fit.node);
  return take_least(fit, shape.count, [&](GpuIndex gpu) { return gpus[gpu].compute_free; });
}

std::vector<PolicyInfo> policies() {
  std::vector<PolicyInfo> all;
  for (const Known& entry : kPolicies) all.push_back(entry.info);
  return all;
}

Result<std::unique_ptr<Policy>> make_policy(std::string_view name, const Profile& profile) {
  std::vector<std::string_view> names;
  for (const Known& entry : kPolicies) {
    if (entry.info.name == name) return entry.make(profile);
    names.push_back(entry.info.name);
  }
  return fail(Error::Code::not_found, "no placement policy {}; there are: {}", quote(name),
              fmt::join(names, ", "));
}

}  // namespace aliquot::core
