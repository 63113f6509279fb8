// With the static CUDA runtime: what a kernel launch costs, in nanoseconds, bare and as programs get it; or with
// "result", the sum of a saxpy, which must be the same with and without limits, after taking memory until it is refused.
#include <cuda.h>
#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

__global__ void nothing() {}
__global__ void saxpy(float a, const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}

using Launch = CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                            void**, void**);

// The driver's own cuLaunchKernel, from its symbol table: dlsym would give the one of a preloaded library.
static Launch driver_launch() {
  const auto* map = static_cast<const link_map*>(dlopen("libcuda.so.1", RTLD_NOW));
  const ElfW(Sym)* symbols = nullptr;
  const char* names = nullptr;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(entry->d_un.d_ptr);
    if (entry->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(entry->d_un.d_ptr);
  }
  // The names follow the symbols.
  for (const ElfW(Sym)* symbol = symbols; reinterpret_cast<const char*>(symbol + 1) <= names; ++symbol) {
    if (symbol->st_value != 0 && !std::strcmp(names + symbol->st_name, "cuLaunchKernel")) {
      return reinterpret_cast<Launch>(map->l_addr + symbol->st_value);
    }
  }
  return nullptr;
}

static double batch(Launch launch, CUfunction function) {
  cudaDeviceSynchronize();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 256; ++i) launch(function, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr);
  const auto end = std::chrono::steady_clock::now();
  return std::chrono::duration<double, std::nano>(end - begin).count() / 256;
}

static double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The same process launches in turn through the driver's own entry and through the one that programs get.
static int launch_cost() {
  cudaFunction_t function;
  if (cudaFree(nullptr) != cudaSuccess || cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(nothing)) != cudaSuccess) return 1;
  const Launch bare = driver_launch();
  const auto usual = reinterpret_cast<Launch>(dlsym(RTLD_DEFAULT, "cuLaunchKernel") ? dlsym(RTLD_DEFAULT, "cuLaunchKernel")
                                                                                   : dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuLaunchKernel"));
  if (bare == nullptr || usual == nullptr) return 1;
  std::vector<double> of_bare, of_usual, apart;
  for (int i = 0; i < 1000; ++i) {
    const double first = batch(i % 2 ? bare : usual, function), second = batch(i % 2 ? usual : bare, function);
    of_bare.push_back(i % 2 ? first : second);
    of_usual.push_back(i % 2 ? second : first);
    apart.push_back(of_usual.back() - of_bare.back());
  }
  if (cudaDeviceSynchronize() != cudaSuccess) return 1;
  std::printf("{\"bare_ns\": %.1f, \"usual_ns\": %.1f, \"added_ns\": %.1f, \"wrapped\": %s}\n", median(of_bare), median(of_usual),
              median(apart), bare == usual ? "false" : "true");
  return 0;
}

static int result() {
  std::vector<void*> taken;
  size_t total = 0;
  cudaError_t refused = cudaSuccess;
  for (size_t size = size_t(1) << 30; size >= (size_t(1) << 26); size /= 2) {
    void* piece = nullptr;
    while ((refused = cudaMalloc(&piece, size)) == cudaSuccess) {
      taken.push_back(piece);
      total += size;
    }
    cudaGetLastError();
  }
  for (void* piece : taken) cudaFree(piece);
  const int n = 1 << 20;
  std::vector<float> x(n), y(n);
  for (int i = 0; i < n; ++i) x[i] = i % 1000, y[i] = i % 77;
  float *dx, *dy;
  if (cudaMalloc(&dx, n * 4) != cudaSuccess || cudaMalloc(&dy, n * 4) != cudaSuccess) return 1;
  cudaMemcpy(dx, x.data(), n * 4, cudaMemcpyHostToDevice);
  cudaMemcpy(dy, y.data(), n * 4, cudaMemcpyHostToDevice);
  saxpy<<<n / 256, 256>>>(2, dx, dy, n);
  if (cudaMemcpy(y.data(), dy, n * 4, cudaMemcpyDeviceToHost) != cudaSuccess) return 1;
  double sum = 0;
  for (float v : y) sum += v;
  std::printf("{\"result\": \"%.3f\", \"mib\": %zu, \"refusal\": \"%s\"}\n", sum, total >> 20, cudaGetErrorName(refused));
  return 0;
}

int main(int argc, char** argv) { return argc > 1 && !std::strcmp(argv[1], "result") ? result() : launch_cost(); }
