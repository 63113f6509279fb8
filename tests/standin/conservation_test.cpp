// Processes allocate and free at random and are killed at random: at every quiet point the
// machine's accounts are those of the living, and nothing is left in the end.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <vector>

#include "standin/driver.hpp"
#include "standin/process.hpp"

namespace aliquot::standin {
namespace {

struct Worker {
  pid_t pid = 0;
  int order = -1;   // the parent writes a byte to ask for a burst of operations
  int answer = -1;  // the child writes the bytes it should now be charged with
};

int work(int order, int answer, unsigned seed) {
  std::mt19937 random(seed);
  CUcontext context = nullptr;
  CHECK_CU(cuInit(0), kSuccess);
  CHECK_CU(cuCtxCreate_v2(&context, 0, 0), kSuccess);
  std::uint64_t expected = find_model("titanrtx")->context_cost;
  std::vector<std::pair<CUdeviceptr, std::uint64_t>> held;
  for (char byte = 0; read(order, &byte, 1) == 1;) {
    for (int i = 0; i < 20; ++i) {
      if (held.size() < 10 && random() % 3 != 0) {
        const std::uint64_t size = (1 + random() % 200) * 2 * kMiB;
        CUdeviceptr p = 0;
        const CUresult r = cuMemAlloc_v2(&p, size);
        CHECK(r == kSuccess || r == kOutOfMemory);
        if (r != kSuccess) continue;
        held.emplace_back(p, size);
        expected += size;
      } else if (!held.empty()) {
        std::swap(held[random() % held.size()], held.back());
        CHECK_CU(cuMemFree_v2(held.back().first), kSuccess);
        expected -= held.back().second;
        held.pop_back();
      }
    }
    CHECK(write(answer, &expected, sizeof expected) == sizeof expected);
  }
  return 0;
}

Worker start_worker(unsigned seed) {
  int order[2];
  int answer[2];
  if (pipe2(order, 0) != 0 || pipe2(answer, 0) != 0) return {};
  const pid_t pid = test::start_child([&] {
    close(order[1]);
    close(answer[0]);
    return work(order[0], answer[1], seed);
  });
  close(order[0]);
  close(answer[1]);
  return {pid, order[1], answer[0]};
}

TEST(Conservation, HoldsOverRandomHistories) {
  test::Machine machine("titanrtx:1");
  const std::uint64_t usable = find_model("titanrtx")->usable();
  std::mt19937 random(7);
  std::vector<Worker> workers;
  for (int round = 0; round < 120; ++round) {
    while (workers.size() < 5) workers.push_back(start_worker(static_cast<unsigned>(random())));
    for (const Worker& w : workers) ASSERT_EQ(write(w.order, "1", 1), 1);
    // Some die in the middle of it.
    std::vector<Worker> living;
    for (const Worker& w : workers) {
      if (random() % 6 != 0) {
        living.push_back(w);
        continue;
      }
      usleep(static_cast<unsigned>(random() % 300));
      kill(w.pid, SIGKILL);
      test::finish(w.pid);
      close(w.order);
      close(w.answer);
    }
    workers = living;
    std::uint64_t sum = 0;
    for (const Worker& w : workers) {
      std::uint64_t expected = 0;
      ASSERT_EQ(read(w.answer, &expected, sizeof expected), static_cast<ssize_t>(sizeof expected));
      EXPECT_EQ(machine.used_by(w.pid), expected);
      sum += expected;
    }
    EXPECT_EQ(machine.used(), sum);
    EXPECT_LE(machine.used(), usable);
  }
  for (const Worker& w : workers) kill(w.pid, SIGKILL);
  // Zombies hold nothing either.
  for (int i = 0; i < 12'000 && machine.used() != 0; ++i) usleep(10'000);
  EXPECT_EQ(machine.used(), 0U);
  for (const Worker& w : workers) test::finish(w.pid);
}

}  // namespace
}  // namespace aliquot::standin
