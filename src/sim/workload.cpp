#include "sim/workload.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_set>

#include "base/text.hpp"

namespace aliquot::sim {
namespace {

// The traces do not say how much memory a GPU has. Shares take an explicit nothing of it, so any
// amount does.
constexpr Bytes kGpuMemory = gib(16);

core::Node make_node(const TraceNode& from, std::int64_t copy, Compute compute_limit) {
  const auto name = copy == 0 ? from.name : fmt::format("{}@{}", from.name, copy + 1);
  core::Node node{.id = NodeId(name),
                  .cpus = from.cpus,
                  .memory = from.memory,
                  .gpus = {},
                  .compute_limit = compute_limit};
  for (std::int64_t i = 0; i < from.gpus; ++i) {
    node.gpus.push_back(core::Gpu{
        .id = GpuId(fmt::format("GPU-{}-{}", name, i)), .model = from.model, .memory = kGpuMemory});
  }
  return node;
}

// Models in lower case, as the core compares them.
std::vector<std::string> known_models(const std::vector<std::string>& models,
                                      const std::unordered_set<std::string>& known) {
  std::vector<std::string> left;
  for (const auto& model : models) {
    if (known.count(to_lower(model)) != 0) left.push_back(model);
  }
  std::sort(left.begin(), left.end());
  return left.empty() ? models : left;
}

core::Request make_request(const TracePod& pod, const std::unordered_set<std::string>& known) {
  core::Request request{.gpus = std::nullopt, .cpus = pod.cpus, .memory = pod.memory};
  if (pod.gpus == 0) return request;
  core::GpuRequest gpus{.count = pod.gpus, .what = core::WholeGpu{}, .models = {}};
  if (pod.gpus == 1 && pod.gpu_milli < kMilliPerGpu) {
    const Compute compute = scale_down(kWholeGpu, pod.gpu_milli, kMilliPerGpu);
    gpus.what = core::Amounts{.memory = Bytes(0), .compute = compute};
  }
  gpus.models = known_models(pod.models, known);
  request.gpus = std::move(gpus);
  return request;
}

}  // namespace

Result<Workload> make_workload(const std::vector<TraceNode>& nodes,
                               const std::vector<TracePod>& pods, std::int64_t scale,
                               Compute compute_limit) {
  Workload workload;
  std::unordered_set<std::string> models;
  workload.nodes.reserve(nodes.size() * static_cast<std::size_t>(scale));
  for (std::int64_t copy = 0; copy < scale; ++copy) {
    for (const auto& node : nodes) {
      workload.nodes.push_back(make_node(node, copy, compute_limit));
      workload.gpus += node.gpus;
      if (node.gpus > 0) models.insert(to_lower(node.model));
    }
  }
  if (workload.gpus == 0) return fail(Error::Code::invalid_argument, "no node has a GPU");

  using Key =
      std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::vector<std::string>>;
  std::map<Key, std::uint32_t> seen;
  std::vector<double> counts;
  std::int64_t wanted = 0;
  for (const auto& pod : pods) {
    core::Request request = make_request(pod, models);
    auto names = request.gpus ? request.gpus->models : std::vector<std::string>();
    Key key(pod.cpus.value(), pod.memory.value(), pod.gpus, requested_milli(pod), std::move(names));
    const auto next = static_cast<std::uint32_t>(workload.kinds.size());
    const auto [found, fresh] = seen.emplace(std::move(key), next);
    if (fresh) {
      workload.kinds.push_back({std::move(request), requested_milli(pod)});
      counts.push_back(0);
    }
    counts[found->second] += 1;
    workload.pods.push_back(found->second);
    wanted += requested_milli(pod);
  }
  if (wanted == 0) return fail(Error::Code::invalid_argument, "no pod asks for a GPU");

  for (std::size_t i = 0; i < workload.kinds.size(); ++i) {
    workload.profile.push_back({workload.kinds[i].request, counts[i]});
  }
  std::stable_sort(workload.profile.begin(), workload.profile.end(),
                   [](const auto& a, const auto& b) { return a.weight > b.weight; });

  const auto once = workload.pods;
  for (std::int64_t copy = 1; copy < scale; ++copy) {
    workload.pods.insert(workload.pods.end(), once.begin(), once.end());
  }
  return workload;
}

}  // namespace aliquot::sim
