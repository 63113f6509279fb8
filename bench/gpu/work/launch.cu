// With the static CUDA runtime: what a kernel launch costs, in nanoseconds, as the median over batches; or with
// "result", the sum of a saxpy, which must be the same with and without limits, after taking memory until it is refused.
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

static int launch_cost() {
  std::vector<double> costs;
  for (int batch = 0; batch < 400; ++batch) {
    cudaDeviceSynchronize();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 256; ++i) nothing<<<1, 32>>>();
    const auto end = std::chrono::steady_clock::now();
    costs.push_back(std::chrono::duration<double, std::nano>(end - begin).count() / 256);
  }
  if (cudaDeviceSynchronize() != cudaSuccess) return 1;
  std::sort(costs.begin(), costs.end());
  std::printf("{\"median_ns\": %.1f, \"low_ns\": %.1f}\n", costs[costs.size() / 2], costs[costs.size() / 10]);
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
