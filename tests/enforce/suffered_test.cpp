// What users of other libraries of this kind have reported as bugs, one test each; and what a
// process may do to itself: fork, exec, be killed, close all its descriptors.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>

#include "enforce/job.hpp"
#include "sys/testing.hpp"

namespace aliquot::enforce::test {
namespace {

using standin::test::Machine;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point from) {
  return std::chrono::duration<double>(Clock::now() - from).count();
}

TEST(Suffered, limits_ignored_with_cuda_visible_devices) {
  Machine machine("h200:4");
  Job job(machine, {{3, kGiB}, {2, 2 * kGiB}});
  Victim victim(&job, "dlsym", {{"CUDA_VISIBLE_DEVICES", "2,3"}});
  ASSERT_EQ(victim.begin(0), 0);  // GPU 2
  EXPECT_EQ(victim.tell("alloc " + std::to_string(kGiB)), 0);
  ASSERT_EQ(victim.tell("total 1"), 0);  // GPU 3
  EXPECT_EQ(victim.number("total"), kGiB);
  ASSERT_EQ(victim.tell("ctx 1"), 0);
  EXPECT_EQ(victim.tell("alloc " + std::to_string(kGiB)), kOutOfMemory);
  EXPECT_EQ(job.charged(1), machine.used(2));
  EXPECT_EQ(job.charged(0), machine.used(3));
}

TEST(Suffered, out_of_memory_returned_as_minus_one) {
  Machine machine("h200:1");
  Job job(machine, {{0, kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  for (const char* line : {"alloc 9000000000", "managed 9000000000", "async 9000000000",
                           "vmm 9007267840 0", "array 65536 65536", "pitch 65536 65536"})
    EXPECT_EQ(victim.tell(line), kOutOfMemory) << line;
  EXPECT_EQ(victim.tell("alloc 18446744073709551615"), kOutOfMemory);
  EXPECT_EQ(job.charged(), kContext);
}

// The driver shows a process as soon as it starts to use it; who is not registered then is taken
// for one without the library.
TEST(Suffered, ordinary_jobs_reported_in_their_first_second) {
  Machine machine("h200:1");
  Job job(machine, {{0, kGiB}});
  Victim victim(&job, "dlsym", {{"CUDA_VISIBLE_DEVICES", ""}});
  EXPECT_EQ(victim.tell("init"), 100) << "no device: the driver's own start failed";
  EXPECT_EQ(job.usage().slots[0].pid, victim.pid());
}

// Somebody else holds what he was not granted, and is being ended for it; or a killed process still
// gives its memory back. What is within the grant is not refused for that.
TEST(Suffered, refused_what_was_granted_while_another_was_being_ended) {
  Machine machine("h200:1");
  Job job(machine, {{0, 20 * kGiB}});
  for (const char* how : {"alloc", "async", "vmm"}) {
    // The library waits for three seconds. On a busy machine the other one may end later than that:
    // then once more.
    bool in_time = false;
    for (int i = 0; i < 20 && !in_time; ++i) {
      Victim victim(&job);
      ASSERT_EQ(victim.begin(), 0);
      Victim greedy(nullptr);
      ASSERT_EQ(greedy.begin(), 0);
      ASSERT_EQ(greedy.tell("alloc " + std::to_string(130 * kGiB)), 0);
      const std::string size = std::to_string(18 * kGiB);
      const auto begun = Clock::now();
      victim.send(std::string(how) + " " + size + (std::strcmp(how, "vmm") == 0 ? " 0" : ""));
      usleep(300'000);
      greedy.kill();
      in_time = seconds_since(begun) < 2.5;
      const int answer = victim.answer();
      EXPECT_TRUE(!in_time || answer == 0) << how << ": " << answer;
    }
    EXPECT_TRUE(in_time) << how;
  }
}

TEST(Suffered, a_gpu_that_is_really_full_is_waited_for_once) {
  Machine machine("h200:1");
  Job job(machine, {{0, 20 * kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  Victim greedy(nullptr);
  ASSERT_EQ(greedy.begin(), 0);
  ASSERT_EQ(greedy.tell("alloc " + std::to_string(130 * kGiB)), 0);
  const std::string line = "alloc " + std::to_string(18 * kGiB);
  EXPECT_EQ(victim.tell(line), kOutOfMemory);
  const auto begun = Clock::now();
  for (int i = 0; i < 30; ++i) EXPECT_EQ(victim.tell(line), kOutOfMemory);
  EXPECT_LT(seconds_since(begun), 60) << "not three seconds each";
}

TEST(Suffered, frees_of_pool_memory_failing) {
  Machine machine("h200:1");
  Job job(machine, {{0, kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  ASSERT_EQ(victim.tell("async 1000000"), 0);
  EXPECT_EQ(victim.tell("free 0"), 0);
  ASSERT_EQ(victim.tell("alloc 1000000"), 0);
  EXPECT_EQ(victim.tell("freeasync 0"), 0);
  EXPECT_EQ(victim.tell("badfree"), 1) << "the driver's own answer";
  ASSERT_EQ(victim.tell("sync"), 0);
  EXPECT_EQ(job.charged(), machine.used_by(victim.pid()));
}

TEST(Suffered, memory_of_a_moved_slot_becoming_invisible) {
  Machine machine("h200:1");
  Job job(machine, {{0, 2 * kGiB}});
  std::vector<std::unique_ptr<Victim>> victims;
  for (int i = 0; i < 3; ++i) {
    victims.push_back(std::make_unique<Victim>(&job));
    ASSERT_EQ(victims.back()->begin(), 0);
    ASSERT_EQ(victims.back()->tell("alloc 50000000"), 0);
  }
  // The first ones go; the last one's memory stays counted where it is.
  victims[0]->kill();
  victims[1]->kill();
  EXPECT_EQ(job.charged(), machine.used_by(victims[2]->pid()));
  Victim another(&job);
  ASSERT_EQ(another.begin(), 0);
  EXPECT_EQ(job.total() - job.use().room, machine.used(0));
  EXPECT_EQ(another.tell("alloc " + std::to_string(kGiB)), kOutOfMemory);
}

TEST(Suffered, killed_while_holding_the_lock_hanging_all_others) {
  Machine machine("h200:1");
  Job job(machine, {{0, 2 * kGiB}});
  // A process that dies with the mutex in its hands.
  const pid_t holder = fork();
  if (holder == 0) {
    pthread_mutex_lock(&job.usage().lock.mutex);
    raise(SIGKILL);
  }
  waitpid(holder, nullptr, 0);
  const auto from = Clock::now();
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  EXPECT_EQ(victim.tell("alloc 1000000"), 0);
  EXPECT_LT(seconds_since(from), 60);
}

TEST(Suffered, start_up_serialised_over_the_whole_node) {
  // While one process sits in the middle of a start (it holds its own job's lock), others of other
  // jobs start, and those of the same job wait only for the lock.
  Machine machine("h200:1");
  Job slow(machine, {{0, 2 * kGiB}});
  Job job(machine, {{0, 2 * kGiB}});
  pthread_mutex_lock(&slow.usage().lock.mutex);
  Victim waiting(&slow);
  waiting.send("init");
  Victim victim(&job);
  const auto from = Clock::now();
  EXPECT_EQ(victim.begin(), 0);
  EXPECT_LT(seconds_since(from), 60);
  pthread_mutex_unlock(&slow.usage().lock.mutex);
  EXPECT_EQ(waiting.answer(), 0);
}

TEST(Suffered, umask_and_signal_handlers_of_the_host_replaced_and_threads_started) {
  Machine machine("h200:1");
  std::string bare;
  {
    Victim victim(nullptr, "dlsym", {{"LD_PRELOAD", ""}});
    ASSERT_EQ(victim.begin(), 0);
    ASSERT_EQ(victim.tell("launch 50 1000"), 0);
    ASSERT_EQ(victim.tell("manners"), 0);
    bare = victim.text();
  }
  Job job(machine, {{0, 2 * kGiB}}, true);
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  ASSERT_EQ(victim.tell("launch 50 1000"), 0);
  EXPECT_EQ(victim.tell("alloc 90000000000"), kOutOfMemory);
  ASSERT_EQ(victim.tell("manners"), 0);
  EXPECT_EQ(victim.text(), bare);
  ASSERT_EQ(victim.tell("errno alloc 90000000000"), kOutOfMemory);
  EXPECT_EQ(victim.number("errno"), 77U);
  ASSERT_EQ(victim.tell("errno info"), 0);
  EXPECT_EQ(victim.number("errno"), 77U);
}

TEST(Suffered, exit_called_inside_the_process) {
  Machine machine("h200:1");
  Victim victim(nullptr, "dlsym", {{ALIQUOT_GRANT_VARIABLE, "/nonexistent"}});
  EXPECT_EQ(victim.tell("init"), 0);
  EXPECT_EQ(victim.tell("ctx 0"), kOutOfMemory);
  EXPECT_EQ(victim.tell("total 0"), 0);
  EXPECT_EQ(victim.number("total"), 0U);
  EXPECT_EQ(victim.finish(), 0);
}

TEST(Suffered, segfault_when_mem_get_info_is_given_null) {
  Machine machine("h200:1");
  Job job(machine, {{0, kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  EXPECT_EQ(victim.tell("info-null"), 0);
}

TEST(Suffered, graph_and_cooperative_launches_escaping_the_limiter) {
  Machine machine("h200:1");
  Job job(machine, {{0, 2 * kGiB}}, true);
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  job.keep_beating();
  for (const char* line : {"cooperative 1 1000", "capture 1 1000", "launch 1 1000"}) {
    __atomic_store_n(&job.board().gates[5].word, 1U, __ATOMIC_RELEASE);
    victim.send(line);
    EXPECT_TRUE(aliquot::test::eventually([&] { return job.use().waiting == 1; })) << line;
    __atomic_store_n(&job.board().gates[5].word, 0U, __ATOMIC_RELEASE);
    EXPECT_EQ(victim.answer(), 0) << line;
    EXPECT_EQ(job.use().waiting, 0U);
  }
}

TEST(Suffered, a_usage_or_limits_file_of_somebody_else) {
  Machine machine("h200:1");
  {
    Job job(machine, {{0, kGiB}});
    chmod((job.folder() + "/limits").c_str(), 0666);  // anybody could have written it
    Victim victim(&job);
    EXPECT_EQ(victim.tell("init"), 0);
    EXPECT_EQ(victim.tell("ctx 0"), kOutOfMemory);
  }
  {
    Job job(machine, {{0, kGiB}});
    const std::string name = job.folder() + "/limits";
    ASSERT_EQ(rename(name.c_str(), (job.folder() + "/elsewhere").c_str()), 0);
    ASSERT_EQ(symlink("elsewhere", name.c_str()), 0);
    Victim victim(&job);
    EXPECT_EQ(victim.tell("init"), 0);
    EXPECT_EQ(victim.tell("ctx 0"), kOutOfMemory);
  }
}

TEST(Process, killed_gives_everything_back_also_as_a_zombie) {
  Machine machine("h200:1");
  Job job(machine, {{0, 2 * kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  ASSERT_EQ(victim.tell("alloc " + std::to_string(kGiB)), 0);
  victim.kill(false);
  EXPECT_EQ(job.charged(), 0U);
  Victim heir(&job);
  ASSERT_EQ(heir.begin(), 0);
  EXPECT_EQ(heir.tell("alloc " + std::to_string(kGiB)), 0);
  EXPECT_EQ(job.total() - job.use().room, machine.used(0));
  EXPECT_EQ(job.usage().past[0].peak_bytes, kContext + kGiB + job.use().room);
}

TEST(Process, forked_child_starts_with_nothing_and_does_not_keep_its_parent_alive) {
  Machine machine("h200:1");
  Job job(machine, {{0, 2 * kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  ASSERT_EQ(victim.tell("alloc " + std::to_string(kGiB)), 0);
  EXPECT_EQ(victim.tell("fork"), 3) << "the driver's answer in a forked child";
  const auto child = static_cast<pid_t>(victim.number("child"));
  EXPECT_EQ(job.charged(), kContext + kGiB);
  EXPECT_EQ(job.charged(), machine.used(0));
  ASSERT_EQ(victim.tell("alloc 1000000"), 0);
  victim.kill();
  EXPECT_EQ(job.charged(), machine.used(0));
  Victim heir(&job);
  EXPECT_EQ(heir.begin(), 0);
  EXPECT_EQ(heir.tell("alloc " + std::to_string(kGiB)), 0);
  kill(child, SIGKILL);
}

TEST(Process, forked_before_the_first_use_registers_by_itself) {
  Machine machine("h200:1");
  Job job(machine, {{0, 2 * kGiB}});
  Victim victim(&job);
  EXPECT_EQ(victim.tell("fork-first"), 0);
  const auto child = static_cast<pid_t>(victim.number("child"));
  EXPECT_EQ(job.usage().slots[0].pid, child);
  EXPECT_EQ(job.charged(), machine.used_by(child));
  ASSERT_EQ(victim.begin(), 0);
  EXPECT_EQ(victim.tell("alloc " + std::to_string(kGiB)), kOutOfMemory);
  EXPECT_EQ(job.charged(), machine.used(0));
  EXPECT_EQ(job.charged(), 2 * kContext + 2 * kMiB);
  kill(child, SIGKILL);
}

TEST(Process, exec_gives_back_what_the_old_program_held) {
  Machine machine("h200:1");
  Job job(machine, {{0, 2 * kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  ASSERT_EQ(victim.tell("alloc " + std::to_string(kGiB)), 0);
  victim.send("exec");
  ASSERT_EQ(victim.tell("pid"), 0);
  EXPECT_EQ(job.charged(), 0U);
  // The same pid and start time, and nothing of the old one left.
  ASSERT_EQ(victim.begin(), 0);
  EXPECT_EQ(victim.tell("alloc " + std::to_string(kGiB)), 0);
  EXPECT_EQ(job.total() - job.use().room, machine.used(0));
}

TEST(Process, that_closes_our_descriptor_stays_counted) {
  // The stand-in counts a process that closed everything as gone, so ask only the library.
  Machine machine("h200:1");
  Job job(machine, {{0, 2 * kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  ASSERT_EQ(victim.tell("alloc " + std::to_string(kGiB)), 0);
  ASSERT_EQ(victim.tell("close-all"), 0);
  EXPECT_EQ(victim.tell("alloc " + std::to_string(kGiB)), kOutOfMemory);
  EXPECT_EQ(job.charged(), kContext + kGiB) << "it has its lock again";
}

TEST(Process, taken_for_dead_touches_nobody_elses_slot_and_is_counted_again) {
  Machine machine("h200:1");
  Job job(machine, {{0, 3 * kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  ASSERT_EQ(victim.tell("alloc " + std::to_string(kGiB)), 0);
  ASSERT_EQ(victim.tell("alloc 100000000"), 0);
  // What the library goes by: no lock any more, and the process lives. Its slot goes to another
  // one.
  ASSERT_EQ(victim.tell("close-all"), 0);
  Victim other(&job);
  ASSERT_EQ(other.begin(), 0);
  EXPECT_EQ(job.usage().slots[0].pid, other.pid());
  (void)victim.tell("free 1");
  EXPECT_EQ(job.charged(), kContext);
  (void)victim.tell("alloc 3000000");
  EXPECT_EQ(job.charged(), 2 * kContext + kGiB + 4 * kMiB);
  EXPECT_EQ(job.usage().slots[1].pid, victim.pid());
}

TEST(Process, without_a_grant_runs_bare) {
  Machine machine("h200:1");
  Victim victim(nullptr);
  ASSERT_EQ(victim.begin(), 0);
  EXPECT_EQ(victim.tell("alloc " + std::to_string(100 * kGiB)), 0);
  ASSERT_EQ(victim.tell("info"), 0);
  EXPECT_GT(victim.number("total"), 139 * kGiB);
  EXPECT_EQ(victim.tell("launch 100 1000"), 0);
  EXPECT_EQ(victim.tell("sync"), 0);
  EXPECT_EQ(victim.finish(), 0);
}

TEST(Process, without_cuda_never_touches_the_grant) {
  Machine machine("h200:1");
  Job job(machine, {{0, kGiB}});
  Victim victim(&job, "none");
  ASSERT_EQ(victim.tell("manners"), 0);
  EXPECT_EQ(victim.number("threads"), 1U);
  EXPECT_EQ(job.usage().high_water, 0U);
  EXPECT_EQ(victim.finish(), 0);
}

}  // namespace
}  // namespace aliquot::enforce::test
