// What changes: memory, utilisation, processes, temperature, power, errors and events.
#include <algorithm>
#include <cmath>
#include <ctime>
#include <vector>

#include "standin/nvml/session.hpp"

namespace aliquot::standin {

struct NvmlEventSet {
  std::vector<std::uint64_t> seen;  // errors already reported, by GPU; only registered ones count
  std::vector<bool> watched;
};

namespace {

unsigned percent(double fraction) {
  return static_cast<unsigned>(std::lround(100 * std::clamp(fraction, 0.0, 1.0)));
}

bool uses(const Process& p, unsigned gpu) {
  return p.kind != Kind::free &&
         (p.contexts[gpu] > 0 || (p.kind == Kind::server && p.bytes[gpu] > 0));
}

// Fills a caller's array as NVML does: too small an array gets the size it should have.
template <class Info>
nvmlReturn list(nvmlDevice device, unsigned* count, Info* infos, bool clients_only) {
  unsigned gpu = 0;
  if (const nvmlReturn r = nvml_gpu(device, &gpu); r != kNvmlSuccess) return r;
  if (count == nullptr || (*count > 0 && infos == nullptr)) return kNvmlInvalidArgument;
  State& s = *nvml_state();
  const Look look(s);
  std::vector<Info> found;
  for (int slot = 0; slot < static_cast<int>(kMaxProcesses); ++slot) {
    const Process& p = s.process(slot);
    if (!uses(p, gpu) || (clients_only && p.kind != Kind::client)) continue;
    Info info{};
    info.pid = static_cast<unsigned>(s.pid_of(slot));
    if (info.pid == 0) continue;
    info.usedGpuMemory = s.attributed(slot, gpu);
    if constexpr (requires { info.gpuInstanceId; })
      info.gpuInstanceId = info.computeInstanceId = kNvmlNoInstance;
    found.push_back(info);
  }
  const bool fits = found.size() <= *count;
  if (fits && infos != nullptr) std::copy(found.begin(), found.end(), infos);
  *count = static_cast<unsigned>(found.size());
  return fits ? kNvmlSuccess : kNvmlInsufficientSize;
}

nvmlReturn none(nvmlDevice device, unsigned* count) {
  unsigned gpu = 0;
  if (const nvmlReturn r = nvml_gpu(device, &gpu); r != kNvmlSuccess) return r;
  return put(count, 0);
}

double utilization(unsigned gpu) {
  State& s = *nvml_state();
  const Look look(s);
  return s.gpu(gpu).compute.utilized;
}

}  // namespace

NVML_API nvmlDeviceGetMemoryInfo(nvmlDevice device, nvmlMemory* out) {
  unsigned gpu = 0;
  if (const nvmlReturn r = nvml_gpu(device, &gpu); r != kNvmlSuccess) return r;
  if (out == nullptr) return kNvmlInvalidArgument;
  State& s = *nvml_state();
  const Look look(s);
  // The first version counts what the driver keeps for itself as used.
  out->total = s.model(gpu).memory;
  out->free = s.free(gpu);
  out->used = out->total - out->free;
  return kNvmlSuccess;
}

NVML_API nvmlDeviceGetMemoryInfo_v2(nvmlDevice device, nvmlMemory_v2* out) {
  unsigned gpu = 0;
  if (const nvmlReturn r = nvml_gpu(device, &gpu); r != kNvmlSuccess) return r;
  if (out == nullptr) return kNvmlInvalidArgument;
  if (out->version != (sizeof(nvmlMemory_v2) | 2U << 24)) return kNvmlVersionMismatch;
  State& s = *nvml_state();
  const Look look(s);
  out->total = s.model(gpu).memory;
  out->reserved = s.model(gpu).reserved;
  out->free = s.free(gpu);
  out->used = out->total - out->reserved - out->free;
  return kNvmlSuccess;
}

NVML_API nvmlDeviceGetUtilizationRates(nvmlDevice device, nvmlUtilization* out) {
  unsigned gpu = 0;
  if (const nvmlReturn r = nvml_gpu(device, &gpu); r != kNvmlSuccess) return r;
  if (out == nullptr) return kNvmlInvalidArgument;
  out->gpu = percent(utilization(gpu));
  out->memory = out->gpu / 2;
  return kNvmlSuccess;
}

NVML_API nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice d, unsigned* n, nvmlProcessInfo* out) {
  return list(d, n, out, false);
}
NVML_API nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice d, unsigned* n, nvmlProcessInfo* out) {
  return list(d, n, out, false);
}
NVML_API nvmlDeviceGetComputeRunningProcesses(nvmlDevice d, unsigned* n, nvmlProcessInfo_v1* out) {
  return list(d, n, out, false);
}
NVML_API nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice d, unsigned* n,
                                                    nvmlProcessInfo* out) {
  return list(d, n, out, true);
}
NVML_API nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice d, unsigned* n,
                                                    nvmlProcessInfo* out) {
  return list(d, n, out, true);
}
NVML_API nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice d, unsigned* n,
                                                 nvmlProcessInfo_v1* out) {
  return list(d, n, out, true);
}
NVML_API nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice d, unsigned* n, void*) {
  return none(d, n);
}
NVML_API nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice d, unsigned* n, void*) {
  return none(d, n);
}
NVML_API nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice d, unsigned* n, void*) {
  return none(d, n);
}

// Under MPS the server is charged with what its clients do, and they do not appear.
NVML_API nvmlDeviceGetProcessUtilization(nvmlDevice device, nvmlProcessUtilizationSample* out,
                                         unsigned* count, unsigned long long since) {
  unsigned gpu = 0;
  if (const nvmlReturn r = nvml_gpu(device, &gpu); r != kNvmlSuccess) return r;
  if (count == nullptr) return kNvmlInvalidArgument;
  State& s = *nvml_state();
  const Look look(s);
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  const auto now = static_cast<unsigned long long>(t.tv_sec) * 1'000'000ULL +
                   static_cast<unsigned long long>(t.tv_nsec) / 1000ULL;
  std::vector<double> used(kMaxProcesses, 0);
  for (unsigned slot = 0; slot < kMaxProcesses; ++slot) {
    const Process& p = s.data().processes[slot];
    if (p.kind == Kind::free) continue;
    const auto owner = p.kind == Kind::client ? static_cast<unsigned>(p.server) : slot;
    used[owner] += s.gpu(gpu).compute.use[slot].utilized;
  }
  std::vector<nvmlProcessUtilizationSample> found;
  for (unsigned slot = 0; slot < kMaxProcesses; ++slot) {
    const Process& p = s.data().processes[slot];
    if (p.kind == Kind::client || !uses(p, gpu) || since >= now) continue;
    const unsigned sm = percent(used[slot]);
    const auto pid = static_cast<unsigned>(s.pid_of(static_cast<int>(slot)));
    if (pid != 0) found.push_back({pid, now, sm, sm / 2, 0, 0});
  }
  const bool fits = out != nullptr && found.size() <= *count;
  if (fits) std::copy(found.begin(), found.end(), out);
  *count = static_cast<unsigned>(found.size());
  if (found.empty()) return kNvmlNotFound;
  return fits ? kNvmlSuccess : kNvmlInsufficientSize;
}

NVML_API nvmlDeviceGetTemperature(nvmlDevice device, int, unsigned* out) {
  unsigned gpu = 0;
  if (const nvmlReturn r = nvml_gpu(device, &gpu); r != kNvmlSuccess) return r;
  return put(out, nvml_state()->gpu(gpu).temperature);
}

NVML_API nvmlDeviceGetPowerUsage(nvmlDevice device, unsigned* out) {
  unsigned gpu = 0;
  if (const nvmlReturn r = nvml_gpu(device, &gpu); r != kNvmlSuccess) return r;
  const double limit = nvml_state()->model(gpu).power_limit_w * 1000.0;
  return put(out, limit * (0.17 + 0.75 * utilization(gpu)));
}

NVML_API nvmlDeviceGetFanSpeed(nvmlDevice, unsigned*) { return kNvmlNotSupported; }

NVML_API nvmlDeviceGetEccMode(nvmlDevice device, int* current, int* pending) {
  unsigned gpu = 0;
  if (const nvmlReturn r = nvml_gpu(device, &gpu); r != kNvmlSuccess) return r;
  const nvmlReturn r = put(current, 1);
  return r != kNvmlSuccess ? r : put(pending, 1);
}

NVML_API nvmlDeviceGetTotalEccErrors(nvmlDevice device, int type, int, unsigned long long* out) {
  unsigned gpu = 0;
  if (const nvmlReturn r = nvml_gpu(device, &gpu); r != kNvmlSuccess) return r;
  const Gpu& g = nvml_state()->gpu(gpu);
  return put(out, type == 1 ? g.ecc_uncorrected : g.ecc_corrected);
}

NVML_API nvmlDeviceGetMemoryErrorCounter(nvmlDevice device, int type, int counter, int,
                                         unsigned long long* out) {
  return nvmlDeviceGetTotalEccErrors(device, type, counter, out);
}

NVML_API nvmlDeviceGetSupportedEventTypes(nvmlDevice device, unsigned long long* out) {
  unsigned gpu = 0;
  if (const nvmlReturn r = nvml_gpu(device, &gpu); r != kNvmlSuccess) return r;
  return put(out, kNvmlEventXid);
}

NVML_API nvmlEventSetCreate(nvmlEventSet* out) {
  if (nvml_state() == nullptr) return kNvmlUninitialized;
  return put(out, new NvmlEventSet{std::vector<std::uint64_t>(kMaxGpus, 0),
                                   std::vector<bool>(kMaxGpus, false)});
}

NVML_API nvmlEventSetFree(nvmlEventSet set) {
  delete set;
  return kNvmlSuccess;
}

NVML_API nvmlDeviceRegisterEvents(nvmlDevice device, unsigned long long types, nvmlEventSet set) {
  unsigned gpu = 0;
  if (const nvmlReturn r = nvml_gpu(device, &gpu); r != kNvmlSuccess) return r;
  if (set == nullptr) return kNvmlInvalidArgument;
  set->watched[gpu] = (types & kNvmlEventXid) != 0;
  set->seen[gpu] = nvml_state()->gpu(gpu).xid_count;
  return kNvmlSuccess;
}

NVML_API nvmlEventSetWait_v2(nvmlEventSet set, nvmlEventData* out, unsigned timeout_ms) {
  State* s = nvml_state();
  if (s == nullptr) return kNvmlUninitialized;
  if (set == nullptr || out == nullptr) return kNvmlInvalidArgument;
  for (unsigned waited = 0;; waited += 20) {
    for (unsigned g = 0; g < s->gpu_count(); ++g) {
      if (!set->watched[g] || set->seen[g] == s->gpu(g).xid_count) continue;
      set->seen[g] = s->gpu(g).xid_count;
      *out = {nvml_handle(g), kNvmlEventXid, s->gpu(g).xid, kNvmlNoInstance, kNvmlNoInstance};
      return kNvmlSuccess;
    }
    if (waited >= timeout_ms) return kNvmlTimeout;
    const timespec pause{0, 20'000'000};
    nanosleep(&pause, nullptr);
  }
}

NVML_API nvmlEventSetWait(nvmlEventSet set, nvmlEventData* out, unsigned timeout_ms) {
  return nvmlEventSetWait_v2(set, out, timeout_ms);
}

}  // namespace aliquot::standin
