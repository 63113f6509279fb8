// What stays on the GPU, and what NVML says of it, when nobody would think so: as measured on an
// H200 (driver 580).
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>

#include "standin/driver.hpp"
#include "standin/load/kernels.hpp"
#include "standin/process.hpp"

namespace aliquot::standin {
namespace {

using test::finish;
using test::in_child;
using test::Machine;
using test::start_child;

int open_first() {
  CUcontext context = nullptr;
  CHECK_CU(cuInit(0), kSuccess);
  CHECK_CU(cuCtxCreate_v2(&context, 0, 0), kSuccess);
  return 0;
}

std::uint64_t attributed(Machine& machine, pid_t pid) {
  const State::Guard guard(machine.state());
  const int slot = machine.state().find_pid(pid);
  return slot < 0 ? 0 : machine.state().attributed(slot, 0);
}

const std::uint64_t kContext = find_model("h200")->context_cost;
const std::uint64_t kAttributed = kContext - 8 * kMiB;  // of that

TEST(Held, ManagedMemoryIsOnTheGpuAndNobodys) {
  Machine machine("h200:1");
  EXPECT_EQ(in_child([&] {
              CHECK(open_first() == 0);
              CUdeviceptr p = 0;
              CHECK_CU(cuMemAllocManaged(&p, kGiB, 1), kSuccess);
              CHECK_CU(cuMemsetD32_v2(p, 0, kGiB / 4), kSuccess);
              CHECK(machine.used() == kContext + kGiB);
              CHECK(attributed(machine, getpid()) == kAttributed);
              CHECK_CU(cuMemFree_v2(p), kSuccess);
              CHECK(machine.used() == kContext);
              return 0;
            }),
            0);
}

TEST(Held, WhatAStreamFreesIsNotOthersBeforeItGetsThere) {
  Machine machine("h200:1");
  EXPECT_EQ(in_child([&] {
              CHECK(open_first() == 0);
              CUmodule module = nullptr;
              CUfunction spin = nullptr;
              CUstream one = nullptr;
              CUstream two = nullptr;
              CHECK_CU(cuModuleLoadData(&module, kKernels), kSuccess);
              CHECK_CU(cuModuleGetFunction(&spin, module, "spin"), kSuccess);
              CHECK_CU(cuStreamCreate(&one, 1), kSuccess);
              CHECK_CU(cuStreamCreate(&two, 1), kSuccess);
              CUdeviceptr p = 0;
              std::uint64_t iterations = 100'000'000;
              std::uint64_t out = 0;
              void* arguments[] = {&iterations, &out};
              CHECK_CU(cuMemAllocAsync(&p, kGiB, one), kSuccess);
              CHECK_CU(cuLaunchKernel(spin, 132, 1, 1, 256, 1, 1, 0, one, arguments, nullptr),
                       kSuccess);
              CHECK_CU(cuMemFreeAsync(p, one), kSuccess);
              // The stream itself has it again at once, another gets new memory.
              CHECK_CU(cuMemAllocAsync(&p, kGiB, one), kSuccess);
              CHECK_CU(cuMemFreeAsync(p, one), kSuccess);
              CHECK(machine.used() == kContext + kGiB);
              CHECK_CU(cuMemAllocAsync(&p, kGiB, two), kSuccess);
              CHECK(machine.used() == kContext + 2 * kGiB);
              CHECK_CU(cuCtxSynchronize(), kSuccess);
              CHECK(machine.used() == kContext + kGiB);
              return 0;
            }),
            0);
}

TEST(Held, AnImporterKeepsMemoryAndGetsItAttributedWhenItsOwnerIsGone) {
  Machine machine("h200:1");
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
  const pid_t owner = start_child([&] {
    CHECK(open_first() == 0);
    CUdeviceptr p = 0;
    CUipcMemHandle handle{};
    CHECK_CU(cuMemAlloc_v2(&p, kGiB), kSuccess);
    CHECK_CU(cuIpcGetMemHandle(&handle, p), kSuccess);
    CHECK(write(pair[0], &handle, sizeof handle) == sizeof handle);
    for (;;) pause();
  });
  EXPECT_EQ(in_child([&] {
              CHECK(open_first() == 0);
              CUipcMemHandle handle{};
              CUdeviceptr p = 0;
              CHECK(read(pair[1], &handle, sizeof handle) == sizeof handle);
              CHECK_CU(cuIpcOpenMemHandle_v2(&p, handle, 1), kSuccess);
              CHECK(machine.used() == 2 * kContext + kGiB);
              CHECK(attributed(machine, getpid()) == kAttributed);
              kill(owner, SIGKILL);
              while (attributed(machine, owner) != 0) {
                CHECK(machine.used() != 0);
                usleep(1000);
              }
              CHECK(machine.used() == kContext + kGiB);
              CHECK(attributed(machine, getpid()) == kAttributed + kGiB);
              CHECK_CU(cuIpcCloseMemHandle(p), kSuccess);
              CHECK(machine.used() == kContext);
              return 0;
            }),
            0);
  finish(owner);
}

TEST(Held, TheMemoryOfAKilledProcessGoesAWhileLater) {
  setenv("ALIQUOT_STANDIN_LINGER", "3000", 1);
  Machine machine("h200:1");
  unsetenv("ALIQUOT_STANDIN_LINGER");
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = start_child([&] {
    CHECK(open_first() == 0);
    CHECK(write(ready[1], "1", 1) == 1);
    for (;;) pause();
  });
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  kill(child, SIGKILL);
  finish(child);
  EXPECT_EQ(machine.used(), kContext);
  for (int i = 0; i < 12'000 && machine.used() != 0; ++i) usleep(10'000);
  EXPECT_EQ(machine.used(), 0U);
}

}  // namespace
}  // namespace aliquot::standin
