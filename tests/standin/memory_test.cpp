// What every kind of allocation costs, and that it is given back. Sizes as measured on an H200.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "standin/driver.hpp"
#include "standin/process.hpp"

namespace aliquot::standin {
namespace {

using test::finish;
using test::in_child;
using test::Machine;
using test::start_child;

std::size_t available() {
  std::size_t free_bytes = 0;
  return cuMemGetInfo_v2(&free_bytes, nullptr) == kSuccess ? free_bytes : 0;
}

int open_device() {
  CUcontext context = nullptr;
  CHECK_CU(cuInit(0), kSuccess);
  CHECK_CU(cuCtxCreate_v2(&context, 0, 0), kSuccess);
  return 0;
}

CUmemAllocationProp on_device(int handle_types = 0) {
  CUmemAllocationProp prop{};
  prop.type = 1;
  prop.requestedHandleTypes = handle_types;
  prop.location = {kLocationDevice, 0};
  return prop;
}

TEST(Memory, CostsWhatTheDriverTakes) {
  const Machine machine("h200:1");
  EXPECT_EQ(in_child([] {
              CHECK(open_device() == 0);
              const struct {
                std::size_t size, cost;
              } kTable[] = {{1, 2 << 20},
                            {1000, 0},
                            {512 << 10, 0},
                            {1 << 20, 0},
                            {(1 << 20) + 1, 2 << 20},
                            {2 << 20, 2 << 20},
                            {(2 << 20) + 1, 4 << 20},
                            {33 << 20, 34 << 20}};
              CUdeviceptr p[8] = {};
              const std::size_t before = available();
              for (int i = 0; i < 8; ++i) {
                const std::size_t left = available();
                CHECK_CU(cuMemAlloc_v2(&p[i], kTable[i].size), kSuccess);
                CHECK(left - available() == kTable[i].cost);
              }
              for (const CUdeviceptr address : p) CHECK_CU(cuMemFree_v2(address), kSuccess);
              CHECK(available() == before);
              CHECK_CU(cuMemAlloc_v2(p, 0), kInvalidValue);
              CHECK_CU(cuMemAlloc_v2(p, 1ULL << 42), kOutOfMemory);
              CHECK_CU(cuMemFree_v2(0), kSuccess);
              CHECK_CU(cuMemFree_v2(0x1234), kInvalidValue);
              CHECK_CU(cuMemGetInfo_v2(nullptr, nullptr), kSuccess);
              std::size_t pitch = 0;
              CHECK_CU(cuMemAllocPitch_v2(p, &pitch, 1000, 10'000, 4), kSuccess);
              CHECK(pitch == 1024 && before - available() == 10 * kMiB);
              return 0;
            }),
            0);
}

TEST(Memory, ManagedTakesItsPlaceWhenTheGpuTouchesIt) {
  const Machine machine("h200:1");
  EXPECT_EQ(in_child([] {
              CHECK(open_device() == 0);
              const std::size_t before = available();
              CUdeviceptr p = 0;
              CHECK_CU(cuMemAllocManaged(&p, 100 * kMiB, 1), kSuccess);
              CHECK(available() == before);
              *reinterpret_cast<volatile int*>(p) = 5;  // the host may use it as well
              CHECK_CU(cuMemsetD32_v2(p, 0, 100 * kMiB / 4), kSuccess);
              CHECK(before - available() == 100 * kMiB);
              CHECK(*reinterpret_cast<volatile int*>(p) == 0);
              CHECK_CU(cuMemFree_v2(p), kSuccess);
              CHECK(available() == before);
              return 0;
            }),
            0);
}

TEST(Memory, ArraysAndMipmapsAreCharged) {
  const Machine machine("h200:1");
  EXPECT_EQ(in_child([] {
              CHECK(open_device() == 0);
              const std::size_t before = available();
              CUarray array = nullptr;
              const CUDA_ARRAY_DESCRIPTOR shape{1000, 1000, 0x20, 4};
              CHECK_CU(cuArrayCreate_v2(&array, &shape), kSuccess);
              CHECK(before - available() == 16 * kMiB);
              CUmipmappedArray mipmap = nullptr;
              const CUDA_ARRAY3D_DESCRIPTOR pyramid{1024, 1024, 0, 0x20, 1, 0};
              CHECK_CU(cuMipmappedArrayCreate(&mipmap, &pyramid, 3), kSuccess);
              CHECK(before - available() > 20 * kMiB);
              CHECK_CU(cuMipmappedArrayDestroy(mipmap), kSuccess);
              CHECK_CU(cuArrayDestroy(array), kSuccess);
              CHECK(available() == before);
              return 0;
            }),
            0);
}

TEST(Pool, CostsWhatItHasReserved) {
  const Machine machine("h200:1");
  EXPECT_EQ(in_child([] {
              CHECK(open_device() == 0);
              const std::size_t before = available();
              const auto reserved = [] {
                CUmemoryPool pool = nullptr;
                std::uint64_t bytes = 0;
                cuDeviceGetDefaultMemPool(&pool, 0);
                cuMemPoolGetAttribute(pool, 5, &bytes);
                return bytes;
              };
              CUdeviceptr small = 0;
              CUdeviceptr large = 0;
              CHECK_CU(cuMemAllocAsync(&small, 1 << 20, nullptr), kSuccess);
              CHECK(before - available() == 32 * kMiB);
              CHECK_CU(cuMemAllocAsync(&large, 100 << 20, nullptr), kSuccess);
              CHECK(before - available() == 128 * kMiB && reserved() == 128 * kMiB);
              CHECK_CU(cuMemFreeAsync(large, nullptr), kSuccess);
              CHECK(reserved() == 128 * kMiB);  // until the program synchronises
              CHECK_CU(cuStreamSynchronize(nullptr), kSuccess);
              CHECK(reserved() == 32 * kMiB);
              // With a threshold it keeps what it has, until it is trimmed.
              CUmemoryPool pool = nullptr;
              std::uint64_t keep = kGiB;
              CHECK_CU(cuDeviceGetDefaultMemPool(&pool, 0), kSuccess);
              CHECK_CU(cuMemPoolSetAttribute(pool, 4, &keep), kSuccess);
              CHECK_CU(cuMemFree_v2(small), kSuccess);
              CHECK_CU(cuCtxSynchronize(), kSuccess);
              CHECK(reserved() == 32 * kMiB);
              CHECK_CU(cuMemPoolTrimTo(pool, 0), kSuccess);
              CHECK(reserved() == 0 && available() == before);
              return 0;
            }),
            0);
}

TEST(Vmm, MemoryLeavesWhenHandlesAndMappingsAreBothGone) {
  const Machine machine("h200:1");
  EXPECT_EQ(
      in_child([] {
        CHECK(open_device() == 0);
        const std::size_t before = available();
        constexpr std::size_t kSize = 4 << 20;
        const auto prop = on_device();
        CUmemGenericAllocationHandle handle = 0;
        CUdeviceptr range = 0;
        CHECK_CU(cuMemCreate(&handle, kSize + 1, &prop, 0), kInvalidValue);
        CHECK_CU(cuMemCreate(&handle, kSize, &prop, 0), kSuccess);
        CHECK(before - available() == kSize);
        CHECK_CU(cuMemAddressReserve(&range, 2 * kSize, 0, 0, 0), kSuccess);
        CHECK_CU(cuMemMap(range, kSize, 0, handle, 0), kSuccess);
        CHECK_CU(cuMemMap(range + kSize, kSize, 0, handle, 0), kSuccess);  // the same memory twice
        const CUmemAccessDesc access{{kLocationDevice, 0}, 3};
        CHECK_CU(cuMemSetAccess(range, 2 * kSize, &access, 1), kSuccess);
        CHECK_CU(cuMemsetD32_v2(range, 7, 1), kSuccess);
        unsigned value = 0;
        CHECK_CU(cuMemcpyDtoH_v2(&value, range + kSize, sizeof value), kSuccess);
        CHECK(value == 7);
        CHECK_CU(cuMemRelease(handle), kSuccess);
        CHECK(before - available() == kSize);
        CUmemGenericAllocationHandle again = 0;
        CHECK_CU(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(range)), kSuccess);
        CHECK(again == handle);
        CHECK_CU(cuMemUnmap(range, 2 * kSize), kSuccess);
        CHECK(before - available() == kSize);
        CHECK_CU(cuMemRelease(again), kSuccess);
        CHECK(available() == before);
        CHECK_CU(cuMemAddressFree(range, 2 * kSize), kSuccess);
        return 0;
      }),
      0);
}

TEST(Graph, MemoryNodesAreChargedWhenTheyRunAndKeptUntilTrimmed) {
  const Machine machine("h200:1");
  EXPECT_EQ(in_child([] {
              CHECK(open_device() == 0);
              const std::size_t before = available();
              CUstream stream = nullptr;
              CUgraph graph = nullptr;
              CUgraphExec exec = nullptr;
              CUdeviceptr p = 0;
              CHECK_CU(cuStreamCreate(&stream, 1), kSuccess);
              CHECK_CU(cuStreamBeginCapture_v2(stream, 0), kSuccess);
              CHECK_CU(cuMemAllocAsync(&p, 10 << 20, stream), kSuccess);
              CHECK_CU(cuMemFreeAsync(p, stream), kSuccess);
              CHECK_CU(cuStreamEndCapture(stream, &graph), kSuccess);
              CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0), kSuccess);
              CHECK(available() == before);
              CHECK_CU(cuGraphLaunch(exec, stream), kSuccess);
              CHECK_CU(cuGraphLaunch(exec, stream), kSuccess);
              CHECK_CU(cuStreamSynchronize(stream), kSuccess);
              CHECK(before - available() == 32 * kMiB);
              CHECK_CU(cuDeviceGraphMemTrim(0), kSuccess);
              CHECK(available() == before);
              return 0;
            }),
            0);
}

TEST(Context, GivesBackAllThatWasAllocatedInIt) {
  Machine machine("h200:1");
  EXPECT_EQ(in_child([&] {
              CUcontext context = nullptr;
              CUdeviceptr p = 0;
              CHECK_CU(cuInit(0), kSuccess);
              CHECK(machine.used() == 0);
              CHECK_CU(cuDevicePrimaryCtxRetain(&context, 0), kSuccess);
              CHECK(machine.used() == find_model("h200")->context_cost);
              CHECK_CU(cuCtxSetCurrent(context), kSuccess);
              CHECK_CU(cuMemAlloc_v2(&p, 10 << 20), kSuccess);
              CHECK_CU(cuDevicePrimaryCtxRetain(&context, 0), kSuccess);
              CHECK_CU(cuDevicePrimaryCtxRelease_v2(0), kSuccess);
              CHECK(machine.used() == find_model("h200")->context_cost + 10 * kMiB);
              CHECK_CU(cuDevicePrimaryCtxRelease_v2(0), kSuccess);
              CHECK(machine.used() == 0);
              CHECK_CU(cuMemAlloc_v2(&p, 10), kInvalidContext);
              return 0;
            }),
            0);
}

// Two processes and what passes between them: a memory handle, and a descriptor.
TEST(Sharing, TheOwnerPaysAndTheOtherSeesTheBytes) {
  Machine machine("h200:1");
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
  const pid_t owner = start_child([&] {
    CHECK(open_device() == 0);
    CUdeviceptr p = 0;
    CUipcMemHandle handle{};
    CHECK_CU(cuMemAlloc_v2(&p, 8 << 20), kSuccess);
    CHECK_CU(cuMemsetD32_v2(p, 11, 4), kSuccess);
    CHECK_CU(cuIpcGetMemHandle(&handle, p), kSuccess);
    CHECK(write(pair[0], &handle, sizeof handle) == sizeof handle);
    char byte = 0;
    CHECK(read(pair[0], &byte, 1) == 1);
    unsigned value = 0;
    CHECK_CU(cuMemcpyDtoH_v2(&value, p, sizeof value), kSuccess);
    CHECK(value == 12);
    return 0;
  });
  EXPECT_EQ(in_child([&] {
              CHECK(open_device() == 0);
              const std::uint64_t mine = machine.used_by(getpid());
              CUipcMemHandle handle{};
              CUdeviceptr p = 0;
              unsigned value = 0;
              CHECK(read(pair[1], &handle, sizeof handle) == sizeof handle);
              CHECK_CU(cuIpcOpenMemHandle_v2(&p, handle, 1), kSuccess);
              CHECK_CU(cuMemcpyDtoH_v2(&value, p, sizeof value), kSuccess);
              CHECK(value == 11);
              CHECK_CU(cuMemsetD32_v2(p, 12, 4), kSuccess);
              CHECK(machine.used_by(getpid()) == mine);
              CHECK_CU(cuIpcCloseMemHandle(p), kSuccess);
              CHECK(write(pair[1], "1", 1) == 1);
              return 0;
            }),
            0);
  EXPECT_EQ(finish(owner), 0);
  EXPECT_EQ(machine.used(), 0U);
}

TEST(Sharing, ADescriptorCarriesAnAllocationWithinAndBetweenProcesses) {
  const Machine machine("h200:1");
  EXPECT_EQ(in_child([] {
              CHECK(open_device() == 0);
              const std::size_t before = available();
              const auto prop = on_device(kHandlePosixFd);
              CUmemGenericAllocationHandle handle = 0;
              CUmemGenericAllocationHandle imported = 0;
              int fd = -1;
              CHECK_CU(cuMemCreate(&handle, 2 << 20, &prop, 0), kSuccess);
              CHECK_CU(cuMemExportToShareableHandle(&fd, handle, kHandlePosixFd, 0), kSuccess);
              void* const os_handle = reinterpret_cast<void*>(static_cast<std::intptr_t>(fd));
              CHECK_CU(cuMemImportFromShareableHandle(&imported, os_handle, kHandlePosixFd),
                       kSuccess);
              CHECK(before - available() == 2 * kMiB);
              CHECK_CU(cuMemRelease(imported), kSuccess);
              CHECK(before - available() == 2 * kMiB);
              CHECK_CU(cuMemRelease(handle), kSuccess);
              // The descriptor holds it, and so does its copy.
              CHECK(before - available() == 2 * kMiB);
              const int copy = dup(fd);
              close(fd);
              CHECK(before - available() == 2 * kMiB);
              close(copy);
              CHECK(available() == before);
              return 0;
            }),
            0);
}

}  // namespace
}  // namespace aliquot::standin
