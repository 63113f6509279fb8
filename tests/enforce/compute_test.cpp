// The gate and the meter, against a board that the test writes as the arbiter would.
#include <gtest/gtest.h>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <cstring>

#include "enforce/job.hpp"
#include "standin/state/compute_model.hpp"

namespace aliquot::enforce::test {
namespace {

using standin::test::Machine;
using Clock = std::chrono::steady_clock;

// The simulated H200 takes about this many iterations of "spin" in a millisecond; measured here,
// since it is the stand-in's own business.
double ms_per_iteration(Victim& victim) {
  const auto from = Clock::now();
  EXPECT_EQ(victim.tell("launch 1 20000000"), 0);
  EXPECT_EQ(victim.tell("sync"), 0);
  return std::chrono::duration<double, std::milli>(Clock::now() - from).count() / 2e7;
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
  set_gate(job, 1);
  victim.send("launch 1 1000");
  for (int i = 0; i < 30; ++i) {
    job.beat();
    usleep(10'000);
  }
  EXPECT_EQ(job.use().waiting, 1U);
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
  set_gate(job, 1);
  victim.send("copies 1 1000000 1");
  for (int i = 0; i < 500 && job.use().waiting == 0; ++i) {
    job.beat();
    usleep(10'000);
  }
  EXPECT_EQ(job.use().waiting, 1U);
  set_gate(job, 0);
  EXPECT_EQ(victim.answer(), 0);
}

// Who waits for what was queued says so: from outside it looks idle.
TEST(Gate, tells_who_waits_for_the_gpu) {
  Machine machine("h200:1");
  Job job(machine, {{0, 2 * kGiB}}, true);
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  const auto iterations = static_cast<std::uint64_t>(20 / ms_per_iteration(victim));
  job.beat();
  victim.send("work 1000 " + std::to_string(iterations) + " 50");  // a second, then a wait
  bool waits = false;
  for (int i = 0; i < 1000 && !waits; ++i) {
    job.beat();
    waits = job.use().in_wait == 1;
    usleep(5'000);
  }
  EXPECT_TRUE(waits);
  EXPECT_EQ(victim.answer(), 0);
  EXPECT_EQ(job.use().in_wait, 0U);
}

TEST(Gate, opens_when_the_arbiter_is_dead) {
  Machine machine("h200:1");
  Job job(machine, {{0, 2 * kGiB}}, true);
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  job.beat();
  set_gate(job, 1);
  const auto from = Clock::now();
  EXPECT_EQ(victim.tell("launch 1 1000"), 0);
  const double waited = std::chrono::duration<double>(Clock::now() - from).count();
  EXPECT_GT(waited, 0.5);
  EXPECT_LT(waited, 4);
}

TEST(Gate, limits_what_is_in_flight_while_contended) {
  Machine machine("h200:1");
  Job job(machine, {{0, 2 * kGiB}}, true);
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  const double each = ms_per_iteration(victim);
  const auto iterations = static_cast<std::uint64_t>(5 / each);  // 5 ms a launch
  const std::uint64_t before = job.use().launched;
  __atomic_store_n(&job.board().contended, ALIQUOT_CONTENDED_TURNS, __ATOMIC_RELEASE);
  job.beat();
  const auto from = Clock::now();
  victim.send("launch 60 " + std::to_string(iterations));
  std::uint64_t most = 0;
  for (int i = 0; i < 100; ++i) {
    job.beat();
    const aliquot_use use = job.use();
    most = std::max(most, use.launched - use.completed);
    usleep(1000);
  }
  EXPECT_EQ(victim.answer(), 0);
  // Sixty launches of 5 ms, a few of them ahead: the call lasts for the rest.
  EXPECT_GT(std::chrono::duration<double>(Clock::now() - from).count(), 0.15);
  EXPECT_GE(most, 1U);
  EXPECT_LE(most, 16U);
  ASSERT_EQ(victim.tell("sync"), 0);
  EXPECT_EQ(job.use().launched, job.use().completed);
  EXPECT_EQ(job.use().launched, before + 60U);
}

// The gate closes while a launch waits for the one before it: that one is not behind the gate yet.
TEST(Gate, holds_who_waited_for_room_when_it_closed) {
  Machine machine("h200:1");
  Job job(machine, {{0, 2 * kGiB}}, true);
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  const std::string one =
      "launch 1 " + std::to_string(static_cast<std::uint64_t>(400 / ms_per_iteration(victim)));
  job.beat();
  __atomic_store_n(&job.board().contended, ALIQUOT_CONTENDED_TURNS, __ATOMIC_RELEASE);
  for (int i = 0; i < 4; ++i) {  // how long its launches are
    job.beat();
    ASSERT_EQ(victim.tell(one), 0);
    ASSERT_EQ(victim.tell("sync"), 0);
  }
  const std::uint64_t before = job.use().launched;
  job.beat();
  ASSERT_EQ(victim.tell(one), 0);
  victim.send(one);
  usleep(50'000);
  set_gate(job, 1);
  for (int i = 0; i < 500 && job.use().completed == before; ++i) {
    job.beat();
    usleep(10'000);
  }
  for (int i = 0; i < 20; ++i) {
    job.beat();
    usleep(10'000);
  }
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
  job.beat();
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
  job.beat();
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  EXPECT_EQ(victim.tell("launch 3 1000"), 0);
  EXPECT_EQ(job.use().waited_ns, 0U);
}

// What the stand-in itself counts for the process.
double busy_ns(Machine& machine, pid_t pid) {
  standin::State& state = machine.state();
  const standin::State::Guard guard(state);
  standin::advance(state.gpu(0).compute, state.now());
  return state.gpu(0).compute.use[state.find_pid(pid)].busy;
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
  const auto iterations = static_cast<std::uint64_t>(1 / ms_per_iteration(small));
  const double small_before = busy_ns(machine, small.pid());
  const double large_before = busy_ns(machine, large.pid());
  __atomic_store_n(&first.board().contended, ALIQUOT_CONTENDED_TURNS, __ATOMIC_RELEASE);
  first.beat();
  small.send("launch 100000 " + std::to_string(iterations));
  large.send("launch 100000 " + std::to_string(iterations));
  double used_small = 0;
  double used_large = 0;
  const auto from = Clock::now();
  while (Clock::now() - from < std::chrono::seconds(3)) {
    used_small = busy_ns(machine, small.pid()) - small_before;
    used_large = busy_ns(machine, large.pid()) - large_before;
    const bool small_ahead = used_small / 0.3 > used_large / 0.7;
    first.beat();
    set_gate(first, small_ahead ? 1 : 0, 5);
    set_gate(first, small_ahead ? 0 : 1, 6);
    usleep(2000);
  }
  EXPECT_NEAR(used_small / (used_small + used_large), 0.3, 0.05);
  EXPECT_GT(used_small + used_large, 2e9) << "and the GPU was busy";
  small.kill();
  large.kill();
}

TEST(Meter, measures_what_the_driver_counts) {
  Machine machine("h200:1");
  Job job(machine, {{0, 2 * kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  const double each = ms_per_iteration(victim);
  for (const double ms : {0.2, 20.0}) {
    const double busy_before = busy_ns(machine, victim.pid());
    const std::uint64_t measured_before = job.use().gpu_ns;
    const auto iterations = static_cast<std::uint64_t>(ms / each);
    const int count = ms < 1 ? 2000 : 20;
    for (int i = 0; i < 4; ++i) {
      ASSERT_EQ(
          victim.tell("launch " + std::to_string(count / 4) + " " + std::to_string(iterations)), 0);
      ASSERT_EQ(victim.tell("sync"), 0);
    }
    const double busy = busy_ns(machine, victim.pid()) - busy_before;
    const auto measured = static_cast<double>(job.use().gpu_ns - measured_before);
    EXPECT_NEAR(measured / busy, 1, 0.25) << ms;
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
    each = ms_per_iteration(victim);
    victim.kill();
  }
  Job job(machine, {{0, 2 * kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  const std::string two_ms = std::to_string(static_cast<std::uint64_t>(2 / each));
  ASSERT_EQ(victim.tell("launch 1 10"), 0);
  ASSERT_EQ(victim.tell("sync"), 0);
  const double busy_before = busy_ns(machine, victim.pid());
  for (int i = 0; i < 40; ++i) {
    ASSERT_EQ(victim.tell("launch 4 " + two_ms), 0);
    ASSERT_EQ(victim.tell("sync"), 0);
  }
  const double busy = busy_ns(machine, victim.pid()) - busy_before;
  EXPECT_NEAR(static_cast<double>(job.use().gpu_ns) / busy, 1, 0.25);
}

TEST(Meter, counts_what_is_queued_for_seconds) {
  Machine machine("h200:1");
  Job job(machine, {{0, 2 * kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  const auto iterations = static_cast<std::uint64_t>(20 / ms_per_iteration(victim));
  const double busy_before = busy_ns(machine, victim.pid());
  const std::uint64_t measured_before = job.use().gpu_ns;
  ASSERT_EQ(victim.tell("launch 100 " + std::to_string(iterations)), 0);
  ASSERT_EQ(victim.tell("sync"), 0);
  const double busy = busy_ns(machine, victim.pid()) - busy_before;
  EXPECT_GT(busy, 1.5e9);
  EXPECT_NEAR(static_cast<double>(job.use().gpu_ns - measured_before) / busy, 1, 0.25);
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
