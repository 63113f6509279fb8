// The gate and the meter, against a board that the test writes as the arbiter would.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <cmath>
#include <cstring>
#include <functional>

#include "enforce/job.hpp"
#include "standin/state/compute_model.hpp"
#include "sys/testing.hpp"

namespace aliquot::enforce::test {
namespace {

using standin::test::Machine;
using Clock = std::chrono::steady_clock;
using aliquot::test::eventually;

// What the stand-in itself counts for the process.
double busy_ns(Machine& machine, pid_t pid) {
  standin::State& state = machine.state();
  const standin::State::Guard guard(state);
  standin::advance(state.gpu(0).compute, state.now());
  return state.gpu(0).compute.use[state.find_pid(pid)].busy;
}

// What an iteration of "spin" takes is the stand-in's own business; measured by its own clock, as a
// busy machine hears late that a kernel is over.
double ms_per_iteration(Machine& machine, Victim& victim) {
  const double before = busy_ns(machine, victim.pid());
  EXPECT_EQ(victim.tell("launch 1 20000000"), 0);
  EXPECT_EQ(victim.tell("sync"), 0);
  return (busy_ns(machine, victim.pid()) - before) / 1e6 / 2e7;
}

void set_gate(Job& job, std::uint32_t value, unsigned slot = 5) {
  std::uint32_t* word = &job.board().gates[slot].word;
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

TEST(Gate, pauses_and_opens) {
  Machine machine("h200:1");
  Job job(machine, {{0, 2 * kGiB}}, true);
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  ASSERT_EQ(victim.tell("launch 3 1000"), 0);
  job.keep_beating();
  set_gate(job, 1);
  victim.send("launch 1 1000");
  EXPECT_TRUE(eventually([&] { return job.use().waiting == 1; }));
  usleep(250'000);
  EXPECT_EQ(job.use().waiting, 1U) << "it waits on";
  set_gate(job, 0);
  EXPECT_EQ(victim.answer(), 0);
  EXPECT_EQ(job.use().waiting, 0U);
  EXPECT_GT(job.use().waited_ns, 200'000'000U);
}

TEST(Gate, copies_within_the_gpu_pass_it) {
  Machine machine("h200:1");
  Job job(machine, {{0, 2 * kGiB}}, true);
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  ASSERT_EQ(victim.tell("launch 3 1000"), 0);
  job.keep_beating();
  set_gate(job, 1);
  victim.send("copies 1000 1000000 1");
  EXPECT_TRUE(eventually([&] { return job.use().waiting == 1; }));
  set_gate(job, 0);
  EXPECT_EQ(victim.answer(), 0);
}

// Who waits for what was queued says so: from outside it looks idle.
TEST(Gate, tells_who_waits_for_the_gpu) {
  Machine machine("h200:1");
  Job job(machine, {{0, 2 * kGiB}}, true);
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  const auto iterations = static_cast<std::uint64_t>(20 / ms_per_iteration(machine, victim));
  job.keep_beating();
  // Fifty at once, and a wait for them of a second, as often as there is time.
  victim.send("work 4000 " + std::to_string(iterations) + " 50");
  EXPECT_TRUE(eventually([&] { return job.use().in_wait == 1; }));
  EXPECT_EQ(victim.answer(), 0);
  EXPECT_EQ(job.use().in_wait, 0U);
}

TEST(Gate, opens_when_the_arbiter_is_dead) {
  Machine machine("h200:1");
  Job job(machine, {{0, 2 * kGiB}}, true);
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  const auto from = Clock::now();
  job.beat();
  set_gate(job, 1);
  EXPECT_EQ(victim.tell("launch 1 1000"), 0);
  const double waited = std::chrono::duration<double>(Clock::now() - from).count();
  EXPECT_GT(waited, 0.5);
  EXPECT_LT(waited, 60);
}

TEST(Gate, limits_what_is_in_flight_while_contended) {
  Machine machine("h200:1");
  Job job(machine, {{0, 2 * kGiB}}, true);
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  const double each = ms_per_iteration(machine, victim);
  const auto iterations = static_cast<std::uint64_t>(5 / each);  // 5 ms a launch
  const std::uint64_t before = job.use().launched;
  __atomic_store_n(&job.board().contended, ALIQUOT_CONTENDED_TURNS, __ATOMIC_RELEASE);
  job.keep_beating();
  const auto from = Clock::now();
  victim.send("launch 60 " + std::to_string(iterations));
  std::uint64_t most = 0;
  // Nobody looks whether the last of them is over: it stays in flight until the wait below.
  EXPECT_TRUE(eventually([&] {
    const aliquot_use use = job.use();
    most = std::max(most, use.launched - use.completed);
    return use.launched == before + 60;
  }));
  EXPECT_EQ(victim.answer(), 0);
  // Sixty launches of 5 ms, a few of them ahead: the call lasts for the rest.
  EXPECT_GT(std::chrono::duration<double>(Clock::now() - from).count(), 0.15);
  EXPECT_GE(most, 1U);
  EXPECT_LE(most, 16U);
  ASSERT_EQ(victim.tell("sync"), 0);
  EXPECT_EQ(job.use().launched, job.use().completed);
  EXPECT_EQ(job.use().launched, before + 60U);
}

// Who is alone is looked at seldom. But what he queues for long is known at once, for a neighbour
// who comes; and little of it is when he has queued as much as in half a millisecond.
TEST(Gate, knows_what_a_job_alone_has_queued) {
  Machine machine("h200:1");
  Job job(machine, {{0, 2 * kGiB}}, true);
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  const double each = ms_per_iteration(machine, victim);
  job.keep_beating();
  const auto launch = [&](int times, double ms) {
    ASSERT_EQ(
        victim.tell(fmt::format("launch {} {}", times, static_cast<std::uint64_t>(ms / each))), 0);
  };
  for (int i = 0; i < 20; ++i) {  // how long its launches are
    launch(1, 10);
    ASSERT_EQ(victim.tell("sync"), 0);
    usleep(12'000);
  }
  const std::uint64_t before = job.use().launched;
  launch(60, 10);
  EXPECT_GE(job.use().launched, before + 60 - 24);
  EXPECT_GT(job.use().launched, job.use().completed);
  ASSERT_EQ(victim.tell("sync"), 0);
  EXPECT_EQ(job.use().launched, before + 60);
  EXPECT_EQ(job.use().launched, job.use().completed);
}

// The gate closes while a launch waits for the one before it: that one is not behind the gate yet.
TEST(Gate, holds_who_waited_for_room_when_it_closed) {
  Machine machine("h200:1");
  Job job(machine, {{0, 2 * kGiB}}, true);
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  const auto length = std::chrono::milliseconds(400);
  const std::string one =
      "launch 1 " + std::to_string(static_cast<std::uint64_t>(static_cast<double>(length.count()) /
                                                              ms_per_iteration(machine, victim)));
  job.keep_beating();
  __atomic_store_n(&job.board().contended, ALIQUOT_CONTENDED_TURNS, __ATOMIC_RELEASE);
  for (int i = 0; i < 4; ++i) {  // how long its launches are
    ASSERT_EQ(victim.tell(one), 0);
    ASSERT_EQ(victim.tell("sync"), 0);
  }
  std::uint64_t before = 0;
  // On a busy machine the first may be over before the gate is closed: then once more.
  bool in_time = false;
  for (int i = 0; i < 50 && !in_time; ++i) {
    set_gate(job, 0);
    if (i > 0) {
      ASSERT_EQ(victim.answer(), 0);
      ASSERT_EQ(victim.tell("sync"), 0);
    }
    before = job.use().launched;
    const std::uint64_t asked = job.use().launches;
    const auto from = Clock::now();
    ASSERT_EQ(victim.tell(one), 0);
    victim.send(one);
    ASSERT_TRUE(eventually([&] { return job.use().launches == asked + 2; }));
    usleep(50'000);
    set_gate(job, 1);
    in_time = Clock::now() - from < length;
  }
  ASSERT_TRUE(in_time);
  EXPECT_TRUE(eventually([&] { return job.use().completed == before + 1; }));
  EXPECT_TRUE(eventually([&] { return job.use().waiting == 1; }));
  usleep(200'000);
  EXPECT_EQ(job.use().waiting, 1U);
  EXPECT_EQ(job.use().launched, before + 1);
  set_gate(job, 0);
  EXPECT_EQ(victim.answer(), 0);
  ASSERT_EQ(victim.tell("sync"), 0);
  EXPECT_EQ(job.use().launched, before + 2);
}

TEST(Gate, lets_captures_pass_and_spoils_none) {
  Machine machine("h200:1");
  Job job(machine, {{0, 2 * kGiB}}, true);
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  __atomic_store_n(&job.board().contended, ALIQUOT_CONTENDED_TURNS, __ATOMIC_RELEASE);
  job.keep_beating();
  EXPECT_EQ(victim.tell("capture 3 1000"), 0);
  __atomic_store_n(&job.board().contended, 0U, __ATOMIC_RELEASE);
  EXPECT_EQ(victim.tell("capture 3 1000"), 0);
  EXPECT_EQ(victim.tell("launch 20 1000"), 0);
  EXPECT_EQ(victim.tell("sync"), 0);
}

TEST(Gate, a_board_that_is_missing_or_foreign_is_no_lease) {
  Machine machine("h200:1");
  Job job(machine, {{0, 2 * kGiB}}, true);
  job.board().magic = 1;
  set_gate(job, 1);
  job.keep_beating();
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  EXPECT_EQ(victim.tell("launch 3 1000"), 0);
  EXPECT_EQ(job.use().waited_ns, 0U);
}

// caps of 30/70 giving 46/54: with an arbiter that does no more than pause whoever is ahead.
TEST(Suffered, caps_of_30_and_70_giving_46_and_54) {
  Machine machine("h200:1");
  Job first(machine, {{0, 2 * kGiB}}, true);
  Job second(machine, {{0, 2 * kGiB}}, true);
  std::strncpy(second.limits().gpus[0].board, (first.folder() + "/board").c_str(),
               ALIQUOT_PATH_BYTES - 1);
  second.limits().gpus[0].lease_slot = 6;
  Victim small(&first);
  Victim large(&second);
  ASSERT_EQ(small.begin(), 0);
  ASSERT_EQ(large.begin(), 0);
  const auto iterations = static_cast<std::uint64_t>(1 / ms_per_iteration(machine, small));
  __atomic_store_n(&first.board().contended, ALIQUOT_CONTENDED_TURNS, __ATOMIC_RELEASE);
  first.keep_beating();
  small.send("launch 100000 " + std::to_string(iterations));
  large.send("launch 100000 " + std::to_string(iterations));
  double used_small = 0;
  double used_large = 0;
  double last_small = busy_ns(machine, small.pid());
  double last_large = busy_ns(machine, large.pid());
  auto last = Clock::now();
  const auto limit = last + std::chrono::seconds(90);
  while (used_small + used_large < 2.5e9 && last < limit) {
    usleep(2000);
    const double now_small = busy_ns(machine, small.pid());
    const double now_large = busy_ns(machine, large.pid());
    const auto now = Clock::now();
    // What happened while this arbiter itself was kept from looking is nobody's fault.
    if (now - last < std::chrono::milliseconds(30)) {
      used_small += now_small - last_small;
      used_large += now_large - last_large;
    }
    last = now;
    last_small = now_small;
    last_large = now_large;
    const bool small_ahead = used_small / 0.3 > used_large / 0.7;
    set_gate(first, small_ahead ? 1 : 0, 5);
    set_gate(first, small_ahead ? 0 : 1, 6);
  }
  EXPECT_NEAR(used_small / (used_small + used_large), 0.3, 0.05);
  EXPECT_GE(used_small + used_large, 2.5e9) << "and the GPU was busy";
  small.kill();
  large.kill();
}

// A process that is kept from the CPU between two words to the GPU is measured to have used it
// meanwhile.
void expect_measured(Machine& machine, Job& job, Victim& victim,
                     const std::function<void()>& work) {
  double busy = 0;
  double measured = 0;
  EXPECT_TRUE(holds_in_calm({victim.pid()},
                            [&] {
                              const double busy_before = busy_ns(machine, victim.pid());
                              const std::uint64_t measured_before = job.use().gpu_ns;
                              work();
                              busy = busy_ns(machine, victim.pid()) - busy_before;
                              measured = static_cast<double>(job.use().gpu_ns - measured_before);
                              return std::abs(measured / busy - 1) < 0.25;
                            }))
      << measured << " ns measured of " << busy;
}

TEST(Meter, measures_what_the_driver_counts) {
  Machine machine("h200:1");
  Job job(machine, {{0, 2 * kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  const double each = ms_per_iteration(machine, victim);
  for (const double ms : {0.2, 20.0}) {
    const auto iterations = static_cast<std::uint64_t>(ms / each);
    const int count = ms < 1 ? 2000 : 20;
    const auto measure = [&] {
      for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(
            victim.tell("launch " + std::to_string(count / 4) + " " + std::to_string(iterations)),
            0);
        EXPECT_EQ(victim.tell("sync"), 0);
      }
    };
    expect_measured(machine, job, victim, measure);
  }
}

// As programs do that try out, warm up or calibrate first.
TEST(Meter, is_not_misled_by_a_short_first_launch) {
  Machine machine("h200:1");
  Job trial(machine, {{0, 2 * kGiB}});
  double each = 0;
  {
    Victim victim(&trial);
    ASSERT_EQ(victim.begin(), 0);
    each = ms_per_iteration(machine, victim);
    victim.kill();
  }
  const std::string two_ms = std::to_string(static_cast<std::uint64_t>(2 / each));
  double ratio = 0;
  const auto holds = [&](Job& job, Victim& victim) {
    EXPECT_EQ(victim.tell("launch 1 10"), 0);
    EXPECT_EQ(victim.tell("sync"), 0);
    const double busy_before = busy_ns(machine, victim.pid());
    for (int i = 0; i < 40; ++i) {
      EXPECT_EQ(victim.tell("launch 4 " + two_ms), 0);
      EXPECT_EQ(victim.tell("sync"), 0);
    }
    const double busy = busy_ns(machine, victim.pid()) - busy_before;
    ratio = static_cast<double>(job.use().gpu_ns) / busy;
    return std::abs(ratio - 1) < 0.25;
  };
  // Each time a new process, or it would not be its first launch.
  bool held = false;
  bool calm = false;
  for (int i = 0; i < 100 && !held && !calm; ++i) {
    Job job(machine, {{0, 2 * kGiB}});
    Victim victim(&job);
    ASSERT_EQ(victim.begin(), 0);
    calm = in_calm({victim.pid()}, [&] { held = holds(job, victim); });
  }
  EXPECT_TRUE(held) << ratio;
}

TEST(Meter, counts_what_is_queued_for_seconds) {
  Machine machine("h200:1");
  Job job(machine, {{0, 2 * kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  const auto iterations = static_cast<std::uint64_t>(20 / ms_per_iteration(machine, victim));
  expect_measured(machine, job, victim, [&] {
    const double before = busy_ns(machine, victim.pid());
    EXPECT_EQ(victim.tell("launch 100 " + std::to_string(iterations)), 0);
    EXPECT_EQ(victim.tell("sync"), 0);
    EXPECT_GT(busy_ns(machine, victim.pid()) - before, 1.5e9);
  });
}

TEST(Meter, counts_every_launch) {
  Machine machine("h200:1");
  Job job(machine, {{0, 2 * kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  ASSERT_EQ(victim.tell("launch 1000 100"), 0);
  ASSERT_EQ(victim.tell("sync"), 0);
  EXPECT_EQ(job.use().launches, 1000U);
}

}  // namespace
}  // namespace aliquot::enforce::test
