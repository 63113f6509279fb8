// A libcuda.so.1 that does nothing at once, for the benchmark of the gate: one GPU whose UUID is
// all zeros, a context, events that are over.
#include <cstdint>

#define NULL_API extern "C" __attribute__((visibility("default"))) int

// The names are the driver's. NOLINTBEGIN(readability-identifier-naming)
NULL_API cuInit(unsigned) { return 0; }
NULL_API cuCtxGetCurrent(void** out) {
  *out = reinterpret_cast<void*>(16);
  return 0;
}
NULL_API cuCtxGetDevice(int* out) { return *out = 0; }
NULL_API cuDeviceGetUuid(unsigned char* out, int) {
  for (int i = 0; i < 16; ++i) out[i] = 0;
  return 0;
}
NULL_API cuDeviceGetUuid_v2(unsigned char* out, int device) { return cuDeviceGetUuid(out, device); }
NULL_API cuStreamIsCapturing(void*, int* out) { return *out = 0; }
NULL_API cuThreadExchangeStreamCaptureMode(int*) { return 0; }
NULL_API cuEventCreate(void** out, unsigned) {
  *out = reinterpret_cast<void*>(32);
  return 0;
}
NULL_API cuEventRecord(void*, void*) { return 0; }
NULL_API cuEventQuery(void*) { return 0; }
NULL_API cuEventElapsedTime(float* out, void*, void*) {
  *out = 0.001F;
  return 0;
}
NULL_API cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        void*, void**, void**) {
  __asm__ volatile("");
  return 0;
}
NULL_API null_launch(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                     void*, void**, void**) {
  __asm__ volatile("");
  return 0;
}
// NOLINTEND(readability-identifier-naming)
