// What libaliquot.so adds to a launch: the same empty function, called by its own address and
// through the gate. The driver behind it (null_driver.cpp) does nothing, so the difference is the
// gate. The program starts itself again with the library preloaded and a grant of its own making.
#include <benchmark/benchmark.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "enforce/abi.h"

namespace {

using Launch = int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                       void*, void**, void**);

void* library() {
  static void* const handle = dlopen("libcuda.so.1", RTLD_NOW);
  return handle;
}

Launch find(const char* name) {
  return library() == nullptr ? nullptr : reinterpret_cast<Launch>(dlsym(library(), name));
}

double ns_per_launch(const char* name) {
  const Launch launch = find(name);
  constexpr int kTimes = 5'000'000;
  const auto from = std::chrono::steady_clock::now();
  for (int i = 0; i < kTimes; ++i)
    benchmark::DoNotOptimize(launch(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  const auto passed = std::chrono::steady_clock::now() - from;
  return std::chrono::duration<double, std::nano>(passed).count() / kTimes;
}

void run(benchmark::State& state, const char* name) {
  const Launch launch = find(name);
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(library(), "cuInit"));
  if (launch == nullptr || init == nullptr || init(0) != 0) {
    state.SkipWithError("no driver");
    return;
  }
  for ([[maybe_unused]] auto turn : state)
    benchmark::DoNotOptimize(launch(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
}

void bare(benchmark::State& state) { run(state, "null_launch"); }
void through_the_gate(benchmark::State& state) { run(state, "cuLaunchKernel"); }
BENCHMARK(bare);
BENCHMARK(through_the_gate);

template <class T>
T* make(const std::string& path, mode_t mode) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(T)) != 0 || fchmod(fd, mode) != 0) return nullptr;
  void* memory = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return memory == MAP_FAILED ? nullptr : static_cast<T*>(memory);
}

bool make_grant(const std::string& folder) {
  auto* limits = make<aliquot_limits>(folder + "/limits", 0444);
  auto* usage = make<aliquot_usage>(folder + "/usage", 0600);
  auto* board = make<aliquot_board>(folder + "/board", 0444);
  if (limits == nullptr || usage == nullptr || board == nullptr) return false;
  limits->magic = ALIQUOT_LIMITS_MAGIC;
  limits->version = ALIQUOT_ABI_VERSION;
  limits->size = sizeof *limits;
  limits->gpu_count = 1;
  limits->flags = ALIQUOT_FLAG_METER;
  limits->gpus[0].lease = 1;
  std::strncpy(limits->gpus[0].board, (folder + "/board").c_str(), ALIQUOT_PATH_BYTES - 1);
  board->version = ALIQUOT_ABI_VERSION;
  board->size = sizeof *board;
  board->magic = ALIQUOT_BOARD_MAGIC;
  return aliquot_usage_init(usage) == 0;
}

int start_again(char** argv) {
  char name[] = "/tmp/aliquot-bench-XXXXXX";
  const char* folder = mkdtemp(name);
  if (folder == nullptr || !make_grant(folder)) return 1;
  const pid_t child = fork();
  if (child == 0) {
    setenv("LD_PRELOAD", ALIQUOT_LIBRARY, 1);
    setenv("LD_LIBRARY_PATH", ALIQUOT_NULL_DRIVER_DIR, 1);
    setenv(ALIQUOT_GRANT_VARIABLE, folder, 1);
    execv("/proc/self/exe", argv);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  std::filesystem::remove_all(folder);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (std::getenv(ALIQUOT_GRANT_VARIABLE) == nullptr) return start_again(argv);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  constexpr double kBar = 60;
  const double added = ns_per_launch("cuLaunchKernel") - ns_per_launch("null_launch");
  std::printf("the gate adds %.1f ns to a launch (bar: %.0f)\n", added, kBar);
  return added <= kBar ? 0 : 1;
}
