// The management library: what it says of GPUs and the processes on them.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "standin/abi/nvml.hpp"
#include "standin/driver.hpp"
#include "standin/process.hpp"

namespace aliquot::standin {

extern "C" {
nvmlReturn nvmlInit_v2();
nvmlReturn nvmlShutdown();
nvmlReturn nvmlDeviceGetCount_v2(unsigned*);
nvmlReturn nvmlDeviceGetHandleByIndex_v2(unsigned, nvmlDevice*);
nvmlReturn nvmlDeviceGetHandleByUUID(const char*, nvmlDevice*);
nvmlReturn nvmlDeviceGetHandleByPciBusId_v2(const char*, nvmlDevice*);
nvmlReturn nvmlDeviceGetName(nvmlDevice, char*, unsigned);
nvmlReturn nvmlDeviceGetUUID(nvmlDevice, char*, unsigned);
nvmlReturn nvmlDeviceGetPciInfo_v3(nvmlDevice, nvmlPciInfo*);
nvmlReturn nvmlDeviceGetMemoryInfo(nvmlDevice, nvmlMemory*);
nvmlReturn nvmlDeviceGetMemoryInfo_v2(nvmlDevice, nvmlMemory_v2*);
nvmlReturn nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice, unsigned*, nvmlProcessInfo*);
nvmlReturn nvmlDeviceRegisterEvents(nvmlDevice, unsigned long long, nvmlEventSet);
nvmlReturn nvmlEventSetCreate(nvmlEventSet*);
nvmlReturn nvmlEventSetWait_v2(nvmlEventSet, nvmlEventData*, unsigned);
nvmlReturn nvmlEventSetFree(nvmlEventSet);
nvmlReturn nvmlDeviceGetMigMode(nvmlDevice, unsigned*, unsigned*);
}

namespace {

using test::finish;
using test::in_child;
using test::Machine;
using test::start_child;

TEST(Nvml, FindsDevicesByIndexUuidAndBus) {
  const Machine machine("h200:2,p100:1");
  EXPECT_EQ(in_child([] {
              unsigned count = 0;
              CHECK_CU(nvmlDeviceGetCount_v2(&count), kNvmlUninitialized);
              CHECK_CU(nvmlInit_v2(), kNvmlSuccess);
              CHECK_CU(nvmlDeviceGetCount_v2(&count), kNvmlSuccess);
              CHECK(count == 3);
              nvmlDevice by_index = nullptr;
              nvmlDevice other = nullptr;
              char text[96] = "";
              nvmlPciInfo pci{};
              unsigned mode = 0;
              CHECK_CU(nvmlDeviceGetHandleByIndex_v2(3, &by_index), kNvmlInvalidArgument);
              CHECK_CU(nvmlDeviceGetHandleByIndex_v2(2, &by_index), kNvmlSuccess);
              CHECK_CU(nvmlDeviceGetName(by_index, text, 10), kNvmlInsufficientSize);
              CHECK_CU(nvmlDeviceGetName(by_index, text, sizeof text), kNvmlSuccess);
              CHECK(std::strcmp(text, "Tesla P100-PCIE-16GB (simulated)") == 0);
              CHECK_CU(nvmlDeviceGetMigMode(by_index, &mode, &mode), kNvmlNotSupported);
              CHECK_CU(nvmlDeviceGetUUID(by_index, text, sizeof text), kNvmlSuccess);
              CHECK_CU(nvmlDeviceGetHandleByUUID(text, &other), kNvmlSuccess);
              CHECK(other == by_index);
              CHECK_CU(nvmlDeviceGetPciInfo_v3(by_index, &pci), kNvmlSuccess);
              CHECK_CU(nvmlDeviceGetHandleByPciBusId_v2(pci.busId, &other), kNvmlSuccess);
              CHECK(other == by_index);
              CHECK_CU(nvmlShutdown(), kNvmlSuccess);
              CHECK_CU(nvmlShutdown(), kNvmlUninitialized);
              return 0;
            }),
            0);
}

TEST(Nvml, ShowsMemoryAndProcessesUntilTheyAreKilled) {
  const Machine machine("h200:1");
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t job = start_child([&] {
    CUcontext context = nullptr;
    CUdeviceptr p = 0;
    CHECK_CU(cuInit(0), kSuccess);
    CHECK_CU(cuCtxCreate_v2(&context, 0, 0), kSuccess);
    CHECK_CU(cuMemAlloc_v2(&p, kGiB), kSuccess);
    CHECK(write(ready[1], "1", 1) == 1);
    for (;;) pause();
  });
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  const std::uint64_t taken = find_model("h200")->context_cost + kGiB;
  EXPECT_EQ(in_child([&] {
              nvmlDevice device = nullptr;
              nvmlMemory v1{};
              nvmlMemory_v2 v2{};
              nvmlProcessInfo processes[4] = {};
              unsigned count = 0;
              CHECK_CU(nvmlInit_v2(), kNvmlSuccess);
              CHECK_CU(nvmlDeviceGetHandleByIndex_v2(0, &device), kNvmlSuccess);
              CHECK_CU(nvmlDeviceGetMemoryInfo_v2(device, &v2), kNvmlVersionMismatch);
              v2.version = sizeof v2 | 2U << 24;
              CHECK_CU(nvmlDeviceGetMemoryInfo_v2(device, &v2), kNvmlSuccess);
              CHECK(v2.used == taken && v2.used + v2.free + v2.reserved == v2.total);
              CHECK_CU(nvmlDeviceGetMemoryInfo(device, &v1), kNvmlSuccess);
              CHECK(v1.used == taken + v2.reserved && v1.used + v1.free == v1.total);
              CHECK_CU(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, nullptr),
                       kNvmlInsufficientSize);
              CHECK(count == 1);
              count = 4;
              CHECK_CU(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, processes),
                       kNvmlSuccess);
              // A little of a context is attributed to nobody.
              CHECK(count == 1 && processes[0].usedGpuMemory == taken - 8 * kMiB);
              CHECK(processes[0].pid == static_cast<unsigned>(job));
              kill(job, SIGKILL);
              for (int i = 0; i < 24'000 && count != 0; ++i) {
                usleep(5000);
                count = 4;
                CHECK_CU(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, processes),
                         kNvmlSuccess);
              }
              CHECK(count == 0);
              return 0;
            }),
            0);
  finish(job);
}

TEST(Nvml, ReportsInjectedErrorsAndLostGpus) {
  Machine machine("h200:2");
  EXPECT_EQ(in_child([&] {
              nvmlDevice device = nullptr;
              nvmlEventSet set = nullptr;
              nvmlEventData event{};
              char text[96] = "";
              CHECK_CU(nvmlInit_v2(), kNvmlSuccess);
              CHECK_CU(nvmlDeviceGetHandleByIndex_v2(1, &device), kNvmlSuccess);
              CHECK_CU(nvmlEventSetCreate(&set), kNvmlSuccess);
              CHECK_CU(nvmlDeviceRegisterEvents(device, kNvmlEventXid, set), kNvmlSuccess);
              CHECK_CU(nvmlEventSetWait_v2(set, &event, 0), kNvmlTimeout);
              {
                const State::Guard guard(machine.state());
                machine.state().gpu(1).xid = 79;
                ++machine.state().gpu(1).xid_count;
                machine.state().gpu(1).lost = true;
              }
              CHECK_CU(nvmlEventSetWait_v2(set, &event, 0), kNvmlSuccess);
              CHECK(event.device == device && event.eventData == 79);
              CHECK_CU(nvmlEventSetFree(set), kNvmlSuccess);
              CHECK_CU(nvmlDeviceGetName(device, text, sizeof text), kNvmlGpuLost);
              CUcontext context = nullptr;
              CHECK_CU(cuInit(0), kSuccess);
              CHECK_CU(cuCtxCreate_v2(&context, 0, 1), kUnknown);
              CHECK_CU(cuCtxCreate_v2(&context, 0, 0), kSuccess);
              return 0;
            }),
            0);
}

}  // namespace
}  // namespace aliquot::standin
