// A plan over ten thousand waiting jobs of twenty users: all of it, and the piece of it that one
// turn of the engine makes; and the decision that the engine takes at each turn.
#include <benchmark/benchmark.h>

#include <random>

#include "core/plan.hpp"

namespace aliquot::core {
namespace {

constexpr std::size_t kUsers = 20;

struct Situation {
  Cluster cluster;
  std::unique_ptr<Policy> policy;
  PlanInput input;
  std::vector<QueueEntry> queue;
  std::vector<RunningEntry> running;
};

Situation full_machine(std::int64_t waiting, std::size_t gpus) {
  Node node{.id = NodeId("n"), .cpus = CpuMilli(256'000), .memory = gib(2'048)};
  for (std::size_t i = 0; i < gpus; ++i) {
    node.gpus.push_back({.id = GpuId("GPU-" + std::to_string(i)), .model = "m", .memory = gib(80)});
  }
  Situation all{*Cluster::create({node}), *make_policy("aliquot", generic_profile()), {}, {}, {}};
  const auto shape = [&](GpuPart what, std::int64_t count) {
    return *all.cluster.shape({.gpus = GpuRequest{.count = count, .what = what, .models = {}},
                               .cpus = kOneCpu,
                               .memory = {}});
  };
  const std::vector<Shape> shapes{
      shape(WholeGpu{}, 1),
      shape(WholeGpu{}, 1),
      shape(WholeGpu{}, 2),
      shape(WholeGpu{}, 4),
      shape(Amounts{std::nullopt, Compute(1'000)}, 1),
      shape(Amounts{std::nullopt, Compute(2'500)}, 1),
      shape(Amounts{std::nullopt, Compute(5'000)}, 1),
  };
  const std::vector<std::int64_t> limits{10, 60, 120, 240, 720, 1'440};
  std::mt19937 dice(1);
  while (const auto use = place_by_scan(all.cluster, shapes[0], *all.policy)) {
    if (!all.cluster.take(*use)) break;
    const Millis left = minutes(1 + static_cast<std::int64_t>(dice() % 1'000));
    all.input.running.push_back({.job = JobId(std::ssize(all.running) + 1),
                                 .use = *use,
                                 .left = left,
                                 .sharer = dice() % kUsers});
    all.running.push_back({*use, left});
  }
  for (std::int64_t i = 0; i < waiting; ++i) {
    PlanEntry one;
    one.entry = {.job = JobId(1'000 + i),
                 .order = static_cast<std::uint64_t>(i),
                 .shape = shapes[dice() % shapes.size()],
                 .time_limit = minutes(limits[dice() % limits.size()])};
    one.urgency.sharer = dice() % kUsers;
    one.urgency.waited = seconds(waiting - i);
    all.queue.push_back(one.entry);
    all.input.waiting.push_back(std::move(one));
  }
  return all;
}

PriorityModel model() {
  std::vector<Sharer> sharers;
  for (std::size_t i = 0; i < kUsers; ++i) {
    sharers.push_back({.user = Uid(static_cast<std::uint32_t>(i)),
                       .shares = 1,
                       .usage = static_cast<double>(i) * 1e4,
                       .held = {}});
  }
  return {{}, days(7), sharers};
}

void whole_plan(benchmark::State& state) {
  const auto all = full_machine(state.range(0), 8);
  std::int64_t pieces = 0;
  for ([[maybe_unused]] auto turn : state) {
    Plan plan(all.cluster, model(), all.input, *all.policy);
    pieces = 1;
    while (!plan.advance(state.range(1))) ++pieces;
  }
  state.counters["pieces"] = static_cast<double>(pieces);
}

void first_piece(benchmark::State& state) {
  const auto all = full_machine(state.range(0), 8);
  for ([[maybe_unused]] auto turn : state) {
    Plan plan(all.cluster, model(), all.input, *all.policy);
    benchmark::DoNotOptimize(plan.advance(state.range(1)));
  }
}

void decision(benchmark::State& state) {
  const auto all = full_machine(state.range(0), 8);
  for ([[maybe_unused]] auto turn : state) {
    auto decided = schedule(all.cluster, all.queue, all.running, *all.policy);
    benchmark::DoNotOptimize(decided);
  }
}

BENCHMARK(whole_plan)->Name("plan/whole")->Args({10'000, 20'000})->Unit(benchmark::kMillisecond);
BENCHMARK(first_piece)->Name("plan/piece")->Args({10'000, 20'000})->Unit(benchmark::kMillisecond);
BENCHMARK(decision)->Name("plan/decision")->Arg(10'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace aliquot::core
