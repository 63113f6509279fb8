#include "sim/replay.hpp"

#include <time.h>

#include <array>
#include <optional>

#include "core/index.hpp"
#include "core/ledger.hpp"
#include "core/policy.hpp"
#include "sys/clock.hpp"

namespace aliquot::sim {
namespace {

// Other processes and threads do not count.
std::int64_t thread_cpu_ns() { return sys::clock_ns(CLOCK_THREAD_CPUTIME_ID); }

// Means over the steps at each point.
class Sampler {
 public:
  Sampler(const std::vector<std::int64_t>& points, std::int64_t total_milli) : total_(total_milli) {
    for (const auto point : points) means_.push_back({point, 0, 0});
  }

  void step(std::int64_t arrived_milli, std::int64_t allocated_milli) {
    const std::int64_t percent = (200 * arrived_milli + total_) / (2 * total_);
    last_ = allocated_milli;
    while (next_ < means_.size() && means_[next_].arrived < percent) {
      // One large pod in a small cluster may jump over a point: then what it led to stands for it.
      if (means_[next_].steps == 0) means_[next_].add(allocated_milli);
      ++next_;
    }
    if (next_ < means_.size() && means_[next_].arrived == percent) {
      means_[next_].add(allocated_milli);
    }
  }

  // A point that the last pod did not reach is what that pod led to.
  [[nodiscard]] std::vector<Point> points() const {
    std::vector<Point> points;
    for (const auto& mean : means_) {
      const double milli =
          mean.steps > 0 ? mean.sum / static_cast<double>(mean.steps) : static_cast<double>(last_);
      points.push_back({mean.arrived, 100 * milli / static_cast<double>(total_)});
    }
    return points;
  }

 private:
  struct Mean {
    std::int64_t arrived = 0;
    double sum = 0;
    std::int64_t steps = 0;
    void add(std::int64_t allocated_milli) {
      sum += static_cast<double>(allocated_milli);
      ++steps;
    }
  };
  std::vector<Mean> means_;
  std::size_t next_ = 0;
  std::int64_t total_;
  std::int64_t last_ = 0;
};

}  // namespace

std::vector<std::int64_t> points_up_to(std::int64_t arrived) {
  constexpr std::array<std::int64_t, 6> kPublished = {90, 95, 100, 110, 120, 130};
  std::vector<std::int64_t> points;
  for (const auto point : kPublished) {
    if (point < arrived) points.push_back(point);
  }
  points.push_back(arrived);
  return points;
}

Result<ReplayResult> replay(const Workload& workload, std::string_view policy, const Order& order,
                            std::int64_t arrived, Progress& progress) {
  std::vector<core::Node> nodes;
  nodes.reserve(order.nodes.size());
  for (const auto node : order.nodes) nodes.push_back(workload.nodes[node]);
  core::Ledger ledger(TRY(core::Cluster::create(std::move(nodes))));
  const std::int64_t total_milli = workload.gpus * kMilliPerGpu;
  Sampler sampler(points_up_to(arrived), total_milli);

  const std::int64_t start = thread_cpu_ns();
  const auto ranking = TRY(core::make_policy(policy, workload.profile));
  core::Index index(ledger.cluster(), *ranking);
  // A kind that no shape can be made of (a model that is nowhere) can run nowhere.
  std::vector<std::optional<core::Shape>> shapes;
  shapes.reserve(workload.kinds.size());
  for (const auto& kind : workload.kinds) {
    auto shape = ledger.cluster().shape(kind.request);
    shapes.push_back(shape ? std::optional(std::move(*shape)) : std::nullopt);
  }

  ReplayResult result;
  std::int64_t arrived_milli = 0;
  std::int64_t allocated_milli = 0;
  std::int64_t told_milli = 0;
  for (const auto kind : order.arrivals) {
    ++result.decisions;
    if (shapes[kind]) {
      if (auto placement = index.place(*shapes[kind])) {
        TRY(ledger.grant(JobId(result.decisions), std::move(*placement)));
        ++result.placed;
        allocated_milli += workload.kinds[kind].milli;
      }
    }
    arrived_milli += workload.kinds[kind].milli;
    sampler.step(arrived_milli, allocated_milli);
    if (result.decisions % 256 == 0) {
      progress.arrived_milli += arrived_milli - told_milli;
      told_milli = arrived_milli;
      if (progress.stop) {
        result.stopped = true;
        return result;
      }
    }
  }
  progress.arrived_milli += arrived_milli - told_milli;
  result.cpu_ns = thread_cpu_ns() - start;
  result.points = sampler.points();
  return result;
}

}  // namespace aliquot::sim
