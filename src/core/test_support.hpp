// For the tests of core: small clusters in few words, and random histories as dice that a property
// throws and a test reads, so that a failing history shrinks to a short one.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "core/ledger.hpp"
#include "core/placement.hpp"

namespace aliquot::core::test {

// One step of a history: numbers that a test turns into choices, one after the other.
using Step = std::array<std::uint16_t, 16>;

class Dice {
 public:
  explicit Dice(const Step& step) : step_(step) {}
  // 0 … sides - 1; small numbers are what failures shrink to.
  std::uint32_t operator()(std::size_t sides) {
    return static_cast<std::uint32_t>(step_[next_++ % step_.size()] % sides);
  }
  bool rarely() { return (*this)(16) == 15; }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[(*this)(values.size())];
  }

 private:
  Step step_;
  std::size_t next_ = 0;
};

// Up to `longest` steps with dice that are fair at every size of the test case.
inline rc::Gen<std::vector<Step>> histories(int longest) {
  const auto number = rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::uint16_t>(0, 65'520));
  return rc::gen::scale(static_cast<double>(longest) / rc::kNominalSize,
                        rc::gen::container<std::vector<Step>>(rc::gen::container<Step>(number)));
}

inline Gpu gpu(std::string id, Bytes memory = gib(24), std::string model = "a10") {
  return {.id = GpuId(std::move(id)), .model = std::move(model), .memory = memory};
}

inline std::vector<Gpu> gpus(std::size_t count, Bytes memory = gib(24), std::string model = "a10") {
  std::vector<Gpu> all;
  for (std::size_t i = 0; i < count; ++i) {
    all.push_back(gpu(fmt::format("GPU-{}", i), memory, model));
  }
  return all;
}

inline Node node(std::string name, std::vector<Gpu> gpus, CpuMilli cpus = kOneCpu * 64) {
  return {.id = NodeId(std::move(name)), .cpus = cpus, .memory = gib(256), .gpus = std::move(gpus)};
}

inline Cluster cluster_of(std::vector<Node> nodes) {
  return Cluster::create(std::move(nodes)).value();
}

inline Request wholes(std::int64_t count, std::vector<std::string> models = {}) {
  return {.gpus = GpuRequest{.count = count, .what = WholeGpu{}, .models = std::move(models)},
          .cpus = CpuMilli(0),
          .memory = Bytes(0)};
}

inline Request share(std::optional<Bytes> memory, std::optional<Compute> compute,
                     std::int64_t count = 1, std::vector<std::string> models = {}) {
  return {.gpus = GpuRequest{.count = count,
                             .what = Amounts{.memory = memory, .compute = compute},
                             .models = std::move(models)},
          .cpus = CpuMilli(0),
          .memory = Bytes(0)};
}

inline Request with_cpus(Request request, CpuMilli cpus, Bytes memory = Bytes(0)) {
  request.cpus = cpus;
  request.memory = memory;
  return request;
}

// A GPU or node as a cluster may hold it, mixed models, empty memory and over-commit included.
inline Gpu some_gpu(Dice& dice, std::size_t number) {
  Gpu made = gpu(fmt::format("GPU-{}", number), dice.one_of<Bytes>({gib(24), gib(80), gib(11)}),
                 dice.one_of<std::string>({"a10", "A10", "h100", "v100"}));
  if (dice.rarely()) made.memory = Bytes(0);
  if (dice.rarely()) made.mig_profile = "1g.10gb";
  if (dice.rarely()) made.health = dice.one_of({Health::draining, Health::lost});
  return made;
}

inline Node some_node(Dice& dice, std::size_t number) {
  Node made = node(fmt::format("n{}", number), {}, kOneCpu * dice.one_of({16, 64, 4}));
  made.memory = dice.one_of<Bytes>({gib(64), gib(256)});
  made.compute_limit =
      dice.one_of<Compute>({kWholeGpu, kWholeGpu, Compute(11'300), Compute(20'000)});
  const std::uint32_t count = dice(5);
  for (std::uint32_t i = 0; i < count; ++i) made.gpus.push_back(some_gpu(dice, i));
  return made;
}

inline GpuUse share_of(GpuIndex gpu, Bytes memory, Compute compute) {
  return {.gpu = gpu, .portion = {memory, compute}, .whole = false};
}

inline GpuUse whole_of(const Node& node, GpuIndex gpu) {
  return {.gpu = gpu, .portion = {node.gpus[gpu].memory, node.compute_limit}, .whole = true};
}

// Anything a user might ask for; some of it fits nowhere.
inline Request some_request(Dice& dice) {
  Request request = with_cpus({}, dice.one_of({CpuMilli(0), kOneCpu, kOneCpu * 8}),
                              dice.one_of({Bytes(0), gib(4), gib(40)}));
  if (dice(8) == 7) return request;
  GpuRequest gpus;
  gpus.count = dice.one_of({1, 1, 1, 2, 3});
  switch (dice(8)) {
    case 0:
    case 1:
      gpus.what = WholeGpu{};
      break;
    case 2:
      gpus.what = Amounts{dice.one_of({gib(1), gib(8), gib(20), gib(80)}), std::nullopt};
      break;
    case 3:
      gpus.what = Amounts{dice.one_of({Bytes(0), gib(6), gib(11)}),
                          dice.one_of({Compute(0), Compute(500), Compute(9'999)})};
      break;
    case 4:
      gpus.what = Tickets{Tickets::Kind::mps, dice.one_of({1, 33, 100, 101})};
      break;
    case 5:
      gpus.what = Tickets{Tickets::Kind::shard, dice.one_of({1, 3, 8})};
      break;
    default:
      gpus.what = Amounts{std::nullopt, dice.one_of({Compute(2'500), Compute(3'333), Compute(5'000),
                                                     Compute(8'100), kWholeGpu})};
      break;
  }
  switch (dice(6)) {
    case 4:
      gpus.models = {"a10"};
      break;
    case 5:
      gpus.models = {"H100", "v100", "1g.10gb"};
      break;
    default:
      break;
  }
  request.gpus = gpus;
  return request;
}

// A cluster on which things happen beside placement: jobs end, GPUs come, fall ill and are watched.
struct World {
  Ledger ledger = Ledger(cluster_of({}));
  std::int64_t next_job = 1;
  std::int64_t now = 0;

  // A start for most histories: a few nodes at once.
  void settle(Dice& dice) {
    const std::uint32_t count = 1 + dice(4);
    for (std::uint32_t i = 0; i < count; ++i) {
      static_cast<void>(ledger.cluster().add_node(some_node(dice, i)));
    }
  }

  void happen(Dice& dice) {
    ++now;
    Cluster& cluster = ledger.cluster();
    const NodeIndex node = dice(std::max<std::size_t>(cluster.size(), 1));
    const GpuIndex gpu = dice(4);
    // What names no GPU is refused; nothing happens then.
    switch (dice(16)) {
      case 0:
        static_cast<void>(cluster.add_node(some_node(dice, cluster.size())));
        break;
      case 1:
        static_cast<void>(cluster.add_gpu(node, some_gpu(dice, 4 + dice(4))));
        break;
      case 2:
        static_cast<void>(cluster.set_health(
            node, gpu, dice.one_of({Health::ok, Health::ok, Health::draining, Health::lost})));
        break;
      case 3:
      case 4:
        static_cast<void>(
            cluster.observe(node, gpu,
                            {dice.one_of({Compute(0), Compute(5'000)}),
                             dice.one_of({Bytes(0), Bytes(0), gib(5), gib(500)}), MonoTime(now)}));
        break;
      case 5:
        cluster.expire_samples(MonoTime(now), Millis(dice(10)));
        break;
      case 6:
      case 7:
      case 8:
      case 9: {
        const auto jobs = ledger.jobs();
        if (!jobs.empty()) static_cast<void>(ledger.release(jobs[dice(jobs.size())]));
        break;
      }
      default:
        break;
    }
  }
};

// Everything that can be seen of one node, and of all of them.
inline std::string picture(const Cluster& cluster, NodeIndex index) {
  const Node& node = cluster.node(index);
  const NodeState& state = cluster.state(index);
  std::string text = fmt::format(
      "{}: cpus {}/{} memory {}/{} limit {} most {} free {} jobs {} {}\n", node.id, state.cpus_free,
      node.cpus, state.memory_free, node.memory, node.compute_limit, state.most_compute_free,
      state.free_gpus, state.jobs, fmt::join(state.jobs_by_gpus, ","));
  const auto states = cluster.gpus(index);
  for (GpuIndex i = 0; i < states.size(); ++i) {
    const GpuState& gpu = states[i];
    text += fmt::format(
        "  {} {} memory {}/{} compute {} jobs {} whole {} usable {} health {} stale {} sampled {} "
        "foreign {} utilisation {} taken {}\n",
        node.gpus[i].id, gpu.model, gpu.memory_free, node.gpus[i].memory, gpu.compute_free,
        gpu.jobs, gpu.whole, gpu.usable, static_cast<int>(node.gpus[i].health), gpu.stale,
        gpu.sampled, gpu.foreign_memory, gpu.utilisation, gpu.taken);
  }
  return text;
}

inline std::string picture(const Cluster& cluster) {
  std::string text = fmt::format("models {} compute {}/{}\n", cluster.model_count(),
                                 cluster.compute_free(), cluster.compute_total());
  for (NodeIndex node = 0; node < cluster.size(); ++node) text += picture(cluster, node);
  return text;
}

inline std::string picture(const Ledger& ledger) {
  std::string text = picture(ledger.cluster());
  for (const JobId job : ledger.jobs()) {
    const Use& use = *ledger.find(job);
    text += fmt::format("job {} node {} cpus {} memory {}\n", job, use.node, use.cpus, use.memory);
    for (const GpuUse& held : use.gpus) {
      text += fmt::format("  gpu {} memory {} compute {} whole {}\n", held.gpu, held.portion.memory,
                          held.portion.compute, held.whole);
    }
  }
  return text;
}

}  // namespace aliquot::core::test
