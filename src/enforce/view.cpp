#include "enforce/view.hpp"

#include "enforce/memory.hpp"
#include "enforce/overhead.hpp"

namespace aliquot::enforce {
namespace {

unsigned narrow(std::uint64_t bytes) {
  return bytes > UINT32_MAX ? UINT32_MAX : static_cast<unsigned>(bytes);
}

}  // namespace

View share_view(int gpu, std::uint64_t free, std::uint64_t total) {
  if (!grant_ready() || gpu < 0) return {0, 0, true};
  const std::uint64_t limit = limit_of(gpu);
  if (limit == 0) return {total, free, false};
  const std::uint64_t used = job_bytes(gpu);
  const std::uint64_t left = used < limit ? limit - used : 0;
  const std::uint64_t shown = limit < total ? limit : total;
  std::uint64_t least = left < free ? left : free;
  if (least > shown) least = shown;
  // What is promised can be had in one piece of any kind: whole pieces of a pool.
  least = least / kPoolPiece * kPoolPiece;
  return {shown, least, true};
}

ALIQUOT_HOOK cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total) {
  if (!governed()) return real::cuMemGetInfo_v2(free_bytes, total);
  // Programs pass null for what they do not want.
  std::size_t real_free = 0;
  std::size_t real_total = 0;
  const CUresult r = real::cuMemGetInfo_v2(&real_free, &real_total);
  int gpu = kNoGpu;
  CUcontext context = nullptr;
  if (r != kSuccess || !current_gpu(&gpu, &context)) return r;
  settle_pools();
  look_for_overhead(gpu);
  const View view = share_view(gpu, real_free, real_total);
  if (free_bytes != nullptr) *free_bytes = view.free;
  if (total != nullptr) *total = view.total;
  return r;
}

ALIQUOT_HOOK cuDeviceTotalMem_v2(std::size_t* total, CUdevice device) {
  const bool ours = governed();
  const CUresult r = real::cuDeviceTotalMem_v2(total, device);
  if (!ours || r != kSuccess || total == nullptr) return r;
  *total = share_view(gpu_of_device(device), *total, *total).total;
  return r;
}

ALIQUOT_HOOK cuMemGetInfo(unsigned* free_bytes, unsigned* total) {
  if (!governed()) return real::cuMemGetInfo(free_bytes, total);
  std::size_t wide_free = 0;
  std::size_t wide_total = 0;
  const CUresult r = enforce::cuMemGetInfo_v2(&wide_free, &wide_total);
  if (r == kSuccess && free_bytes != nullptr) *free_bytes = narrow(wide_free);
  if (r == kSuccess && total != nullptr) *total = narrow(wide_total);
  return r;
}

ALIQUOT_HOOK cuDeviceTotalMem(unsigned* total, CUdevice device) {
  if (!governed() || total == nullptr) return real::cuDeviceTotalMem(total, device);
  std::size_t wide = 0;
  const CUresult r = enforce::cuDeviceTotalMem_v2(&wide, device);
  if (r == kSuccess) *total = narrow(wide);
  return r;
}

}  // namespace aliquot::enforce
