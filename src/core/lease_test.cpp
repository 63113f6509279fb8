#include "core/lease.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

namespace aliquot::core {
namespace {

constexpr double kUs = 1e3;
constexpr double kMs = 1e6;

// A GPU that alternates equal slices between groups, and the library in each job: at most 16
// launches in flight, and no more than about 20 ms of them.
struct SimulatedJob {
  JobId id;
  double share = 0;
  std::uint64_t group = 0;
  double kernel_ns = 0;
  double busy = 1;    // part of each 100 ms in which it has something to launch
  double gap_ns = 0;  // it waits for its results every 5 ms, and then has so much else to do
  bool there = true;
  double queued_ns = 0;  // in flight
  double done_ns = 0;    // GPU time it got
  double blocked_ns = 0;
  bool waiting = false;
  // What the library in it has said, and when it came by last.
  std::uint64_t launched = 0;
  std::uint64_t completed = 0;
  FlightWatch flight = {};
};

constexpr double kTick = 100 * kUs;

class SimulatedGpu {
 public:
  std::vector<SimulatedJob> jobs;
  LeaseArbiter arbiter;
  double now_ns = 0;
  bool looks_at_the_gate = true;  // the library does

  void add(std::int64_t id, double share, double kernel_ns, double busy = 1,
           std::uint64_t group = 0) {
    jobs.push_back({.id = JobId(id),
                    .share = share,
                    .group = group == 0 ? static_cast<std::uint64_t>(id) : group,
                    .kernel_ns = kernel_ns,
                    .busy = busy});
    arbiter.set(JobId(id), Compute(std::lround(share * 10'000)), jobs.back().group);
  }

  void run(double length_ns) {
    for (double end = now_ns + length_ns; now_ns < end; now_ns += kTick) {
      for (auto& job : jobs) launch(job);
      work(kTick);
      if (++ticks_ % 15 == 0) look(15 * kTick);
    }
  }

  double part(std::size_t i) const {
    double all = 0;
    for (const auto& job : jobs) all += job.done_ns;
    return jobs[i].done_ns / all;
  }
  double total() const {
    double all = 0;
    for (const auto& job : jobs) all += job.done_ns;
    return all;
  }
  void forget() {
    for (auto& job : jobs) job.done_ns = job.blocked_ns = 0;
  }

 private:
  static double deepest(const SimulatedJob& job) {
    return job.kernel_ns * std::clamp(std::floor(20 * kMs / job.kernel_ns), 1.0, 16.0);
  }
  void launch(SimulatedJob& job) {
    const double phase =
        std::fmod(now_ns + static_cast<double>(job.id.value()) * 7 * kMs, 100 * kMs);
    const bool gap = std::fmod(phase, 5 * kMs) < job.gap_ns;
    const bool wants = job.there && phase < job.busy * 100 * kMs && !gap;
    const bool open = !arbiter.paused(job.id);
    job.waiting = wants && !open;
    if (job.waiting) job.blocked_ns += kTick;
    // While it launches it knows what is over in portions of four; at its gate, or waiting for its
    // results, exactly.
    const auto flying = static_cast<std::uint64_t>(std::ceil(job.queued_ns / job.kernel_ns));
    const auto over = job.launched - std::min(flying, job.launched);
    if (wants && open) job.completed = std::max(job.completed, over / 4 * 4);
    if (!wants || (!open && looks_at_the_gate)) job.completed = over;
    if (!wants || !open) return;
    while (job.queued_ns + job.kernel_ns <= std::max(deepest(job), kTick + job.kernel_ns)) {
      job.queued_ns += job.kernel_ns;
      ++job.launched;
    }
  }
  void work(double tick) {
    for (double left = tick; left > 1;) {
      std::map<std::uint64_t, int> groups;
      for (const auto& job : jobs) {
        if (job.queued_ns > 0) ++groups[job.group];
      }
      if (groups.empty()) return;
      double slice = left;
      const auto rate = [&](const SimulatedJob& job) {
        return 1.0 / static_cast<double>(groups.size()) / groups[job.group];
      };
      for (const auto& job : jobs) {
        if (job.queued_ns > 0) slice = std::min(slice, job.queued_ns / rate(job));
      }
      slice = std::max(slice, 1.0);
      for (auto& job : jobs) {
        if (job.queued_ns <= 0) continue;
        const double got = std::min(job.queued_ns, slice * rate(job));
        job.queued_ns -= got;
        if (job.queued_ns < 1) job.queued_ns = 0;
        job.done_ns += got;
      }
      left -= slice;
    }
  }
  void look(double elapsed) {
    std::vector<LeaseArbiter::Seen> seen;
    for (auto& job : jobs) {
      const bool flying = job.flight.look(static_cast<std::int64_t>(now_ns) + 1, job.launched,
                                          job.completed, arbiter.paused(job.id));
      seen.push_back({job.id, flying, job.waiting});
    }
    arbiter.step(static_cast<std::int64_t>(elapsed), seen);
  }
  std::int64_t ticks_ = 0;
};

double random_kernel() {
  // 3 us to 50 ms, every order of magnitude alike.
  const int step = *rc::gen::inRange(0, 1000);
  return 3 * kUs * std::pow(50 * kMs / (3 * kUs), step / 999.0);
}

void reaches(const std::vector<double>& shares, bool looks = true) {
  SimulatedGpu gpu;
  gpu.looks_at_the_gate = looks;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    gpu.add(static_cast<std::int64_t>(i) + 1, shares[i], random_kernel());
  }
  gpu.run(500 * kMs);  // until it is known who is backlogged
  gpu.forget();
  gpu.run(5'000 * kMs);
  for (std::size_t i = 0; i < shares.size(); ++i) {
    RC_LOG() << "job " << i << ": kernels of " << gpu.jobs[i].kernel_ns / kUs << " us, "
             << gpu.part(i) << " of " << shares[i] << "\n";
    if (looks) RC_ASSERT(std::abs(gpu.part(i) - shares[i]) < 0.02);
    RC_ASSERT(gpu.part(i) > shares[i] / 2);
  }
  RC_ASSERT(gpu.total() > 0.97 * 5'000 * kMs);  // the GPU was never left idle for it
}

RC_GTEST_PROP(Lease, AQuarterAndThreeQuarters, ()) { reaches({0.25, 0.75}); }
RC_GTEST_PROP(Lease, TenThirtySixty, ()) { reaches({0.1, 0.3, 0.6}); }
RC_GTEST_PROP(Lease, Halves, ()) { reaches({0.5, 0.5}); }
// A library that says nothing while it waits: guessed, but nobody starves.
RC_GTEST_PROP(Lease, WithoutNewsFromTheGate, ()) { reaches({0.25, 0.75}, false); }

// Programs that wait for their results now and then are short of GPU time all the same.
TEST(Lease, AMomentBetweenBatchesCostsNothing) {
  SimulatedGpu gpu;
  gpu.add(1, 0.25, 200 * kUs);
  gpu.add(2, 0.75, 200 * kUs);
  gpu.jobs[0].gap_ns = gpu.jobs[1].gap_ns = 400 * kUs;
  gpu.run(500 * kMs);
  gpu.forget();
  gpu.run(5'000 * kMs);
  EXPECT_NEAR(gpu.part(0), 0.25, 0.02);
}

TEST(Lease, JobsOfOneServerShareItsSlice) {
  SimulatedGpu gpu;
  gpu.add(1, 0.2, 100 * kUs, 1, 77);
  gpu.add(2, 0.3, 100 * kUs, 1, 77);
  gpu.add(3, 0.5, 100 * kUs);
  gpu.run(5'000 * kMs);
  EXPECT_NEAR(gpu.part(0), 0.2, 0.02);
  EXPECT_NEAR(gpu.part(1), 0.3, 0.02);
  EXPECT_NEAR(gpu.part(2), 0.5, 0.02);
}

TEST(Lease, NobodyIsPausedWithoutNeed) {
  SimulatedGpu gpu;
  gpu.add(1, 0.05, 1 * kMs);
  gpu.run(1'000 * kMs);
  EXPECT_FALSE(gpu.arbiter.contended());
  EXPECT_EQ(gpu.jobs[0].blocked_ns, 0);
  EXPECT_GT(gpu.total(), 0.99 * 1'000 * kMs);
}

// Whatever the share: who uses less of the GPU than that is never made to wait.
RC_GTEST_PROP(Lease, AMostlyIdleJobIsNeverSlowed, ()) {
  SimulatedGpu gpu;
  gpu.add(1, 0.75, random_kernel());
  gpu.add(2, 0.25, *rc::gen::inRange(3, 1000) * kUs, *rc::gen::inRange(1, 20) / 100.0);
  gpu.run(3'000 * kMs);
  RC_ASSERT(gpu.jobs[1].blocked_ns == 0);
  // And it holds nobody back: what it leaves, the other takes.
  RC_ASSERT(gpu.total() > 0.98 * 3'000 * kMs);
}

TEST(Lease, IdlingEarnsNothing) {
  SimulatedGpu gpu;
  gpu.add(1, 0.5, 200 * kUs);
  gpu.add(2, 0.5, 200 * kUs, 0);
  gpu.run(3'000 * kMs);
  gpu.jobs[1].busy = 1;
  gpu.forget();
  gpu.run(1'000 * kMs);
  // Three idle seconds do not buy three seconds alone.
  EXPECT_NEAR(gpu.part(0), 0.5, 0.03);
}

TEST(Lease, SharesChangeAndJobsComeAndGo) {
  SimulatedGpu gpu;
  gpu.add(1, 0.5, 300 * kUs);
  gpu.add(2, 0.5, 2 * kMs);
  gpu.run(1'000 * kMs);
  gpu.arbiter.set(JobId(1), Compute(2'000), 1);
  gpu.arbiter.set(JobId(2), Compute(8'000), 2);
  gpu.run(100 * kMs);
  gpu.forget();
  gpu.run(5'000 * kMs);
  EXPECT_NEAR(gpu.part(0), 0.2, 0.02);
  // The second ends: the first has it all.
  gpu.jobs[1].there = false;
  gpu.arbiter.remove(JobId(2));
  gpu.run(100 * kMs);
  gpu.forget();
  gpu.run(1'000 * kMs);
  EXPECT_GT(gpu.part(0), 0.999);
  EXPECT_EQ(gpu.jobs[0].blocked_ns, 0);
  // A third comes.
  gpu.add(3, 0.8, 50 * kUs);
  gpu.run(100 * kMs);
  gpu.forget();
  gpu.run(5'000 * kMs);
  EXPECT_NEAR(gpu.part(2), 0.8, 0.02);
}

// Two jobs that use the GPU as given for a second; whether turns were asked for.
bool asks_for_turns(double first_share, double first_busy, double second_share,
                    double second_busy) {
  ProportionWatch watch;
  bool asked = false;
  for (double now = kMs; now < 5'000 * kMs; now += 100 * kMs) {
    const auto ns = [&](double busy) { return static_cast<std::int64_t>(busy * now); };
    asked |= watch.look(
        ns(1), {{JobId(1), first_share, ns(first_busy)}, {JobId(2), second_share, ns(second_busy)}},
        false);
  }
  return asked;
}

TEST(Proportion, TurnsAreAskedForWhereSharesAreNotKept) {
  EXPECT_TRUE(asks_for_turns(0.25, 0.48, 0.75, 0.48));  // as the driver divides it
  EXPECT_TRUE(asks_for_turns(0.25, 1, 0.75, 1));
  EXPECT_TRUE(asks_for_turns(0.1, 0.8, 0.9, 0.1));
  EXPECT_FALSE(asks_for_turns(0.5, 0.48, 0.5, 0.48));
  EXPECT_FALSE(asks_for_turns(0.25, 0.25, 0.75, 0.75));
  // There is room for all, or only one uses it.
  EXPECT_FALSE(asks_for_turns(0.1, 0.4, 0.9, 0.1));
  EXPECT_FALSE(asks_for_turns(0.1, 0.95, 0.9, 0.01));
}

TEST(Proportion, TurnsThatMakeNobodyWaitEndAndRest) {
  ProportionWatch watch;
  std::int64_t asked_ms = 0;
  std::int64_t begun = 0;
  bool before = false;
  for (std::int64_t ms = 1; ms <= 60'000; ++ms) {
    const std::int64_t now = ms * 1'000'000;
    const bool turns = watch.look(now, {{JobId(1), 0.25, now}, {JobId(2), 0.75, now}}, false);
    asked_ms += turns ? 1 : 0;
    begun += turns && !before ? 1 : 0;
    before = turns;
  }
  EXPECT_GE(begun, 2);
  EXPECT_LT(asked_ms, 10'000);
  // With somebody waiting they go on.
  ProportionWatch useful;
  for (std::int64_t ms = 1; ms <= 10'000; ++ms) {
    const std::int64_t now = ms * 1'000'000;
    useful.look(now, {{JobId(1), 0.25, now}, {JobId(2), 0.75, now}},
                useful.turns() && ms % 500 == 0);
  }
  EXPECT_TRUE(useful.turns());
}

TEST(Lease, WhoOnlySaysThatItWaitsHoldsNobodyUp) {
  LeaseArbiter arbiter;
  arbiter.set(JobId(1), Compute(1'000), 1);
  arbiter.set(JobId(2), Compute(9'000), 2);
  int paused = 0;
  for (int i = 0; i < 1'000; ++i) {
    arbiter.step(1'500'000, {{JobId(1), true, false}, {JobId(2), false, true}});
    if (arbiter.paused(JobId(1))) ++paused;
  }
  EXPECT_EQ(paused, 0);
}

}  // namespace
}  // namespace aliquot::core
