// A program that uses the GPU as it is told, line by line, and answers each line with the driver's
// code and numbers. Loads libaliquot.so only if LD_PRELOAD says so, knows nothing of it, and
// carries no sanitizers. How it gets at the driver is its first argument:
//   linked (only victim_linked), dlsym, proc (cuGetProcAddress), deepbind, path (ALIQUOT_LIBCUDA),
//   default (RTLD_DEFAULT after loading), none (never touches CUDA)
#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "enforce/victim.hpp"
#include "standin/load/kernels.hpp"

namespace victim {
namespace {

#ifdef VICTIM_LINKED
#define FN(name, base, version, params) extern "C" CUresult name params;
#include "enforce/victim.def"
#undef FN
#endif

}  // namespace

Api api;
std::vector<Piece> pieces;
std::vector<CUmemGenericAllocationHandle> handles;
CUstream stream = nullptr;
CUfunction kernel = nullptr;

namespace {

bool load(const std::string& how) {
#ifdef VICTIM_LINKED
#define FN(name, base, version, params) api.name = victim::name;
#include "enforce/victim.def"
#undef FN
  return how == "linked";
#else
  const char* path = how == "path" ? std::getenv("ALIQUOT_LIBCUDA") : "libcuda.so.1";
  const int flags = how == "deepbind"  ? RTLD_NOW | RTLD_DEEPBIND
                    : how == "default" ? RTLD_NOW | RTLD_GLOBAL
                                       : RTLD_NOW;
  void* library = dlopen(path, flags);
  if (library == nullptr) return false;
  void* const from = how == "default" ? RTLD_DEFAULT : library;
  if (how != "proc") {
#define FN(name, base, version, params) \
  api.name = reinterpret_cast<CUresult(*) params>(dlsym(from, #name));
#include "enforce/victim.def"
#undef FN
    return true;
  }
  using Get = CUresult (*)(const char*, void**, int, std::uint64_t, int*);
  const auto get = reinterpret_cast<Get>(dlsym(library, "cuGetProcAddress_v2"));
  void* found = nullptr;
  int status = 0;
#define FN(name, base, version, params)                                          \
  if (get(#base, &found, version, 0, &status) != 0 || status != 0) return false; \
  api.name = reinterpret_cast<CUresult(*) params>(found);
#include "enforce/victim.def"
#undef FN
  return true;
#endif
}

std::vector<CUcontext> contexts;
std::vector<CUmemoryPool> pools;
std::vector<CUgraphExec> graphs;
std::map<std::uint64_t, CUstream> streams;  // 0 is the legacy one

}  // namespace

int keep(int r, char kind, std::uint64_t handle, std::uint64_t size, std::uint64_t extra) {
  if (r == 0) pieces.push_back({kind, handle, size, extra});
  return r;
}

CUdevice device() {
  CUdevice d = 0;
  return api.cuCtxGetDevice(&d) == 0 ? d : 0;
}

namespace {

int make_vmm(std::uint64_t size, bool release) {
  CUmemAllocationProp prop{};
  prop.type = 1;
  prop.location = {kLocationDevice, device()};
  CUmemGenericAllocationHandle handle = 0;
  if (const int r = api.cuMemCreate(&handle, size, &prop, 0); r != 0) return r;
  CUdeviceptr address = 0;
  if (const int r = api.cuMemAddressReserve(&address, size, 0, 0, 0); r != 0) return r;
  if (const int r = api.cuMemMap(address, size, 0, handle, 0); r != 0) return r;
  if (release) {
    if (const int r = api.cuMemRelease(handle); r != 0) return r;
    handle = 0;
  }
  return keep(0, 'v', address, size, handle);
}

int make_graph(std::uint64_t size) {
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = 1;
  params.poolProps.location = {kLocationDevice, device()};
  params.bytesize = size;
  if (const int r = api.cuGraphCreate(&graph, 0); r != 0) return r;
  if (const int r = api.cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params); r != 0) return r;
  CUgraphNode free_node = nullptr;
  if (const int r = api.cuGraphAddMemFreeNode(&free_node, graph, &node, 1, params.dptr); r != 0)
    return r;
  if (const int r = api.cuGraphInstantiateWithFlags(&exec, graph, 0); r != 0) return r;
  graphs.push_back(exec);
  return api.cuGraphLaunch(exec, nullptr);
}

int free_piece(size_t index, bool async, CUstream on = nullptr) {
  const Piece piece = pieces.at(index);
  int r = 0;
  switch (piece.kind) {
    case 'a':
      r = api.cuArrayDestroy(reinterpret_cast<CUarray>(piece.handle));
      break;
    case 'm':
      r = api.cuMipmappedArrayDestroy(reinterpret_cast<CUmipmappedArray>(piece.handle));
      break;
    case 'v':
      r = api.cuMemUnmap(piece.handle, piece.size);
      if (r == 0 && piece.extra != 0) r = api.cuMemRelease(piece.extra);
      if (r == 0) r = api.cuMemAddressFree(piece.handle, piece.size);
      break;
    default:
      r = async ? api.cuMemFreeAsync(piece.handle, on) : api.cuMemFree_v2(piece.handle);
  }
  if (r == 0) pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(index));
  return r;
}

}  // namespace

int load_kernel() {
  CUmodule module = nullptr;
  if (const int r = api.cuModuleLoadData(&module, kKernels); r != 0) return r;
  return api.cuModuleGetFunction(&kernel, module, "spin");
}

int launch(std::uint64_t iterations, bool cooperative) {
  if (kernel == nullptr)
    if (const int r = load_kernel(); r != 0) return r;
  std::uint64_t out = 0;
  void* parameters[] = {&iterations, &out};
  return cooperative
             ? api.cuLaunchCooperativeKernel(kernel, 132, 1, 1, 256, 1, 1, 0, stream, parameters)
             : api.cuLaunchKernel(kernel, 132, 1, 1, 256, 1, 1, 0, stream, parameters, nullptr);
}

namespace {

int capture_and_launch(std::uint64_t iterations, int times) {
  CUstream s = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  if (const int r = api.cuStreamCreate(&s, 1); r != 0) return r;
  if (const int r = api.cuStreamBeginCapture_v2(s, 0); r != 0) return r;
  stream = s;
  int r = 0;
  for (int i = 0; i < 40 && r == 0; ++i) r = launch(iterations, false);
  if (r != 0) return r;
  r = api.cuStreamEndCapture(s, &graph);
  if (r == 0) r = api.cuGraphInstantiateWithFlags(&exec, graph, 0);
  for (int i = 0; i < times && r == 0; ++i) r = api.cuGraphLaunch(exec, s);
  if (r == 0) r = api.cuStreamSynchronize(s);
  stream = nullptr;
  return r;
}

// Works for so many milliseconds: `batch` launches, or copies of that many bytes, then a wait. In
// bursts, if on and off are given.
int work(std::istringstream& in, const std::string& what) {
  long ms = 0;
  std::uint64_t size = 0;
  int batch = 0;
  long on = 0;
  long off = 0;
  in >> ms >> size >> batch >> on >> off;
  CUdeviceptr from = 0;
  CUdeviceptr to = 0;
  if (what == "copies") {
    if (const int r = api.cuMemAlloc_v2(&from, size); r != 0) return r;
    if (const int r = api.cuMemAlloc_v2(&to, size); r != 0) return r;
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto passed = [&] {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                                 begin)
        .count();
  };
  while (passed() < ms) {
    if (on > 0 && passed() % (on + off) >= on) {
      usleep(static_cast<useconds_t>((on + off - passed() % (on + off)) * 1000));
      continue;
    }
    int r = 0;
    for (int i = 0; i < batch && r == 0 && passed() < ms; ++i)
      r = what == "copies" ? api.cuMemcpyDtoDAsync_v2(to, from, size, stream) : launch(size, false);
    if (r == 0) r = api.cuCtxSynchronize();
    if (r != 0) return r;
  }
  return 0;
}

// Threads that allocate and free in three ways at once, and launch in between.
int churn(int threads, int rounds) {
  CUcontext context = nullptr;
  if (const int r = api.cuDevicePrimaryCtxRetain(&context, 0); r != 0) return r;
  if (kernel == nullptr)
    if (const int r = load_kernel(); r != 0) return r;
  std::vector<std::thread> all;
  all.reserve(static_cast<size_t>(threads));
  std::atomic<int> bad{0};
  for (int t = 0; t < threads; ++t)
    all.emplace_back([&, t] {
      if (api.cuCtxSetCurrent(context) != 0) ++bad;
      for (int i = 0; i < rounds; ++i) {
        CUdeviceptr address = 0;
        const size_t size = static_cast<size_t>((t + 1) * (i % 50 + 1)) * 70'000;
        const bool async = (i + t) % 3 == 0;
        const int r = async ? api.cuMemAllocAsync(&address, size, nullptr)
                            : api.cuMemAlloc_v2(&address, size);
        if (r != 0 && r != 2) ++bad;
        if (launch(100, false) != 0) ++bad;
        if (r != 0) continue;
        if ((i % 2 == 0 ? api.cuMemFreeAsync(address, nullptr) : api.cuMemFree_v2(address)) != 0)
          ++bad;
        if (i % 7 == 0 && api.cuStreamSynchronize(nullptr) != 0) ++bad;
      }
    });
  for (auto& thread : all) thread.join();
  return bad;
}

CUstream stream_of(std::uint64_t number) {
  if (number == 0) return nullptr;
  CUstream& s = streams[number];
  if (s == nullptr && api.cuStreamCreate(&s, 1) != 0) std::abort();
  return s;
}

int run(const std::string& word, std::istringstream& in, std::ostringstream& out) {
  if (word == "work" || word == "copies") return work(in, word);
  int result = 0;
  if (run_more(word, in, out, &result)) return result;
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  std::uint64_t c = 0;
  in >> a >> b >> c;
  CUdeviceptr address = 0;
  if (word == "init") return api.cuInit(0);
  if (word == "ctx") {
    CUcontext context = nullptr;
    const int r = api.cuDevicePrimaryCtxRetain(&context, static_cast<int>(a));
    return r != 0 ? r : api.cuCtxSetCurrent(context);
  }
  if (word == "release") return api.cuDevicePrimaryCtxRelease_v2(static_cast<int>(a));
  if (word == "reset") {
    pieces.clear();
    return api.cuDevicePrimaryCtxReset_v2(static_cast<int>(a));
  }
  if (word == "newctx") {
    CUcontext context = nullptr;
    const int r = api.cuCtxCreate_v2(&context, 0, static_cast<int>(a));
    if (r == 0) contexts.push_back(context);
    return r;
  }
  if (word == "endctx") {
    const int r = api.cuCtxDestroy_v2(contexts.back());
    contexts.pop_back();
    return r;
  }
  if (word == "alloc") {
    const int r = api.cuMemAlloc_v2(&address, a);
    return keep(r, 'd', address, a);
  }
  if (word == "managed") {
    const int r = api.cuMemAllocManaged(&address, a, 1);
    keep(r, 'd', address, a);
    return r != 0 ? r : api.cuMemPrefetchAsync(address, a, device(), nullptr);
  }
  if (word == "pitch") {
    size_t pitch = 0;
    const int r = api.cuMemAllocPitch_v2(&address, &pitch, a, b, 4);
    out << " pitch=" << pitch;
    return keep(r, 'd', address, pitch * b);
  }
  if (word == "array") {
    CUarray array = nullptr;
    const CUDA_ARRAY_DESCRIPTOR d{a, b, 0x20, 1};
    const int r = api.cuArrayCreate_v2(&array, &d);
    return keep(r, 'a', reinterpret_cast<std::uintptr_t>(array), a * b * 4);
  }
  if (word == "array3d") {
    CUarray array = nullptr;
    const CUDA_ARRAY3D_DESCRIPTOR d{a, b, c, 0x20, 2, 0};
    const int r = api.cuArray3DCreate_v2(&array, &d);
    return keep(r, 'a', reinterpret_cast<std::uintptr_t>(array), a * b * c * 8);
  }
  if (word == "mipmap") {
    CUmipmappedArray array = nullptr;
    const CUDA_ARRAY3D_DESCRIPTOR d{a, b, 0, 0x20, 1, 0};
    const int r = api.cuMipmappedArrayCreate(&array, &d, static_cast<unsigned>(c));
    return keep(r, 'm', reinterpret_cast<std::uintptr_t>(array), 0);
  }
  if (word == "async") {
    const int r = api.cuMemAllocAsync(&address, a, nullptr);
    return keep(r, 'p', address, a);
  }
  if (word == "newpool") {
    CUmemPoolProps props{};
    props.allocType = 1;
    props.location = {kLocationDevice, device()};
    CUmemoryPool pool = nullptr;
    const int r = api.cuMemPoolCreate(&pool, &props);
    if (r == 0) pools.push_back(pool);
    return r;
  }
  if (word == "frompool") {
    const int r = api.cuMemAllocFromPoolAsync(&address, a, pools.back(), nullptr);
    return keep(r, 'p', address, a);
  }
  if (word == "endpool") {
    const int r = api.cuMemPoolDestroy(pools.back());
    pools.pop_back();
    return r;
  }
  if (word == "keep-reserved") {
    CUmemoryPool pool = nullptr;
    const int r = api.cuDeviceGetDefaultMemPool(&pool, device());
    return r != 0 ? r : api.cuMemPoolSetAttribute(pool, 4, &a);
  }
  if (word == "vmm") return make_vmm(a, b != 0);
  if (word == "retain") {
    CUmemGenericAllocationHandle handle = 0;
    const int r = api.cuMemRetainAllocationHandle(
        &handle, reinterpret_cast<void*>(pieces.back().handle + pieces.back().size / 2));
    if (r == 0) handles.push_back(handle);
    return r;
  }
  if (word == "drop") {
    const int r = api.cuMemRelease(handles.back());
    handles.pop_back();
    return r;
  }
  if (word == "graph") return make_graph(a);
  if (word == "async-on") {
    const int r = api.cuMemAllocAsync(&address, b, stream_of(a));
    return keep(r, 'p', address, b);
  }
  if (word == "free-on") return free_piece(b, true, stream_of(a));
  if (word == "launch-on") {
    stream = stream_of(a);
    const int r = launch(b, false);
    stream = nullptr;
    return r;
  }
  // All that is said to be free, in one piece.
  if (word == "take-free") {
    size_t free_bytes = 0;
    size_t total = 0;
    if (const int r = api.cuMemGetInfo_v2(&free_bytes, &total); r != 0) return r;
    out << " free=" << free_bytes;
    const int r = a == 0 ? api.cuMemAlloc_v2(&address, free_bytes)
                         : api.cuMemAllocAsync(&address, free_bytes, nullptr);
    return keep(r, a == 0 ? 'd' : 'p', address, free_bytes);
  }
  if (word == "graphtrim") return api.cuDeviceGraphMemTrim(device());
  if (word == "free") return free_piece(a, false);
  if (word == "freeasync") return free_piece(a, true);
  if (word == "badfree") return api.cuMemFree_v2(0x1234500);
  if (word == "sync") return api.cuCtxSynchronize();
  if (word == "info") {
    size_t free_bytes = 0;
    size_t total = 0;
    const int r = api.cuMemGetInfo_v2(&free_bytes, &total);
    out << " free=" << free_bytes << " total=" << total;
    return r;
  }
  if (word == "info-null") {
    size_t free_bytes = 0;
    const int r = api.cuMemGetInfo_v2(&free_bytes, nullptr);
    return r != 0 ? r : api.cuMemGetInfo_v2(nullptr, nullptr);
  }
  if (word == "total") {
    size_t total = 0;
    const int r = api.cuDeviceTotalMem_v2(&total, static_cast<int>(a));
    out << " total=" << total;
    return r;
  }
  if (word == "launch" || word == "cooperative") {
    int r = 0;
    for (std::uint64_t i = 0; i < a && r == 0; ++i) r = launch(b, word == "cooperative");
    return r;
  }
  if (word == "churn") return churn(static_cast<int>(a), static_cast<int>(b));
  if (word == "capture") return capture_and_launch(b, static_cast<int>(a));
  if (word == "nvml") {
    void* nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (nvml == nullptr) return -1;
    const auto init = reinterpret_cast<int (*)()>(dlsym(nvml, "nvmlInit_v2"));
    const auto by_index =
        reinterpret_cast<int (*)(unsigned, void**)>(dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2"));
    const auto v1 = reinterpret_cast<int (*)(void*, unsigned long long*)>(
        dlsym(nvml, "nvmlDeviceGetMemoryInfo"));
    const auto v2 = reinterpret_cast<int (*)(void*, unsigned long long*)>(
        dlsym(nvml, "nvmlDeviceGetMemoryInfo_v2"));
    void* gpu = nullptr;
    unsigned long long one[3] = {};
    unsigned long long two[5] = {0x2000028};
    if (init() != 0 || by_index(static_cast<unsigned>(a), &gpu) != 0) return -1;
    const int r = v1(gpu, one) + v2(gpu, two);
    out << " total=" << one[0] << " free=" << one[1] << " used=" << one[2] << " total2=" << two[1]
        << " free2=" << two[3];
    return r;
  }
  return -1;
}

// What a well-behaved library leaves alone, in one line.
std::string manners() {
  std::ostringstream out;
  const mode_t mask = umask(022);
  umask(mask);
  out << "umask=" << mask;
  for (const int number : {SIGINT, SIGTERM, SIGSEGV, SIGUSR1, SIGUSR2, SIGCHLD, SIGPROF, SIGALRM}) {
    struct sigaction action {};
    sigaction(number, nullptr, &action);
    out << " " << number << (action.sa_handler == SIG_DFL ? "d" : "H");
  }
  return out.str();
}

// Without reading ahead: after exec the next program reads on.
bool next_line(std::string* line) {
  line->clear();
  for (char c = 0; read(0, &c, 1) == 1; *line += c)
    if (c == '\n') return true;
  return false;
}

int thread_count() {
  int count = 0;
  char line[200];
  FILE* file = std::fopen("/proc/self/status", "r");
  while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr)
    if (std::sscanf(line, "Threads: %d", &count) == 1) break;
  if (file != nullptr) std::fclose(file);
  return count;
}

}  // namespace
}  // namespace victim

using namespace victim;

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "dlsym";
  if (how != "none" && !load(how)) {
    std::puts("r=-2 cannot load the driver");
    return 1;
  }
  std::string line;
  std::vector<pid_t> sleepers;
  while (next_line(&line)) {
    std::istringstream in(line);
    std::ostringstream out;
    std::string word;
    in >> word;
    if (word == "quit") break;
    if (word == "exec") execl("/proc/self/exe", argv[0], how.c_str(), nullptr);
    int r = 0;
    if (word == "pid") {
      out << " pid=" << getpid();
    } else if (word == "fork" || word == "fork-first") {
      // A child that lives on with everything it inherited, and tries its luck.
      int report[2];
      if (pipe(report) != 0) return 1;
      const pid_t child = fork();
      if (child == 0) {
        close(0);
        CUdeviceptr address = 0;
        std::istringstream device("0");
        int code = 0;
        if (word == "fork-first") code = api.cuInit(0) + run("ctx", device, out);
        if (how != "none" && code == 0) code = api.cuMemAlloc_v2(&address, 1 << 20);
        (void)!write(report[1], &code, sizeof code);
        for (int i = 0; i < 600; ++i) usleep(100'000);
        _exit(0);
      }
      (void)!read(report[0], &r, sizeof r);
      close(report[0]);
      close(report[1]);
      sleepers.push_back(child);
      out << " child=" << child;
    } else if (word == "manners") {
      out << " " << manners() << " threads=" << thread_count();
    } else if (word == "errno") {
      errno = 77;
      std::istringstream rest(line.substr(6));
      rest >> word;
      r = run(word, rest, out);
      out << " errno=" << errno;
    } else if (word == "close-all") {
      for (int fd = 3; fd < 1024; ++fd) close(fd);
    } else {
      r = run(word, in, out);
    }
    std::printf("r=%d%s\n", r, out.str().c_str());
    std::fflush(stdout);
  }
  for (const pid_t child : sleepers) kill(child, SIGKILL);
  return 0;
}
