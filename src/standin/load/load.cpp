#include "standin/load/load.hpp"

#include <algorithm>
#include <cstdio>
#include <thread>

#include "standin/load/kernels.hpp"

namespace aliquot::standin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kThreads = 256;
constexpr unsigned kInFlight = 4;  // kernels enqueued at once, so that the GPU never waits for us
constexpr double kPeriod = 0.1;    // of the duty cycle, seconds
constexpr float kKernelMs = 2;
constexpr int kProcessorCount = 16;       // CUdevice_attribute
constexpr unsigned kBlockingSync = 1;     // CUevent_flags: sleep, do not spin
constexpr std::size_t kProbe = 64 << 10;  // bytes verified of each piece

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

ExitCode Load::failed(const char* what, CUresult code) {
  report_.error = std::string(what) + ": " + api_.describe(code);
  return code == kOutOfMemory ? ExitCode::out_of_memory : ExitCode::cuda_error;
}

ExitCode Load::run() {
  if (const ExitCode e = open(); e != ExitCode::ok) return e;
  if (const ExitCode e = take_memory(); e != ExitCode::ok) return e;
  if (options_.verify)
    if (const ExitCode e = verify(); e != ExitCode::ok) return e;
  const ExitCode computed = options_.kernels != 0 ? compute_fixed() : compute();
  if (computed != ExitCode::ok) return computed;
  return options_.fault ? fault() : ExitCode::ok;
}

ExitCode Load::open() {
  int count = 0;
  CUresult r = api_.init(0);
  if (r == kSuccess) r = api_.device_get_count(&count);
  if (r != kSuccess || options_.device < 0 || options_.device >= count) {
    report_.error = r != kSuccess ? "no device: " + api_.describe(r)
                                  : "no device " + std::to_string(options_.device) + ": " +
                                        std::to_string(count) + " visible";
    return ExitCode::no_device;
  }
  char name[128] = "";
  api_.device_get_name(name, sizeof name, options_.device);
  report_.device = name;
  api_.device_get_attribute(&processors_, kProcessorCount, options_.device);
  CUcontext context = nullptr;
  r = api_.primary_retain(&context, options_.device);
  if (r == kSuccess) r = api_.ctx_set_current(context);
  if (r != kSuccess) return failed("creating a context", r);
  std::size_t free_bytes = 0;
  std::size_t total = 0;
  if (r = api_.mem_get_info(&free_bytes, &total); r != kSuccess) return failed("cuMemGetInfo", r);
  report_.free_before = free_bytes;
  report_.total = total;
  if (r = api_.module_load_data(&module_, kKernels); r != kSuccess)
    return failed("loading the kernels", r);
  r = api_.module_get_function(&spin_, module_, "spin");
  return r == kSuccess ? ExitCode::ok : failed("finding a kernel", r);
}

CUresult Load::allocate_vmm(std::size_t size, CUdeviceptr* out) {
  CUmemAllocationProp prop{};
  prop.type = 1;  // pinned
  prop.location = {kLocationDevice, options_.device};
  std::size_t granularity = 0;
  if (const CUresult r = api_.mem_granularity(&granularity, &prop, 0); r != kSuccess) return r;
  size = (size + granularity - 1) / granularity * granularity;
  CUmemGenericAllocationHandle handle = 0;
  if (const CUresult r = api_.mem_create(&handle, size, &prop, 0); r != kSuccess) return r;
  CUresult r = api_.mem_address_reserve(out, size, 0, 0, 0);
  if (r == kSuccess) r = api_.mem_map(*out, size, 0, handle, 0);
  const CUmemAccessDesc access{prop.location, 3};
  if (r == kSuccess) r = api_.mem_set_access(*out, size, &access, 1);
  // The mapping keeps the memory.
  const CUresult released = api_.mem_release(handle);
  return r == kSuccess ? released : r;
}

CUresult Load::allocate(std::size_t size) {
  CUdeviceptr address = 0;
  CUresult r = kSuccess;
  if (options_.kind == "alloc") {
    r = api_.mem_alloc(&address, size);
  } else if (options_.kind == "async") {
    r = api_.mem_alloc_async(&address, size, nullptr);
  } else if (options_.kind == "managed") {
    r = api_.mem_alloc_managed(&address, size, 1);
    // Managed memory takes its place on the GPU when the GPU touches it.
    if (r == kSuccess) r = api_.memset_d8(address, 0, size);
  } else if (options_.kind == "vmm") {
    r = allocate_vmm(size, &address);
  } else if (options_.kind == "pitch") {
    std::size_t pitch = 0;
    r = api_.mem_alloc_pitch(&address, &pitch, 4096, std::max<std::size_t>(size / 4096, 1), 4);
  } else {
    CUarray array = nullptr;
    const CUDA_ARRAY_DESCRIPTOR shape{4096, std::max<std::size_t>(size / 4096 / 4, 1), 0x20, 1};
    return api_.array_create(&array, &shape);
  }
  if (r == kSuccess) pieces_.emplace_back(address, size);
  return r;
}

ExitCode Load::take_memory() {
  const std::uint64_t wanted = options_.grow && options_.memory == 0 ? UINT64_MAX : options_.memory;
  std::uint64_t step = options_.step;
  while (report_.allocated < wanted) {
    const std::uint64_t size = std::min(step, wanted - report_.allocated);
    const CUresult r = allocate(size);
    if (r == kOutOfMemory && options_.grow) {
      // Refused: take what is left in smaller pieces.
      if (step <= (2U << 20)) break;
      step /= 2;
      continue;
    }
    if (r != kSuccess) return failed(("allocating " + options_.kind).c_str(), r);
    report_.allocated += size;
    ++report_.pieces;
  }
  return ExitCode::ok;
}

CUresult Load::spin(std::uint64_t iterations) {
  void* arguments[] = {&iterations, &scratch_};
  const unsigned blocks = options_.blocks != 0
                              ? options_.blocks
                              : static_cast<unsigned>(processors_) * (2048 / kThreads);
  return api_.launch_kernel(spin_, blocks, 1, 1, kThreads, 1, 1, 0, nullptr, arguments, nullptr);
}

CUresult Load::calibrate() {
  constexpr std::uint64_t kTrial = 20'000;
  CUevent start = nullptr;
  CUevent end = nullptr;
  CUresult r = api_.event_create(&start, kBlockingSync);
  if (r == kSuccess) r = api_.event_create(&end, kBlockingSync);
  for (int trial = 0; trial < 2 && r == kSuccess; ++trial) {  // the first one also loads the kernel
    r = api_.event_record(start, nullptr);
    if (r == kSuccess) r = spin(kTrial);
    if (r == kSuccess) r = api_.event_record(end, nullptr);
    if (r == kSuccess) r = api_.event_synchronize(end);
  }
  float ms = 0;
  if (r == kSuccess) r = api_.event_elapsed(&ms, start, end);
  const double scale = kKernelMs / std::max(ms, 1e-3F);
  options_.iterations = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(scale * kTrial));
  return r;
}

ExitCode Load::compute() {
  if (options_.seconds <= 0) return ExitCode::ok;
  const auto begin = Clock::now();
  if (options_.busy <= 0) {
    std::this_thread::sleep_for(std::chrono::duration<double>(options_.seconds));
    report_.wall_seconds = since(begin);
    return ExitCode::ok;
  }
  if (options_.iterations == 0)
    if (const CUresult r = calibrate(); r != kSuccess) return failed("the first kernel", r);
  struct Slot {
    CUevent start = nullptr, end = nullptr;
    bool used = false;
  } slots[kInFlight];
  for (Slot& slot : slots) {
    CUresult r = api_.event_create(&slot.start, kBlockingSync);
    if (r == kSuccess) r = api_.event_create(&slot.end, kBlockingSync);
    if (r != kSuccess) return failed("creating events", r);
  }
  const auto settle = [&](Slot& slot) {
    if (!slot.used) return kSuccess;
    slot.used = false;
    float ms = 0;
    CUresult r = api_.event_synchronize(slot.end);
    if (r == kSuccess) r = api_.event_elapsed(&ms, slot.start, slot.end);
    if (r != kSuccess) return r;
    report_.gpu_seconds += ms / 1000.0;
    ++report_.kernels;
    report_.iterations += options_.iterations;
    return kSuccess;
  };
  // A duty cycle counts what runs, not what is enqueued ahead.
  const unsigned in_flight = options_.busy >= 1 ? kInFlight : 1;
  unsigned next = 0;
  for (auto period = begin; since(begin) < options_.seconds;) {
    Slot& slot = slots[next++ % in_flight];
    CUresult r = settle(slot);
    if (r == kSuccess) r = api_.event_record(slot.start, nullptr);
    if (r == kSuccess) r = spin(options_.iterations);
    if (r == kSuccess) r = api_.event_record(slot.end, nullptr);
    if (r != kSuccess) return failed("computing", r);
    slot.used = true;
    if (options_.busy >= 1 || since(period) < kPeriod * options_.busy) continue;
    for (Slot& other : slots)
      if (r = settle(other); r != kSuccess) return failed("computing", r);
    period += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(kPeriod));
    std::this_thread::sleep_until(period);
    period = Clock::now();
  }
  for (Slot& slot : slots)
    if (const CUresult r = settle(slot); r != kSuccess) return failed("computing", r);
  report_.wall_seconds = since(begin);
  return ExitCode::ok;
}

// What it gets done does not depend on what it gets: its time does.
ExitCode Load::compute_fixed() {
  const auto begin = Clock::now();
  CUevent done = nullptr;
  CUresult r = api_.event_create(&done, kBlockingSync);
  while (r == kSuccess && report_.kernels < options_.kernels) {
    const auto launched = Clock::now();
    r = spin(options_.iterations);
    if (r == kSuccess) r = api_.event_record(done, nullptr);
    if (r == kSuccess) r = api_.event_synchronize(done);
    report_.gpu_seconds += since(launched);
    report_.iterations += options_.iterations;
    ++report_.kernels;
    std::this_thread::sleep_for(std::chrono::duration<double>(options_.pause));
  }
  report_.wall_seconds = since(begin);
  return r == kSuccess ? ExitCode::ok : failed("computing", r);
}

// y = 2 x + y on both ends of every piece, checked on the host.
ExitCode Load::verify() {
  CUfunction saxpy = nullptr;
  if (const CUresult r = api_.module_get_function(&saxpy, module_, "saxpy"); r != kSuccess)
    return failed("finding a kernel", r);
  report_.verified = "yes";
  for (const auto& [address, size] : pieces_) {
    if (size < 2 * kProbe) continue;
    unsigned n = kProbe / sizeof(float);
    std::vector<float> x(n);
    std::vector<float> y(n, 1);
    for (unsigned i = 0; i < n; ++i) x[i] = static_cast<float>(i % 1000);
    CUdeviceptr dx = address;
    CUdeviceptr dy = address + size - kProbe;
    float a = 2;
    void* arguments[] = {&n, &a, &dx, &dy};
    CUresult r = api_.memcpy_to_device(dx, x.data(), kProbe);
    if (r == kSuccess) r = api_.memcpy_to_device(dy, y.data(), kProbe);
    if (r == kSuccess)
      r = api_.launch_kernel(saxpy, (n + kThreads - 1) / kThreads, 1, 1, kThreads, 1, 1, 0, nullptr,
                             arguments, nullptr);
    if (r == kSuccess) r = api_.memcpy_to_host(y.data(), dy, kProbe);
    if (r != kSuccess) return failed("verifying", r);
    for (unsigned i = 0; i < n; ++i)
      if (y[i] != 2 * x[i] + 1) {
        report_.verified = "failed";
        report_.error = "a piece of memory does not hold what was computed";
        return ExitCode::verify_failed;
      }
  }
  return ExitCode::ok;
}

ExitCode Load::fault() {
  CUfunction kernel = nullptr;
  if (const CUresult r = api_.module_get_function(&kernel, module_, "fault"); r != kSuccess)
    return failed("finding a kernel", r);
  CUdeviceptr nowhere = 16;
  void* arguments[] = {&nowhere};
  CUresult r = api_.launch_kernel(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr);
  if (r == kSuccess) r = api_.ctx_synchronize();
  return failed("the fault that was asked for", r);
}

}  // namespace aliquot::standin
