// Memory: every kind of allocation up to the limit, in one process and in four; what the library
// charges is what the stand-in driver itself counts; and the views show the share.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "enforce/job.hpp"

namespace aliquot::enforce::test {
namespace {

using standin::test::Machine;

struct Kind {
  const char* name;
  const char* line;  // takes 64 MiB or a little more
  const char* prepare;
};
const Kind kKinds[] = {
    {"alloc", "alloc 67108864", nullptr},        {"alloc_odd", "alloc 66000001", nullptr},
    {"managed", "managed 67108864", nullptr},    {"pitch", "pitch 8000 8192", nullptr},
    {"array", "array 4096 4096", nullptr},       {"array3d", "array3d 256 256 128", nullptr},
    {"mipmap", "mipmap 4096 4096 5", nullptr},   {"async", "async 67108864", nullptr},
    {"pool", "frompool 67108864", "newpool"},    {"vmm", "vmm 67108864 0", nullptr},
    {"vmm_released", "vmm 67108864 1", nullptr},
};

class EveryKind : public testing::TestWithParam<Kind> {};

TEST_P(EveryKind, stops_at_the_limit_and_counts_as_the_driver) {
  Machine machine("h200:1");
  Job job(machine, {{0, 2 * kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  EXPECT_EQ(job.charged(), kContext);
  if (GetParam().prepare != nullptr) {
    ASSERT_EQ(victim.tell(GetParam().prepare), 0);
  }
  int got = 0;
  int r = 0;
  while ((r = victim.tell(GetParam().line)) == 0 && got < 100) {
    ++got;
    ASSERT_EQ(job.charged(), machine.used_by(victim.pid()));
    ASSERT_LE(job.charged(), 2 * kGiB);
  }
  EXPECT_EQ(r, kOutOfMemory);
  EXPECT_GT(got, 14);
  // Not one more of them would have fitted.
  EXPECT_GT(job.total() + 100 * kMiB, 2 * kGiB);
  EXPECT_EQ(job.use().refusals, 1U);

  for (; got > 0; --got) ASSERT_EQ(victim.tell("free 0"), 0);
  ASSERT_EQ(victim.tell("sync"), 0);
  EXPECT_EQ(job.charged(), machine.used_by(victim.pid()));
  EXPECT_EQ(job.charged(), kContext);
  EXPECT_EQ(victim.finish(), 0);
  EXPECT_EQ(job.charged(), 0U);
}

TEST_P(EveryKind, of_four_processes_together_stops_at_the_limit) {
  Machine machine("h200:1");
  Job job(machine, {{0, 4 * kGiB}});
  std::vector<std::unique_ptr<Victim>> victims;
  for (int i = 0; i < 4; ++i) {
    victims.push_back(std::make_unique<Victim>(&job));
    ASSERT_EQ(victims.back()->begin(), 0);
    if (GetParam().prepare != nullptr) {
      ASSERT_EQ(victims.back()->tell(GetParam().prepare), 0);
    }
  }
  // All at once, so that they meet at the limit.
  int got = 0;
  bool refused[4] = {};
  for (int round = 0; round < 40; ++round) {
    for (auto& victim : victims) victim->send(GetParam().line);
    for (std::size_t i = 0; i < 4; ++i) {
      const int r = victims[i]->answer();
      got += r == 0 ? 1 : 0;
      refused[i] |= r == kOutOfMemory;
    }
    ASSERT_EQ(job.charged(), machine.used(0));
    ASSERT_LE(job.total(), 4 * kGiB);
  }
  for (const bool each : refused) EXPECT_TRUE(each);
  EXPECT_GT(got, 14);
  EXPECT_GT(job.total() + 4 * 32 * kMiB + 100 * kMiB, 4 * kGiB);
}

INSTANTIATE_TEST_SUITE_P(Memory, EveryKind, testing::ValuesIn(kKinds),
                         [](const auto& each) { return each.param.name; });

TEST(Memory, threads_of_one_process_keep_the_books_right) {
  Machine machine("h200:1");
  Job job(machine, {{0, kGiB}}, true);
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  victim.send("churn 6 400");
  for (int i = 0; i < 50; ++i) {
    // Neighbours come and go meanwhile.
    __atomic_store_n(&job.board().contended, static_cast<std::uint32_t>(i % 2), __ATOMIC_RELEASE);
    job.beat();
    ASSERT_LE(job.total(), kGiB);
    usleep(2000);
  }
  __atomic_store_n(&job.board().contended, 0U, __ATOMIC_RELEASE);
  EXPECT_EQ(victim.answer(), 0) << victim.text();
  ASSERT_EQ(victim.tell("sync"), 0);
  EXPECT_EQ(job.charged(), machine.used_by(victim.pid()));
  EXPECT_EQ(job.charged(), kContext);
}

TEST(Memory, small_pieces_share_slabs) {
  Machine machine("h200:1");
  Job job(machine, {{0, 2 * kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(victim.tell("alloc " + std::to_string(1000 + i * 9000)), 0);
    ASSERT_EQ(job.charged(), machine.used_by(victim.pid()));
  }
  for (int i = 99; i >= 0; --i) {
    ASSERT_EQ(victim.tell("free " + std::to_string(i / 2)), 0);
    ASSERT_EQ(job.charged(), machine.used_by(victim.pid()));
  }
}

TEST(Memory, graph_memory_is_charged_when_it_runs_and_refused_over_the_limit) {
  Machine machine("h200:1");
  Job job(machine, {{0, kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  ASSERT_EQ(victim.tell("graph " + std::to_string(100 * kMiB)), 0);
  EXPECT_EQ(job.charged(), machine.used_by(victim.pid()));
  EXPECT_EQ(job.charged(), kContext + 128 * kMiB);
  EXPECT_EQ(victim.tell("graph " + std::to_string(600 * kMiB)), kOutOfMemory);
  // Unused stock of graphs makes room for others, as the driver does it.
  EXPECT_EQ(victim.tell("alloc " + std::to_string(470 * kMiB)), 0);
  EXPECT_EQ(job.charged(), machine.used_by(victim.pid()));
  ASSERT_EQ(victim.tell("graphtrim"), 0);
  EXPECT_EQ(job.charged(), machine.used_by(victim.pid()));
}

TEST(Memory, graph_memory_belongs_to_the_gpu_of_its_node) {
  Machine machine("h200:2");
  Job job(machine, {{0, kGiB}, {1, kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(1), 0);
  ASSERT_EQ(victim.tell("graph " + std::to_string(100 * kMiB)), 0);
  EXPECT_EQ(job.charged(1), kContext + 128 * kMiB);
  EXPECT_EQ(job.charged(0), 0U);
  EXPECT_EQ(job.charged(1), machine.used(1));
}

TEST(Memory, unused_stock_of_a_pool_makes_room) {
  Machine machine("h200:1");
  Job job(machine, {{0, kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  ASSERT_EQ(victim.tell("keep-reserved 10000000000"), 0);
  ASSERT_EQ(victim.tell("async " + std::to_string(400 * kMiB)), 0);
  ASSERT_EQ(victim.tell("freeasync 0"), 0);
  ASSERT_EQ(victim.tell("sync"), 0);
  EXPECT_EQ(job.charged(), kContext + 416 * kMiB);  // still in stock
  EXPECT_EQ(job.charged(), machine.used_by(victim.pid()));
  ASSERT_EQ(victim.tell("async " + std::to_string(410 * kMiB)), 0);  // out of the stock
  ASSERT_EQ(victim.tell("freeasync 0"), 0);
  ASSERT_EQ(victim.tell("sync"), 0);
  EXPECT_EQ(victim.tell("alloc " + std::to_string(470 * kMiB)), 0);
  EXPECT_EQ(job.charged(), machine.used_by(victim.pid()));
}

TEST(Memory, a_destroyed_pool_is_paid_for_until_its_last_piece_is_freed) {
  Machine machine("h200:1");
  Job job(machine, {{0, kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  ASSERT_EQ(victim.tell("newpool"), 0);
  ASSERT_EQ(victim.tell("frompool " + std::to_string(100 * kMiB)), 0);
  ASSERT_EQ(victim.tell("frompool " + std::to_string(10 * kMiB)), 0);
  ASSERT_EQ(victim.tell("endpool"), 0);
  EXPECT_EQ(job.charged(), kContext + 128 * kMiB);
  EXPECT_EQ(job.charged(), machine.used_by(victim.pid()));
  ASSERT_EQ(victim.tell("freeasync 0"), 0);
  EXPECT_EQ(job.charged(), machine.used_by(victim.pid()));
  ASSERT_EQ(victim.tell("free 0"), 0);
  EXPECT_EQ(job.charged(), kContext);
}

TEST(Memory, vmm_memory_leaves_with_the_last_handle_and_mapping) {
  Machine machine("h200:1");
  Job job(machine, {{0, kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  ASSERT_EQ(victim.tell("vmm " + std::to_string(64 * kMiB) + " 1"), 0);
  ASSERT_EQ(victim.tell("retain"), 0);
  ASSERT_EQ(victim.tell("retain"), 0);
  ASSERT_EQ(victim.tell("free 0"), 0);
  EXPECT_EQ(job.charged(), kContext + 64 * kMiB);
  ASSERT_EQ(victim.tell("drop"), 0);
  EXPECT_EQ(job.charged(), kContext + 64 * kMiB);
  ASSERT_EQ(victim.tell("drop"), 0);
  EXPECT_EQ(job.charged(), kContext);
  EXPECT_EQ(job.charged(), machine.used_by(victim.pid()));
}

TEST(Memory, contexts_cost_what_they_cost_and_take_their_memory_along) {
  Machine machine("h200:1");
  Job job(machine, {{0, 3 * kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.tell("init"), 0);
  EXPECT_EQ(job.charged(), 0U);
  ASSERT_EQ(victim.tell("newctx 0"), 0);
  ASSERT_EQ(victim.tell("alloc 100000000"), 0);
  ASSERT_EQ(victim.tell("alloc 1000"), 0);
  ASSERT_EQ(victim.tell("newctx 0"), 0);
  EXPECT_EQ(job.charged(), machine.used_by(victim.pid()));
  EXPECT_EQ(job.use().context, 2 * kContext);
  ASSERT_EQ(victim.tell("endctx"), 0);
  ASSERT_EQ(victim.tell("endctx"), 0);
  EXPECT_EQ(job.charged(), 0U);
  ASSERT_EQ(victim.tell("ctx 0"), 0);
  ASSERT_EQ(victim.tell("ctx 0"), 0);
  ASSERT_EQ(victim.tell("alloc 100000000"), 0);
  EXPECT_EQ(job.charged(), machine.used_by(victim.pid()));
  ASSERT_EQ(victim.tell("release 0"), 0);
  EXPECT_EQ(job.charged(), machine.used_by(victim.pid()));
  ASSERT_EQ(victim.tell("reset 0"), 0);
  EXPECT_EQ(job.charged(), 0U);
  EXPECT_EQ(machine.used_by(victim.pid()), 0U);
}

TEST(Memory, a_context_costs_what_nvml_says_whatever_was_guessed) {
  for (const std::uint64_t guess : {100 * kMiB, 900 * kMiB}) {
    Machine machine("h200:1");
    Job job(machine, {{0, kGiB}});
    job.limits().gpus[0].context_bytes = guess;
    Victim victim(&job);
    ASSERT_EQ(victim.begin(), 0);
    EXPECT_EQ(job.charged(), kContext);
    EXPECT_EQ(job.use().context, kContext);
  }
  Machine machine("h200:1");
  Job job(machine, {{0, 300 * kMiB}});
  job.limits().gpus[0].context_bytes = 100 * kMiB;
  Victim victim(&job);
  EXPECT_EQ(victim.begin(), kOutOfMemory);
  EXPECT_EQ(job.charged(), 0U);
  EXPECT_EQ(machine.used(0), 0U);
}

TEST(Memory, without_nvml_a_context_costs_the_guess) {
  Machine machine("h200:1");
  Job job(machine, {{0, kGiB}});
  job.limits().gpus[0].context_bytes = 700 * kMiB;
  std::filesystem::create_symlink(ALIQUOT_STANDIN_DIR "/libcuda.so.1",
                                  job.folder() + "/libcuda.so.1");
  Victim victim(&job, "dlsym", {{"LD_LIBRARY_PATH", job.folder()}});
  ASSERT_EQ(victim.begin(), 0);
  EXPECT_EQ(job.charged(), 700 * kMiB);
  ASSERT_EQ(victim.tell("release 0"), 0);
  EXPECT_EQ(job.charged(), 0U);
}

TEST(Memory, a_context_that_does_not_fit_is_refused) {
  Machine machine("h200:1");
  Job job(machine, {{0, kGiB}});
  Victim first(&job);
  ASSERT_EQ(first.begin(), 0);
  Victim second(&job);
  EXPECT_EQ(second.begin(), kOutOfMemory);
  EXPECT_EQ(machine.used_by(second.pid()), 0U);
  EXPECT_EQ(job.charged(), machine.used(0));
}

TEST(Memory, views_show_the_share_as_the_card) {
  Machine machine("h200:2");
  Job job(machine, {{1, 4 * kGiB}});
  Victim victim(&job, "dlsym", {{"CUDA_VISIBLE_DEVICES", "1"}});
  ASSERT_EQ(victim.begin(), 0);
  ASSERT_EQ(victim.tell("alloc " + std::to_string(kGiB)), 0);
  ASSERT_EQ(victim.tell("info"), 0);
  EXPECT_EQ(victim.number("total"), 4 * kGiB);
  // Whole pieces of a pool, of what is left beside the room.
  const std::uint64_t left = 3 * kGiB - kContext - job.use().room;
  const std::uint64_t free = left - left % (32 * kMiB);
  EXPECT_EQ(victim.number("free"), free);
  ASSERT_EQ(victim.tell("total 0"), 0);
  EXPECT_EQ(victim.number("total"), 4 * kGiB);
  // NVML numbers all GPUs: 1 is ours, of 0 there is nothing to see.
  ASSERT_EQ(victim.tell("nvml 1"), 0);
  EXPECT_EQ(victim.number("total"), 4 * kGiB);
  EXPECT_EQ(victim.number("free"), free);
  EXPECT_EQ(victim.number("used"), 4 * kGiB - free);
  EXPECT_EQ(victim.number("total2"), 4 * kGiB);
  EXPECT_EQ(victim.number("free2"), free);
  ASSERT_EQ(victim.tell("nvml 0"), 0);
  EXPECT_EQ(victim.number("total"), 0U);
}

TEST(Memory, free_is_never_more_than_the_card_has) {
  Machine machine("h200:1");
  Job neighbour(machine, {{0, 0}});
  Victim other(&neighbour);
  ASSERT_EQ(other.begin(), 0);
  ASSERT_EQ(other.tell("alloc " + std::to_string(135 * kGiB)), 0);
  Job job(machine, {{0, 20 * kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(), 0);
  ASSERT_EQ(victim.tell("info"), 0);
  EXPECT_EQ(victim.number("total"), 20 * kGiB);
  EXPECT_LT(victim.number("free"), 5 * kGiB);
}

TEST(Memory, each_gpu_has_its_own_limit) {
  Machine machine("h200:4");
  Job job(machine, {{3, kGiB}, {1, 2 * kGiB}});
  Victim victim(&job);
  ASSERT_EQ(victim.begin(1), 0);
  EXPECT_EQ(victim.tell("alloc " + std::to_string(kGiB)), 0);
  ASSERT_EQ(victim.tell("ctx 3"), 0);
  EXPECT_EQ(victim.tell("alloc " + std::to_string(kGiB)), kOutOfMemory);
  EXPECT_EQ(victim.tell("alloc " + std::to_string(100 * kMiB)), 0);
  EXPECT_EQ(victim.tell("ctx 0"), kOutOfMemory);  // not given
  EXPECT_EQ(job.charged(0), machine.used(3));
  EXPECT_EQ(job.charged(1), machine.used(1));
}

}  // namespace
}  // namespace aliquot::enforce::test
