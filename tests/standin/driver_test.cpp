// Devices, contexts, look-up by name, kernels, graphs, faults and suspension.
#include "standin/driver.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "standin/load/kernels.hpp"
#include "standin/process.hpp"

namespace aliquot::standin {
namespace {

using test::finish;
using test::in_child;
using test::Machine;
using test::start_child;

// The names of the devices a process sees, cut to the model.
std::string visible() {
  int count = 0;
  if (const CUresult r = cuInit(0); r != kSuccess) return "error " + std::to_string(r);
  cuDeviceGetCount(&count);
  std::string seen;
  for (int d = 0; d < count; ++d) {
    CUuuid uuid{};
    cuDeviceGetUuid_v2(&uuid, d);
    for (unsigned gpu = 0; gpu < 4; ++gpu)
      for (const char* key : {"h200", "p100"})
        if (std::memcmp(uuid.bytes, uuid_bytes(*find_model(key), gpu).data(), 16) == 0)
          seen += (seen.empty() ? "" : " ") + std::string(key) + "@" + std::to_string(gpu);
  }
  return seen;
}

int expect_visible(const std::string& expected, const test::Settings& environment) {
  return in_child(
      [&] {
        const std::string seen = visible();
        if (seen != expected)
          std::fprintf(stderr, "sees '%s', not '%s'\n", seen.c_str(), expected.c_str());
        return seen == expected ? 0 : 1;
      },
      environment);
}

TEST(VisibleDevices, FollowTheSettingAsTheDriverDoes) {
  const Machine machine("p100:2,h200:2");
  const std::string uuid = uuid_text(uuid_bytes(*find_model("h200"), 3));
  const auto cvd = [](const std::string& value) {
    return test::Settings{{"CUDA_VISIBLE_DEVICES", value}};
  };
  EXPECT_EQ(expect_visible("h200@2 h200@3 p100@0 p100@1", {}), 0);
  EXPECT_EQ(expect_visible("p100@0 p100@1 h200@2 h200@3", {{"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}}),
            0);
  EXPECT_EQ(expect_visible("p100@1 h200@2", cvd("3,0")), 0);
  EXPECT_EQ(expect_visible("h200@3", cvd(uuid)), 0);
  EXPECT_EQ(expect_visible("h200@3 h200@2", cvd(uuid.substr(0, 10) + ",0")), 0);
  EXPECT_EQ(expect_visible("h200@2", cvd("0,9,1")),
            0);  // an entry that names nothing ends the list
  EXPECT_EQ(expect_visible("h200@2", cvd("0,-1,1")), 0);
  EXPECT_EQ(expect_visible("h200@2", cvd("0,0")), 0);  // and so does one named twice
  EXPECT_EQ(expect_visible("error 100", cvd("")), 0);
  EXPECT_EQ(expect_visible("error 100", cvd("GPU-nosuch")), 0);
  EXPECT_EQ(expect_visible("error 100", cvd("GPU-")), 0);  // ambiguous
}

TEST(VisibleDevices, AreThoseWhoseFilesMayBeOpened) {
  const std::filesystem::path folder = ::testing::TempDir() + "standin-devices";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  // Nobody may write it, not even root; the others are not there at all, which is no matter.
  std::filesystem::create_symlink("/proc/sys/kernel/version", folder / "nvidia1");
  setenv("ALIQUOT_STANDIN_DEVICES", (folder / "nvidia").c_str(), 1);
  const Machine machine("h200:3");
  unsetenv("ALIQUOT_STANDIN_DEVICES");
  EXPECT_EQ(expect_visible("h200@0 h200@2", {}), 0);
  EXPECT_EQ(expect_visible("h200@2", {{"CUDA_VISIBLE_DEVICES", "1"}}), 0);
  std::filesystem::remove_all(folder);
}

TEST(GetProcAddress, AnswersByNameVersionAndStreamFlag) {
  const struct {
    const char* name;
    int version;
    std::uint64_t flags;
    CUresult result;
    int status;
    const char* symbol;
  } kTable[] = {
      {"cuMemAlloc", 1000, 0, 0, 2, nullptr},
      {"cuMemAlloc", 2000, 0, 0, 0, "cuMemAlloc"},
      {"cuMemAlloc", 3020, 0, 0, 0, "cuMemAlloc_v2"},
      {"cuMemAlloc", 13000, 2, 0, 0, "cuMemAlloc_v2"},
      {"cuMemAlloc_v2", 13000, 0, 0, 1, nullptr},
      {"cuCtxCreate", 3010, 0, 0, 0, "cuCtxCreate"},
      {"cuCtxCreate", 11030, 0, 0, 0, "cuCtxCreate_v2"},
      {"cuCtxCreate", 11040, 0, 0, 0, "cuCtxCreate_v3"},
      {"cuCtxCreate", 13000, 1, 0, 0, "cuCtxCreate_v4"},
      {"cuLaunchKernel", 4000, 0, 0, 0, "cuLaunchKernel"},
      {"cuLaunchKernel", 4000, 2, 0, 2, nullptr},
      {"cuLaunchKernel", 7000, 2, 0, 0, "cuLaunchKernel_ptsz"},
      {"cuMemcpyHtoD", 6050, 2, 0, 2, nullptr},
      {"cuMemcpyHtoD", 7000, 2, 0, 0, "cuMemcpyHtoD_v2_ptds"},
      {"cuStreamGetCaptureInfo", 12020, 2, 0, 0, "cuStreamGetCaptureInfo_v2_ptsz"},
      {"cuStreamGetCaptureInfo", 12030, 0, 0, 0, "cuStreamGetCaptureInfo_v3"},
      {"cuGetProcAddress", 11080, 0, 0, 0, "cuGetProcAddress"},
      {"cuGetProcAddress", 12000, 0, 0, 0, "cuGetProcAddress_v2"},
      {"cuNoSuchThing", 13000, 0, 0, 1, nullptr},
      {"cuMemAlloc", 13010, 0, 1, 9, nullptr},  // newer than the driver: nothing is touched
  };
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  ASSERT_NE(library, nullptr);
  for (const auto& row : kTable) {
    void* address = nullptr;
    int status = 9;
    EXPECT_EQ(cuGetProcAddress_v2(row.name, &address, row.version, row.flags, &status), row.result);
    EXPECT_EQ(status, row.status) << row.name << ' ' << row.version << ' ' << row.flags;
    EXPECT_EQ(address, row.symbol == nullptr ? nullptr : dlsym(library, row.symbol)) << row.name;
  }
}

TEST(GetProcAddress, ReturnsOnlyAddressesOfExportedNames) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  const char* names[] = {
#define X(base, symbol, version, per_thread) #base,
#include "standin/cuda/exports.def"
#undef X
  };
  for (const char* name : names)
    for (const int version : {2000, 3020, 7000, 10000, 11040, 12000, 12080, 13000})
      for (const std::uint64_t flags : {0U, 1U, 2U}) {
        void* address = nullptr;
        int status = 0;
        ASSERT_EQ(cuGetProcAddress_v2(name, &address, version, flags, &status), kSuccess);
        if (address == nullptr) continue;
        Dl_info info{};
        ASSERT_NE(dladdr(address, &info), 0);
        ASSERT_NE(info.dli_sname, nullptr) << name;
        EXPECT_EQ(dlsym(library, info.dli_sname), address) << name;
        EXPECT_EQ(std::strncmp(info.dli_sname, name, std::strlen(name)), 0) << info.dli_sname;
      }
}

int open_device(CUcontext* context) {
  CHECK_CU(cuInit(0), kSuccess);
  CHECK_CU(cuCtxCreate_v2(context, 0, 0), kSuccess);
  return 0;
}

TEST(Context, ACallWithoutOneIsRefused) {
  const Machine machine("h200:1");
  EXPECT_EQ(in_child([] {
              CUdeviceptr p = 0;
              std::size_t n = 0;
              CHECK_CU(cuMemAlloc_v2(&p, 10), kNotInitialized);
              CHECK_CU(cuInit(0), kSuccess);
              CHECK_CU(cuMemAlloc_v2(&p, 10), kInvalidContext);
              CHECK_CU(cuMemGetInfo_v2(&n, &n), kInvalidContext);
              CHECK_CU(cuCtxPopCurrent_v2(nullptr), kInvalidContext);
              CHECK_CU(cuCtxDestroy_v2(nullptr), kInvalidValue);
              return 0;
            }),
            0);
}

TEST(Context, AForkedChildOfAUserOfTheDriverIsNotInitialised) {
  Machine machine("h200:1");
  EXPECT_EQ(in_child([&] {
              CUcontext context = nullptr;
              CHECK(open_device(&context) == 0);
              const std::uint64_t mine = machine.used();
              CHECK(in_child([] {
                      return cuInit(0) == kNotInitialized && cuCtxSynchronize() == kNotInitialized
                                 ? 0
                                 : 1;
                    }) == 0);
              CHECK(machine.used() == mine);
              return 0;
            }),
            0);
}

TEST(Context, ExecGivesEverythingBack) {
  Machine machine("h200:1");
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = start_child([&] {
    CUcontext context = nullptr;
    CHECK(open_device(&context) == 0);
    CHECK(write(ready[1], "1", 1) == 1);
    execlp("sleep", "sleep", "60", nullptr);
    return 1;
  });
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  for (int i = 0; i < 12'000 && machine.used() != 0; ++i) usleep(10'000);
  EXPECT_EQ(machine.used(), 0U);
  kill(child, SIGKILL);
  finish(child);
}

// y = 2 x + y on three elements, launched on the stream, directly or into a graph.
struct Saxpy {
  CUdeviceptr x = 0, y = 0;
  CUfunction kernel = nullptr;
  unsigned n = 3;
  float a = 2;

  int set_up() {
    const float xs[] = {1, 2, 3};
    const float ys[] = {10, 20, 30};
    CUmodule module = nullptr;
    CHECK_CU(cuModuleLoadData(&module, kKernels), kSuccess);
    CHECK_CU(cuModuleGetFunction(&kernel, module, "nosuch"), kNotFound);
    CHECK_CU(cuModuleGetFunction(&kernel, module, "saxpy"), kSuccess);
    CHECK_CU(cuMemAlloc_v2(&x, sizeof xs), kSuccess);
    CHECK_CU(cuMemAlloc_v2(&y, sizeof ys), kSuccess);
    CHECK_CU(cuMemcpyHtoD_v2(x, xs, sizeof xs), kSuccess);
    CHECK_CU(cuMemcpyHtoD_v2(y, ys, sizeof ys), kSuccess);
    return 0;
  }
  CUresult launch(CUstream stream) {
    void* arguments[] = {&n, &a, &x, &y};
    return cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, arguments, nullptr);
  }
  float first() {
    float value = 0;
    return cuMemcpyDtoH_v2(&value, y, sizeof value) == kSuccess ? value : -1;
  }
};

TEST(Kernel, ComputesOnTheBytesOfTheSimulatedMemory) {
  const Machine machine("h200:1");
  EXPECT_EQ(in_child([] {
              CUcontext context = nullptr;
              CUmodule module = nullptr;
              CHECK(open_device(&context) == 0);
              CHECK_CU(cuModuleLoadData(&module, "hello"), kInvalidImage);
              Saxpy saxpy;
              CHECK(saxpy.set_up() == 0);
              CHECK_CU(saxpy.launch(nullptr), kSuccess);
              CHECK(saxpy.first() == 12);
              return 0;
            }),
            0);
}

TEST(Graph, CapturesWithoutRunningAndRunsWhenLaunched) {
  const Machine machine("h200:1");
  EXPECT_EQ(in_child([] {
              CUcontext context = nullptr;
              CHECK(open_device(&context) == 0);
              Saxpy saxpy;
              CHECK(saxpy.set_up() == 0);
              CUstream stream = nullptr;
              CUgraph graph = nullptr;
              CUgraphExec exec = nullptr;
              int status = 0;
              CHECK_CU(cuStreamCreate(&stream, 1), kSuccess);
              CHECK_CU(cuStreamBeginCapture_v2(stream, 0), kSuccess);
              CHECK_CU(saxpy.launch(stream), kSuccess);
              CHECK_CU(cuStreamIsCapturing(stream, &status), kSuccess);
              CHECK(status == 1);
              CHECK_CU(cuStreamEndCapture(stream, &graph), kSuccess);
              CHECK(saxpy.first() == 10);
              CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0), kSuccess);
              CHECK_CU(cuGraphLaunch(exec, stream), kSuccess);
              CHECK_CU(cuGraphLaunch(exec, stream), kSuccess);
              CHECK_CU(cuStreamSynchronize(stream), kSuccess);
              CHECK(saxpy.first() == 14);
              // To synchronise inside a capture spoils it.
              CHECK_CU(cuStreamBeginCapture_v2(stream, 0), kSuccess);
              CHECK_CU(cuStreamSynchronize(stream), kCaptureUnsupported);
              CHECK_CU(cuStreamEndCapture(stream, &graph), kCaptureInvalidated);
              return 0;
            }),
            0);
}

TEST(Event, MeasuresSimulatedTime) {
  const Machine machine("h200:1", 20);
  EXPECT_EQ(in_child([] {
              CUcontext context = nullptr;
              CHECK(open_device(&context) == 0);
              CUmodule module = nullptr;
              CUfunction spin = nullptr;
              CUevent start = nullptr;
              CUevent end = nullptr;
              CHECK_CU(cuModuleLoadData(&module, kKernels), kSuccess);
              CHECK_CU(cuModuleGetFunction(&spin, module, "spin"), kSuccess);
              CHECK_CU(cuEventCreate(&start, 0), kSuccess);
              CHECK_CU(cuEventCreate(&end, 0), kSuccess);
              std::uint64_t iterations =
                  2'500'000'000;  // five seconds at 2 ns: a busy machine takes its time to ask
              CUdeviceptr unused = 0;
              void* arguments[] = {&iterations, &unused};
              CHECK_CU(cuEventRecord(start, nullptr), kSuccess);
              CHECK_CU(cuLaunchKernel(spin, 132, 1, 1, 256, 1, 1, 0, nullptr, arguments, nullptr),
                       kSuccess);
              CHECK_CU(cuEventRecord(end, nullptr), kSuccess);
              float ms = 0;
              CHECK_CU(cuStreamQuery(nullptr), kNotReady);
              CHECK_CU(cuEventElapsedTime(&ms, start, end), kNotReady);
              CHECK_CU(cuCtxSynchronize(), kSuccess);
              CHECK_CU(cuEventElapsedTime(&ms, start, end), kSuccess);
              // A busy machine may take a moment between the record and the launch.
              CHECK(ms > 4999 && ms < 6000);
              return 0;
            }),
            0);
}

TEST(Fault, IsStickyAndItsOwn) {
  Machine machine("h200:1");
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  const pid_t neighbour = start_child([&] {
    CUcontext context = nullptr;
    CHECK(open_device(&context) == 0);
    char byte = 0;
    CHECK(read(go[0], &byte, 1) == 1);
    CHECK_CU(cuCtxSynchronize(), kSuccess);
    return 0;
  });
  EXPECT_EQ(in_child([] {
              CUcontext context = nullptr;
              CHECK(open_device(&context) == 0);
              CUmodule module = nullptr;
              CUfunction fault = nullptr;
              CHECK_CU(cuModuleLoadData(&module, kKernels), kSuccess);
              CHECK_CU(cuModuleGetFunction(&fault, module, "fault"), kSuccess);
              CUdeviceptr p = 16;
              void* arguments[] = {&p};
              CHECK_CU(cuLaunchKernel(fault, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr),
                       kSuccess);
              CHECK_CU(cuCtxSynchronize(), kIllegalAddress);
              CHECK_CU(cuMemAlloc_v2(&p, 10), kIllegalAddress);
              CHECK_CU(cuCtxDestroy_v2(context), kSuccess);
              CHECK_CU(cuCtxCreate_v2(&context, 0, 0), kIllegalAddress);
              return 0;
            }),
            0);
  ASSERT_EQ(write(go[1], "1", 1), 1);
  EXPECT_EQ(finish(neighbour), 0);
}

TEST(Checkpoint, LeavesFourMebibytesAndBringsTheDataBack) {
  Machine machine("h200:1", 100);
  int ready[2];
  int go[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(go), 0);
  const pid_t job = start_child([&] {
    CUcontext context = nullptr;
    CUdeviceptr p = 0;
    unsigned value = 0;
    CHECK(open_device(&context) == 0);
    CHECK_CU(cuMemAlloc_v2(&p, 64 * kMiB), kSuccess);
    CHECK_CU(cuMemsetD32_v2(p, 42, 1), kSuccess);
    CHECK(write(ready[1], "1", 1) == 1);
    char byte = 0;
    CHECK(read(go[0], &byte, 1) == 1);
    CHECK_CU(cuMemcpyDtoH_v2(&value, p, sizeof value), kSuccess);
    CHECK(value == 42);
    return 0;
  });
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  const std::uint64_t before = machine.used_by(job);
  EXPECT_EQ(in_child([&] {
              int state = 9;
              CHECK_CU(cuCheckpointProcessCheckpoint(job, nullptr), kIllegalState);
              CHECK_CU(cuCheckpointProcessLock(job, nullptr), kSuccess);
              CHECK_CU(cuCheckpointProcessCheckpoint(job, nullptr), kSuccess);
              CHECK_CU(cuCheckpointProcessGetState(job, &state), kSuccess);
              CHECK(state == 2);
              CHECK(machine.used_by(job) == 4 * kMiB);
              CHECK_CU(cuCheckpointProcessUnlock(job, nullptr), kIllegalState);
              CHECK_CU(cuCheckpointProcessRestore(job, nullptr), kSuccess);
              CHECK(machine.used_by(job) == before);
              CHECK_CU(cuCheckpointProcessUnlock(job, nullptr), kSuccess);
              CHECK_CU(cuCheckpointProcessLock(1, nullptr), kInvalidValue);
              return 0;
            }),
            0);
  ASSERT_EQ(write(go[1], "1", 1), 1);
  EXPECT_EQ(finish(job), 0);
}

}  // namespace
}  // namespace aliquot::standin
