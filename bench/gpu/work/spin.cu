// spin US DEPTH BLOCKS MIB: takes MIB of memory (or all it can get, in pieces of 64 MiB: 0), says "UP <MiB>" once work is on the GPU, and keeps
// DEPTH kernels of US microseconds queued until it is killed. A CUDA error is "DIED <number>" and status 3.
#include <cstdio>
#include <cstdlib>

__global__ void spin(long long ns) {
  long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  while (now - begin < ns);
}

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const double us = std::atof(argv[1]);
  const int depth = std::atoi(argv[2]), blocks = std::atoi(argv[3]), wanted = std::atoi(argv[4]);
  int mib = 0;
  cudaError_t error = cudaFree(nullptr);
  void* piece = nullptr;
  while (error == cudaSuccess && (wanted == 0 || mib < wanted) && (error = cudaMalloc(&piece, 64 << 20)) == cudaSuccess) mib += 64;
  if (error == cudaErrorMemoryAllocation && wanted == 0 && mib > 0) {
    cudaGetLastError();
    error = cudaSuccess;
  }
  for (bool up = false; error == cudaSuccess; up = true) {
    for (int i = 0; i < depth && error == cudaSuccess; ++i) {
      spin<<<blocks, 128>>>(static_cast<long long>(us * 1000));
      error = cudaGetLastError();
    }
    if (!up && error == cudaSuccess) {
      std::printf("UP %d\n", mib);
      std::fflush(stdout);
    }
    if (error == cudaSuccess) error = cudaDeviceSynchronize();
  }
  std::printf("DIED %d\n", static_cast<int>(error));
  return 3;
}
