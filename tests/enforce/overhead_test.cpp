// What the driver takes by itself, and what it keeps in stock: the GPU never holds more of a job
// than its limit, and nothing that fits is refused.
#include <gtest/gtest.h>
#include <unistd.h>

#include "enforce/job.hpp"

namespace aliquot::enforce::test {
namespace {

using standin::test::Machine;

constexpr std::uint64_t kThreads = 132 * 2048;

std::string mib(std::uint64_t count) { return std::to_string(count * kMiB); }

// Takes all that it is given.
void fill(Victim& victim) {
  for (std::uint64_t size = kGiB; size >= 2 * kMiB; size /= 2)
    while (victim.tell("alloc " + std::to_string(size)) == 0) {
    }
}

TEST(Overhead, code_loaded_in_a_full_job_stays_below_the_limit) {
  for (const std::uint64_t limit : {kGiB, 4 * kGiB}) {
    Machine machine("h200:1");
    Job job(machine, {{0, limit}});
    Victim victim(&job);
    ASSERT_EQ(victim.begin(), 0);
    fill(victim);
    ASSERT_GT(machine.used(0), limit - limit / 12);
    int loaded = 0;
    int r = 0;
    for (; loaded < 40 && r == 0; ++loaded) {
      r = victim.tell("code late_8_" + std::to_string(loaded));
      ASSERT_LE(machine.used(0), limit) << loaded;
      ASSERT_LE(job.total(), limit) << loaded;
    }
    // There was room for some of it, and then none, as on a full card. What is loaded runs on.
    EXPECT_GT(loaded, limit == kGiB ? 1 : 10);
    EXPECT_EQ(r, kOutOfMemory);
    EXPECT_EQ(victim.tell("code late_8_0"), 0);
    EXPECT_EQ(job.charged(), machine.used(0));
  }
}

TEST(Overhead, code_goes_on_being_loaded_where_there_is_memory_left) {
  Machine machine("h200:1");
  Job job(machine, {{0, 4 * kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  for (int i = 0; i < 60; ++i) ASSERT_EQ(victim.tell("code late_8_" + std::to_string(i)), 0) << i;
  EXPECT_GE(job.total(), machine.used(0));
  EXPECT_EQ(victim.tell("alloc " + mib(2900)), 0);
  EXPECT_LE(machine.used(0), 4 * kGiB);
}

TEST(Overhead, four_processes_have_room_each) {
  Machine machine("h200:1");
  Job job(machine, {{0, 4 * kGiB}});
  std::vector<std::unique_ptr<Victim>> victims;
  for (int i = 0; i < 4; ++i) {
    victims.push_back(std::make_unique<Victim>(&job));
    ASSERT_EQ(victims.back()->begin(), 0);
  }
  for (auto& victim : victims) fill(*victim);
  for (int i = 0; i < 20; ++i)
    for (auto& victim : victims) {
      (void)victim->tell("code late_8_" + std::to_string(i));
      ASSERT_LE(machine.used(0), 4 * kGiB);
    }
}

// A context is guessed by what one cost without its room, so that a second one still fits.
TEST(Overhead, the_room_of_one_process_does_not_keep_another_out) {
  Machine machine("h200:1");
  Job job(machine, {{0, 4 * kGiB}});
  Victim first(&job);
  ASSERT_EQ(first.begin(), 0);
  ASSERT_EQ(first.tell("alloc " + mib(4096 - 526 - 224 - 526 - 48)), 0);
  Victim second(&job);
  EXPECT_EQ(second.begin(), 0);
  EXPECT_LE(job.total(), 4 * kGiB);
}

TEST(Overhead, variables_of_a_module_are_charged_and_refused) {
  Machine machine("h200:1");
  Job job(machine, {{0, 4 * kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  ASSERT_EQ(victim.tell("variables " + mib(1024)), 0);
  EXPECT_EQ(job.charged(), machine.used(0));
  EXPECT_EQ(victim.tell("variables " + mib(4096)), kOutOfMemory);
  EXPECT_EQ(machine.used(0), kContext + kGiB);
  EXPECT_LE(job.total(), 4 * kGiB);
  EXPECT_EQ(victim.tell("alloc " + mib(2048)), 0);
}

TEST(Overhead, local_memory_is_known_beforehand) {
  Machine machine("h200:1");
  Job job(machine, {{0, 4 * kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  // A kernel with 4 KiB a thread needs 3 KiB more than there is, for every thread of the GPU.
  ASSERT_EQ(victim.tell("code local_4_a"), 0);
  EXPECT_EQ(machine.used(0), kContext + 3072 * kThreads);
  EXPECT_EQ(job.charged(), machine.used(0));
  EXPECT_EQ(victim.tell("code local_16_a"), kOutOfMemory);
  EXPECT_EQ(machine.used(0), kContext + 3072 * kThreads);
  ASSERT_EQ(victim.tell("code local_4_b"), 0);
  EXPECT_EQ(machine.used(0), kContext + 3072 * kThreads);
}

TEST(Overhead, the_heap_of_the_device_is_kept_for_it) {
  Machine machine("h200:1");
  Job job(machine, {{0, 4 * kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  EXPECT_EQ(victim.tell("limit 2 " + mib(4096)), kOutOfMemory);
  ASSERT_EQ(victim.tell("limit 2 " + mib(1024)), 0);
  fill(victim);
  ASSERT_EQ(victim.tell("code heap_a"), 0);
  EXPECT_LE(machine.used(0), 4 * kGiB);
  EXPECT_LE(job.total(), 4 * kGiB);
}

TEST(Overhead, a_heap_that_is_made_smaller_gives_back_what_was_kept) {
  Machine machine("h200:1");
  Job job(machine, {{0, 4 * kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  const std::uint64_t before = job.total();
  ASSERT_EQ(victim.tell("limit 2 " + mib(2048)), 0);
  EXPECT_GT(job.total(), before + kGiB);
  ASSERT_EQ(victim.tell("limit 2 " + mib(8)), 0);
  EXPECT_LT(job.total(), before + 256 * kMiB);
}

TEST(Overhead, managed_memory_does_not_hide_it) {
  Machine machine("h200:1");
  Job job(machine, {{0, 4 * kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  ASSERT_EQ(victim.tell("managed " + mib(1024)), 0);
  EXPECT_EQ(job.use().unattributed, kGiB + 8 * kMiB);  // and a little of the context
  for (int i = 0; i < 30; ++i) ASSERT_EQ(victim.tell("code late_8_" + std::to_string(i)), 0);
  EXPECT_EQ(job.charged(), machine.used(0));
}

TEST(Overhead, what_is_said_to_be_free_can_be_had) {
  for (const char* kind : {"take-free 0", "take-free 1"})
    for (const std::uint64_t limit : {kGiB, 3 * kGiB + 12345, 10 * kGiB}) {
      Machine machine("h200:1");
      Job job(machine, {{0, limit}});
      Victim victim(&job);
      ASSERT_EQ(victim.begin(), 0);
      ASSERT_EQ(victim.tell("alloc 1000"), 0);
      ASSERT_EQ(victim.tell("async 3000000"), 0);
      for (int i = 0; i < 5; ++i) ASSERT_EQ(victim.tell("code late_8_" + std::to_string(i)), 0);
      EXPECT_EQ(victim.tell(kind), 0) << kind << " of " << limit << ": " << victim.text();
      EXPECT_GT(victim.number("free"), limit / 4);
      EXPECT_LE(machine.used(0), limit);
    }
}

TEST(Stock, a_graph_needs_what_is_live_at_once) {
  Machine machine("h200:1");
  Job job(machine, {{0, 2 * kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  ASSERT_EQ(victim.tell("loop-graph 100 " + mib(200)), 0) << victim.text();
  EXPECT_EQ(machine.used(0), kContext + 224 * kMiB);
  EXPECT_EQ(job.charged(), machine.used(0));
  // Beside it, on a stream of its own.
  ASSERT_EQ(victim.tell("loop-graph 50 " + mib(300)), 0);
  EXPECT_EQ(job.charged(), machine.used(0));
  EXPECT_EQ(victim.tell("loop-graph 2 " + mib(1500)), kOutOfMemory);
  EXPECT_LE(job.usage().past[0].peak_bytes, 2 * kGiB);
  EXPECT_EQ(job.use().refusals, 1U);
}

TEST(Stock, of_a_pool_belongs_to_the_gpu_of_the_stream) {
  Machine machine("h200:2");
  Job job(machine, {{0, 4 * kGiB}, {1, 4 * kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(0), 0);
  ASSERT_EQ(victim.tell("launch-on 1 100"), 0);  // a stream of the first GPU
  ASSERT_EQ(victim.tell("ctx 1"), 0);
  ASSERT_EQ(victim.tell("async-on 1 " + mib(1024)), 0);
  EXPECT_EQ(job.charged(0), kContext + kGiB);
  EXPECT_EQ(job.charged(1), kContext);
  EXPECT_EQ(machine.used(0), job.charged(0));
  EXPECT_EQ(machine.used(1), job.charged(1));
}

// 3 GiB are freed on one stream behind a long kernel, and 3 GiB wanted on another, in 4 GiB: the
// driver would take 6.
TEST(Stock, frees_under_way_are_waited_for) {
  Machine machine("h200:1");
  Job job(machine, {{0, 4 * kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  ASSERT_EQ(victim.tell("async-on 1 " + mib(3072)), 0);
  ASSERT_EQ(victim.tell("launch-on 1 150000000"), 0);  // 0.3 s
  ASSERT_EQ(victim.tell("free-on 1 0"), 0);
  victim.send("async-on 2 " + mib(3072));
  for (int i = 0; i < 100; ++i) {
    ASSERT_LE(machine.used(0), 4 * kGiB);
    usleep(1000);
  }
  EXPECT_EQ(victim.answer(), 0) << victim.text();
  EXPECT_LE(machine.used(0), 4 * kGiB);
  EXPECT_EQ(job.use().refusals, 0U);
  // Memory of another kind waits for them too.
  ASSERT_EQ(victim.tell("launch-on 2 50000000"), 0);
  ASSERT_EQ(victim.tell("free-on 2 0"), 0);
  EXPECT_EQ(victim.tell("alloc " + mib(3072)), 0);
  EXPECT_LE(machine.used(0), 4 * kGiB);
}

}  // namespace
}  // namespace aliquot::enforce::test
