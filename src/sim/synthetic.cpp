#include "sim/synthetic.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "sim/random.hpp"

namespace aliquot::sim {
namespace {

struct NodeKind {
  std::string_view model;
  std::int64_t gpus;
  std::int64_t cpus;
  std::int64_t memory_gib;
  std::uint64_t weight;
};

// About five GPUs a node and 18 CPUs a GPU.
constexpr std::array<NodeKind, 8> kNodeKinds = {{{"volta32", 8, 96, 768, 30},
                                                 {"ampere80", 8, 128, 1024, 12},
                                                 {"turing16", 4, 80, 320, 18},
                                                 {"turing16", 2, 96, 512, 14},
                                                 {"pascal16", 2, 56, 256, 10},
                                                 {"ampere24", 4, 128, 512, 8},
                                                 {"volta16", 4, 64, 256, 6},
                                                 {"hopper80", 8, 192, 1536, 2}}};

struct Weighted {
  std::int64_t value;
  std::uint64_t weight;
};

constexpr std::array<Weighted, 14> kShareMilli = {{{50, 6},
                                                   {100, 12},
                                                   {125, 5},
                                                   {200, 10},
                                                   {250, 14},
                                                   {300, 6},
                                                   {340, 4},
                                                   {400, 7},
                                                   {500, 16},
                                                   {600, 5},
                                                   {700, 3},
                                                   {750, 4},
                                                   {850, 5},
                                                   {900, 3}}};
constexpr std::array<Weighted, 3> kMultiGpus = {{{2, 35}, {4, 30}, {8, 35}}};
// CPUs by what the pod wants of GPUs.
constexpr std::array<Weighted, 6> kShareCpus = {
    {{1, 10}, {2, 20}, {4, 30}, {6, 15}, {8, 20}, {16, 5}}};
constexpr std::array<Weighted, 6> kWholeCpus = {
    {{4, 12}, {6, 10}, {8, 30}, {12, 25}, {16, 18}, {32, 5}}};
constexpr std::array<Weighted, 6> kCpuOnlyCpus = {
    {{1, 20}, {2, 20}, {4, 25}, {8, 20}, {16, 10}, {32, 5}}};
constexpr std::array<Weighted, 4> kMibPerCpu = {{{1024, 15}, {2048, 35}, {4096, 40}, {6144, 10}}};

// One of them, each as often as its weight says.
template <class Kind, std::size_t n>
const Kind& pick(Random& random, const std::array<Kind, n>& from) {
  std::uint64_t sum = 0;
  for (const auto& kind : from) sum += kind.weight;
  std::uint64_t draw = random.below(sum);
  for (const auto& kind : from) {
    if (draw < kind.weight) return kind;
    draw -= kind.weight;
  }
  return from.back();
}

TraceNode draw_node(Random& random, std::int64_t number) {
  const NodeKind& kind = pick(random, kNodeKinds);
  return {.name = fmt::format("node-{:05}", number),
          .cpus = kOneCpu * kind.cpus,
          .memory = gib(kind.memory_gib),
          .gpus = kind.gpus,
          .model = std::string(kind.model)};
}

TracePod draw_pod(Random& random, std::int64_t number, const SyntheticKnobs& knobs) {
  TracePod pod;
  pod.name = fmt::format("pod-{:06}", number);
  const auto draw = static_cast<std::int64_t>(random.below(1'000));
  std::int64_t cpus = 0;
  if (draw < knobs.cpu_only) {
    cpus = pick(random, kCpuOnlyCpus).value;
  } else if (draw < knobs.cpu_only + knobs.share) {
    pod.gpus = 1;
    pod.gpu_milli = pick(random, kShareMilli).value;
    cpus = pick(random, kShareCpus).value;
  } else {
    const bool multi = draw < knobs.cpu_only + knobs.share + knobs.multi;
    pod.gpus = multi ? pick(random, kMultiGpus).value : 1;
    pod.gpu_milli = kMilliPerGpu;
    // Large pods keep to 12 CPUs a GPU, or no node would ever have enough.
    cpus = multi ? pod.gpus * std::min<std::int64_t>(12, pick(random, kWholeCpus).value)
                 : pick(random, kWholeCpus).value;
  }
  pod.cpus = kOneCpu * cpus;
  pod.memory = mib(cpus * pick(random, kMibPerCpu).value);
  if (pod.gpus > 0 && random.chance(knobs.spec)) {
    // A large pod only names models that come that many to a node.
    const std::size_t wanted = 1 + random.below(2);
    while (pod.models.size() < wanted) {
      const NodeKind& kind = pick(random, kNodeKinds);
      const std::string model(kind.model);
      if (kind.gpus < pod.gpus) continue;
      if (std::find(pod.models.begin(), pod.models.end(), model) == pod.models.end()) {
        pod.models.push_back(model);
      }
    }
    std::sort(pod.models.begin(), pod.models.end());
  }
  return pod;
}

}  // namespace

Result<SyntheticTrace> generate_trace(const SyntheticKnobs& knobs) {
  if (knobs.nodes < 1 || knobs.nodes > 1'000'000) {
    return fail(Error::Code::invalid_argument, "the number of nodes must be from 1 to 1000000");
  }
  if (knobs.pods < 1 || knobs.pods > 10'000'000) {
    return fail(Error::Code::invalid_argument, "the number of pods must be from 1 to 10000000");
  }
  for (const auto part : {knobs.share, knobs.multi, knobs.cpu_only, knobs.spec}) {
    if (part < 0 || part > 1'000) {
      return fail(Error::Code::invalid_argument, "a part of the pods must be from 0 % to 100 %");
    }
  }
  if (knobs.share + knobs.multi + knobs.cpu_only > 1'000) {
    return fail(Error::Code::invalid_argument,
                "shares, multi-GPU and CPU-only pods together are more than 100 % of the pods");
  }
  // Nodes and pods from separate streams: more nodes do not change the pods.
  Random node_random(knobs.seed);
  Random pod_random(~knobs.seed);
  SyntheticTrace trace;
  for (std::int64_t i = 0; i < knobs.nodes; ++i) trace.nodes.push_back(draw_node(node_random, i));
  for (std::int64_t i = 0; i < knobs.pods; ++i) {
    trace.pods.push_back(draw_pod(pod_random, i, knobs));
  }
  return trace;
}

}  // namespace aliquot::sim
