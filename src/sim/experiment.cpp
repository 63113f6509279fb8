#include "sim/experiment.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>
#include <thread>

#include "core/policy.hpp"
#include "sim/names.hpp"

namespace aliquot::sim {
namespace {

std::int64_t peak_memory_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

PointSummary summarise_point(const std::vector<ReplayResult>& replays, std::size_t point) {
  PointSummary summary{.arrived = replays.front().points[point].arrived};
  const auto count = static_cast<double>(replays.size());
  for (const auto& replay : replays) summary.mean += replay.points[point].allocated / count;
  double squares = 0;
  for (const auto& replay : replays) {
    const double off = replay.points[point].allocated - summary.mean;
    squares += off * off;
  }
  if (replays.size() > 1) summary.deviation = std::sqrt(squares / (count - 1));
  return summary;
}

PolicySummary summarise(std::string policy, std::vector<ReplayResult> replays) {
  PolicySummary summary{.policy = std::move(policy), .replays = std::move(replays)};
  for (std::size_t i = 0; i < summary.replays.front().points.size(); ++i) {
    summary.points.push_back(summarise_point(summary.replays, i));
  }
  for (const auto& replay : summary.replays) {
    summary.decisions += replay.decisions;
    summary.placed += replay.placed;
    summary.cpu_ns += replay.cpu_ns;
  }
  return summary;
}

}  // namespace

double PolicySummary::decisions_per_second() const {
  return static_cast<double>(decisions) * 1e9 /
         static_cast<double>(std::max<std::int64_t>(1, cpu_ns));
}

Result<Outcome> run_plan(const Workload& workload, const Plan& plan, const Watch& watch) {
  const std::size_t total = plan.policies.size() * plan.seeds.size();
  std::vector<std::optional<Result<ReplayResult>>> results(total);
  Progress progress;
  std::atomic<std::size_t> next = 0;
  std::atomic<unsigned> running = 0;

  // Seeds outside, policies inside: the first seed of every policy is done first.
  const auto work = [&] {
    for (std::size_t i = next++; i < total && !progress.stop; i = next++) {
      const std::size_t policy = i % plan.policies.size();
      const std::size_t seed = i / plan.policies.size();
      const auto order = draw_order(workload, plan.draw, plan.seeds[seed], plan.arrived);
      auto result = replay(workload, plan.policies[policy], order, plan.arrived, progress);
      if (!result) progress.stop = true;
      results[policy * plan.seeds.size() + seed] = std::move(result);
    }
    --running;
  };

  const auto threads = static_cast<unsigned>(std::min<std::size_t>(plan.jobs, total));
  running = threads;
  {
    std::vector<std::jthread> pool;
    for (unsigned i = 0; i < threads; ++i) pool.emplace_back(work);
    const std::int64_t wanted =
        static_cast<std::int64_t>(total) * workload.gpus * kMilliPerGpu * plan.arrived / 100;
    while (running > 0) {
      const std::int64_t done =
          static_cast<std::int64_t>(1000.0 * static_cast<double>(progress.arrived_milli) /
                                    static_cast<double>(std::max<std::int64_t>(1, wanted)));
      if (!watch(std::min<std::int64_t>(done, 1000))) progress.stop = true;
    }
  }

  for (auto& result : results) {
    if (result && !*result) return tl::make_unexpected(std::move(*result).error());
  }
  Outcome outcome{
      .stopped = progress.stop, .policies = {}, .peak_memory_bytes = peak_memory_bytes()};
  if (outcome.stopped) return outcome;
  for (std::size_t policy = 0; policy < plan.policies.size(); ++policy) {
    std::vector<ReplayResult> replays;
    for (std::size_t seed = 0; seed < plan.seeds.size(); ++seed) {
      replays.push_back(std::move(**results[policy * plan.seeds.size() + seed]));
    }
    outcome.policies.push_back(summarise(plan.policies[policy], std::move(replays)));
  }
  return outcome;
}

std::vector<PolicyName> known_policies() {
  std::vector<PolicyName> all;
  for (const auto& policy : core::policies()) {
    all.push_back({std::string(policy.name), std::string(policy.summary)});
  }
  return all;
}

Result<std::vector<std::string>> parse_policies(std::string_view text) {
  std::vector<std::string> known;
  for (auto& policy : known_policies()) known.push_back(std::move(policy.name));
  if (text == "all") return known;
  return parse_names(text, "policy", known);
}

}  // namespace aliquot::sim
