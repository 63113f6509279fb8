// Plain allocations: device, pitched and managed memory, arrays. Reserve what the driver will take,
// call it, give the reservation back if it did not.
#include <cerrno>

#include "enforce/mappings.hpp"
#include "enforce/memory.hpp"
#include "enforce/overhead.hpp"
#include "enforce/patience.hpp"
#include "enforce/reset.hpp"

namespace aliquot::enforce {
namespace {

Lock lock;
Table blocks;
std::uint64_t small_sum[ALIQUOT_MAX_GPUS];  // bytes in slabs

// Devices of the process, by ordinal: index + 2, 1 = not ours, 0 = not asked yet.
constexpr int kMaxDevices = 128;
int device_gpus[kMaxDevices];

// Small pieces of one size fill a slab as far as they go: three of 600,000 bytes, two of 700,000
// (measured). Of mixed sizes a few more may fit; what does not shows up in NVML and is charged
// then.
std::uint64_t part_of_slab(std::uint64_t size) {
  return kGranularity / (kGranularity / round_up(size == 0 ? 1 : size, kSmallPiece));
}

// Under the lock, so that the sum of the slabs always equals what is reserved for them.
bool charge_locked(int gpu, std::uint64_t size) {
  if (size > kSmallLimit) return reserve(gpu, round_up(size, kGranularity));
  const std::uint64_t after = small_sum[gpu] + part_of_slab(size);
  const std::uint64_t more = round_up(after, kGranularity) - round_up(small_sum[gpu], kGranularity);
  if (!reserve(gpu, more)) return false;
  small_sum[gpu] = after;
  return true;
}

void refund_locked(int gpu, std::uint64_t size) {
  if (size > kSmallLimit) {
    release(gpu, round_up(size, kGranularity));
    return;
  }
  const std::uint64_t after = small_sum[gpu] - part_of_slab(size);
  release(gpu, round_up(small_sum[gpu], kGranularity) - round_up(after, kGranularity));
  small_sum[gpu] = after;
}

bool charge_once(int gpu, std::uint64_t size, BlockKind kind) {
  if (gpu < 0) return false;
  const Hold hold(lock);
  if (kind != block_managed) return charge_locked(gpu, size);
  if (!reserve(gpu, round_up(size, kGranularity))) return false;
  add_unattributed(gpu, round_up(size, kGranularity));
  return true;
}

void release_managed(int gpu, std::uint64_t size) {
  release(gpu, round_up(size, kGranularity));
  remove_unattributed(gpu, round_up(size, kGranularity));
}

bool charge(int gpu, std::uint64_t size, BlockKind kind = block_device) {
  look_for_overhead(gpu);
  return persevere(gpu, [&] { return charge_once(gpu, size, kind) ? kSuccess : kRefused; }) ==
         kSuccess;
}

void uncharge(int gpu, std::uint64_t size, BlockKind kind = block_device) {
  refund({0, size, 0, gpu, kind});
}

std::uint64_t bytes_of_format(int format) {
  switch (format) {
    case 0x01:
    case 0x08:
      return 1;
    case 0x02:
    case 0x09:
    case 0x10:
      return 2;
    default:
      return 4;
  }
}

std::uint64_t times(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX / 2 : product;
}

std::uint64_t array_size(const CUDA_ARRAY3D_DESCRIPTOR& d, unsigned level) {
  const auto at = [&](std::size_t extent) -> std::uint64_t {
    const std::size_t smaller = level < 64 ? extent >> level : 0;
    return smaller == 0 ? 1 : smaller;
  };
  return times(times(at(d.Width), at(d.Height)),
               times(at(d.Depth), bytes_of_format(d.Format) * d.NumChannels));
}

// The layout of an array is the driver's business. It says how much it took, where it can.
using Requirements = CUresult (*)(CUDA_ARRAY_MEMORY_REQUIREMENTS*, CUarray, CUdevice);
bool correct_array(int gpu, std::uint64_t* charged, CUarray array, Requirements ask) {
  CUdevice device = 0;
  CUDA_ARRAY_MEMORY_REQUIREMENTS need{};
  if (real::cuCtxGetDevice(&device) != kSuccess || ask(&need, array, device) != kSuccess)
    return true;
  if (need.size <= *charged) return true;
  if (!charge(gpu, need.size)) return false;
  uncharge(gpu, *charged);
  *charged = need.size;
  return true;
}

template <class Create, class Destroy>
CUresult make_array(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR& d, unsigned levels, Create create,
                    Destroy destroy, Requirements ask) {
  int gpu = kNoGpu;
  CUcontext context = nullptr;
  if ((d.Flags & (kArraySparse | kArrayDeferred)) != 0 || !current_gpu(&gpu, &context))
    return create();
  std::uint64_t size = 0;
  for (unsigned level = 0; level < levels && level < 64; ++level) {
    const std::uint64_t more = array_size(d, level);
    size = size > UINT64_MAX / 2 - more ? UINT64_MAX / 2 : size + more;
  }
  if (!charge(gpu, size)) return kOutOfMemory;
  const CUresult r = insist(create);
  if (r != kSuccess) {
    uncharge(gpu, size);
    return r;
  }
  if (!correct_array(gpu, &size, *out, ask)) {
    (void)destroy(*out);
    *out = nullptr;
    uncharge(gpu, size);
    return kOutOfMemory;
  }
  track(reinterpret_cast<std::uintptr_t>(*out), size, gpu, block_device,
        reinterpret_cast<std::uintptr_t>(context));
  return r;
}

template <class Free>
CUresult free_block(std::uint64_t key, Free call) {
  return free_tracked(key, call, [=](const Record& record) {
    const std::uint64_t bytes = round_up(record.size, kGranularity);
    const bool kept = record.kind == block_device && keep_exported(key, record.gpu, bytes);
    // A descriptor of a small piece holds the slab with it.
    if (kept && record.size <= kSmallLimit) reserve_anyway(record.gpu, bytes);
    if (!kept || record.size <= kSmallLimit) refund(record);
  });
}

CUresult free_array(CUarray array, CUresult (*destroy)(CUarray)) {
  return free_block(reinterpret_cast<std::uintptr_t>(array), [=] {
    const CUresult r = destroy(array);
    if (r == kSuccess) bindings_array_gone(array);
    return r;
  });
}

template <class Out, class Create>
CUresult make_block(Out* out, std::uint64_t size, BlockKind kind, Create create) {
  int gpu = kNoGpu;
  CUcontext context = nullptr;
  // Without a context the driver has its own answer.
  if (size == 0 || !current_gpu(&gpu, &context)) return create();
  if (!charge(gpu, size, kind)) return kOutOfMemory;
  const CUresult r = insist(create);
  if (r == kSuccess)
    track(*out, size, gpu, kind, reinterpret_cast<std::uintptr_t>(context));
  else
    uncharge(gpu, size, kind);
  return r;
}

}  // namespace

void reset_blocks() {
  lock = {};
  blocks.reset();
  for (auto& sum : small_sum) sum = 0;
  for (int& gpu : device_gpus) gpu = 0;
}

int gpu_of_device(CUdevice device) {
  if (device < 0 || device >= kMaxDevices) return kNoGpu;
  int known = __atomic_load_n(&device_gpus[device], __ATOMIC_RELAXED);
  if (known != 0) return known - 2;
  // By UUID, never by number: CUDA_VISIBLE_DEVICES renumbers. The second form tells MIG slices
  // apart.
  CUuuid uuid{};
  int gpu = kNoGpu;
  if (real::cuDeviceGetUuid_v2(&uuid, device) == kSuccess) gpu = gpu_by_uuid(uuid.bytes);
  if (gpu < 0 && real::cuDeviceGetUuid(&uuid, device) == kSuccess) gpu = gpu_by_uuid(uuid.bytes);
  if (grant_ready()) __atomic_store_n(&device_gpus[device], gpu + 2, __ATOMIC_RELAXED);
  return gpu;
}

bool current_gpu(int* gpu, CUcontext* context) {
  CUdevice device = 0;
  if (real::cuCtxGetCurrent(context) != kSuccess || *context == nullptr ||
      real::cuCtxGetDevice(&device) != kSuccess)
    return false;
  *gpu = gpu_of_device(device);
  return true;
}

bool reserve_or_squeeze(int gpu, std::uint64_t bytes, bool context) {
  if (!context) look_for_overhead(gpu);
  return persevere(gpu, [&] { return reserve(gpu, bytes, context) ? kSuccess : kRefused; }) ==
         kSuccess;
}

void track(std::uint64_t key, std::uint64_t size, int gpu, BlockKind kind, std::uint64_t owner) {
  const Hold hold(lock);
  (void)blocks.insert({key, size, owner, gpu, kind});
}

bool untrack(std::uint64_t key, Record* record) {
  const Hold hold(lock);
  return blocks.remove(key, record);
}

void put_back(const Record& record) {
  const Hold hold(lock);
  (void)blocks.insert(record);
}

void refund(const Record& record) {
  if (record.kind == block_pool) {
    pool_block_freed(record);
    return;
  }
  const Hold hold(lock);
  if (record.kind == block_managed)
    release_managed(record.gpu, record.size);
  else
    refund_locked(record.gpu, record.size);
}

void context_gone(CUcontext context) {
  const auto owner = reinterpret_cast<std::uintptr_t>(context);
  const Hold hold(lock);
  for (std::size_t i = 0; i < blocks.places();) {
    const Record record = blocks.at(i);
    if (record.key == 0 || record.kind == block_pool || record.owner != owner) {
      ++i;
      continue;
    }
    blocks.remove_at(i);
    if (record.kind == block_managed)
      release_managed(record.gpu, record.size);
    else
      refund_locked(record.gpu, record.size);
  }
}

ALIQUOT_HOOK cuMemAlloc_v2(CUdeviceptr* out, std::size_t size) {
  if (!governed() || out == nullptr) return real::cuMemAlloc_v2(out, size);
  return make_block(out, size, block_device, [&] { return real::cuMemAlloc_v2(out, size); });
}

ALIQUOT_HOOK cuMemAllocManaged(CUdeviceptr* out, std::size_t size, unsigned flags) {
  if (!governed() || out == nullptr) return real::cuMemAllocManaged(out, size, flags);
  return make_block(out, size, block_managed,
                    [&] { return real::cuMemAllocManaged(out, size, flags); });
}

ALIQUOT_HOOK cuMemAllocPitch_v2(CUdeviceptr* out, std::size_t* pitch, std::size_t width,
                                std::size_t height, unsigned element) {
  const auto create = [&] { return real::cuMemAllocPitch_v2(out, pitch, width, height, element); };
  int gpu = kNoGpu;
  CUcontext context = nullptr;
  if (!governed() || out == nullptr || pitch == nullptr || width == 0 || height == 0 ||
      !current_gpu(&gpu, &context))
    return create();
  constexpr std::uint64_t kRow = 512;
  const std::uint64_t expected = times(round_up(width, kRow), height);
  if (!charge(gpu, expected)) return kOutOfMemory;
  const CUresult r = insist(create);
  if (r != kSuccess) {
    uncharge(gpu, expected);
    return r;
  }
  // The pitch is known only now. Another one than expected is charged for what it is.
  const std::uint64_t size = times(*pitch, height);
  if (size != expected) {
    const bool fits = charge(gpu, size);
    if (!fits) (void)real::cuMemFree_v2(*out);
    uncharge(gpu, expected);
    if (!fits) return kOutOfMemory;
  }
  track(*out, size, gpu, block_device, reinterpret_cast<std::uintptr_t>(context));
  return r;
}

// The driver is always asked and its answer returned, whether we know the address or not.
ALIQUOT_HOOK cuMemFree_v2(CUdeviceptr address) {
  if (!governed()) return real::cuMemFree_v2(address);
  return free_block(address, [=] { return real::cuMemFree_v2(address); });
}

ALIQUOT_HOOK cuArrayCreate_v2(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* d) {
  if (!governed() || out == nullptr || d == nullptr) return real::cuArrayCreate_v2(out, d);
  const CUDA_ARRAY3D_DESCRIPTOR full{d->Width, d->Height, 0, d->Format, d->NumChannels, 0};
  return make_array(
      out, full, 1, [&] { return real::cuArrayCreate_v2(out, d); }, real::cuArrayDestroy,
      real::cuArrayGetMemoryRequirements);
}

ALIQUOT_HOOK cuArray3DCreate_v2(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* d) {
  if (!governed() || out == nullptr || d == nullptr) return real::cuArray3DCreate_v2(out, d);
  return make_array(
      out, *d, 1, [&] { return real::cuArray3DCreate_v2(out, d); }, real::cuArrayDestroy,
      real::cuArrayGetMemoryRequirements);
}

ALIQUOT_HOOK cuMipmappedArrayCreate(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* d,
                                    unsigned levels) {
  if (!governed() || out == nullptr || d == nullptr)
    return real::cuMipmappedArrayCreate(out, d, levels);
  return make_array(
      out, *d, levels, [&] { return real::cuMipmappedArrayCreate(out, d, levels); },
      real::cuMipmappedArrayDestroy, real::cuMipmappedArrayGetMemoryRequirements);
}

ALIQUOT_HOOK cuArrayDestroy(CUarray array) {
  if (!governed()) return real::cuArrayDestroy(array);
  return free_array(array, real::cuArrayDestroy);
}

ALIQUOT_HOOK cuMipmappedArrayDestroy(CUarray array) {
  if (!governed()) return real::cuMipmappedArrayDestroy(array);
  return free_array(array, real::cuMipmappedArrayDestroy);
}

// The 32-bit forms: nothing is given to a program that is limited. No CUDA since 4 calls them.
ALIQUOT_HOOK cuMemAlloc(unsigned* out, unsigned size) {
  return governed() ? kOutOfMemory : real::cuMemAlloc(out, size);
}

ALIQUOT_HOOK cuMemAllocPitch(unsigned* out, unsigned* pitch, unsigned width, unsigned height,
                             unsigned element) {
  return governed() ? kOutOfMemory : real::cuMemAllocPitch(out, pitch, width, height, element);
}

ALIQUOT_HOOK cuArrayCreate(CUarray* out, const void* d) {
  return governed() ? kOutOfMemory : real::cuArrayCreate(out, d);
}

ALIQUOT_HOOK cuArray3DCreate(CUarray* out, const void* d) {
  return governed() ? kOutOfMemory : real::cuArray3DCreate(out, d);
}

}  // namespace aliquot::enforce
