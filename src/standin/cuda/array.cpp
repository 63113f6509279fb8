// Arrays and mipmapped arrays: they take memory and have no content. Sparse ones take none of their
// own: memory is mapped into them piece by piece.
#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "standin/cuda/driver.hpp"
#include "standin/cuda/memory.hpp"
#include "standin/cuda/stream.hpp"

namespace aliquot::standin {

struct Array {
  CUDA_ARRAY3D_DESCRIPTOR descriptor;
  CUdeviceptr storage;
  bool level;  // of a mipmapped array, which owns the storage
};

struct MipmappedArray {
  CUDA_ARRAY3D_DESCRIPTOR descriptor;
  unsigned levels;
  CUdeviceptr storage;
};

namespace {

struct Piece {
  std::array<unsigned long long, 4> where;
  CUmemGenericAllocationHandle handle;
};

// What is mapped into sparse arrays; the driver's mutex guards it.
std::map<const void*, std::vector<Piece>>& pieces() {
  static auto* const all = new std::map<const void*, std::vector<Piece>>;
  return *all;
}

void unmap_all(const void* resource) {
  const std::lock_guard lock(Driver::instance().mutex);
  for (const Piece& piece : pieces()[resource]) vmm_drop(piece.handle);
  pieces().erase(resource);
}

CUresult map_piece(const CUarrayMapInfo& info) {
  std::vector<Piece>& mapped = pieces()[info.resource];
  std::array<unsigned long long, 4> where{};
  std::copy(std::begin(info.subresource), std::end(info.subresource), where.begin());
  const auto found = std::find_if(mapped.begin(), mapped.end(),
                                  [&](const Piece& each) { return each.where == where; });
  if (info.memOperationType == kOperationMap && !vmm_hold(info.memHandle)) return kInvalidValue;
  if (found != mapped.end()) {
    vmm_drop(found->handle);
    mapped.erase(found);
  }
  if (info.memOperationType == kOperationMap) mapped.push_back({where, info.memHandle});
  return kSuccess;
}

std::size_t bytes_of_format(int format) {
  switch (format) {
    case 0x01:
    case 0x08:
      return 1;
    case 0x02:
    case 0x09:
    case 0x10:
      return 2;
    case 0x03:
    case 0x0A:
    case 0x20:
      return 4;
    default:
      return 0;
  }
}

std::size_t size_of(const CUDA_ARRAY3D_DESCRIPTOR& d, unsigned level) {
  const auto at = [&](std::size_t extent) {
    return extent == 0 ? std::size_t{1} : (extent >> level) == 0 ? 1 : extent >> level;
  };
  return at(d.Width) * at(d.Height) * at(d.Depth) * bytes_of_format(d.Format) * d.NumChannels;
}

bool sound(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  return d.Width > 0 && bytes_of_format(d.Format) > 0 &&
         (d.NumChannels == 1 || d.NumChannels == 2 || d.NumChannels == 4);
}

CUresult create(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR& d) {
  Context* context = nullptr;
  if (const CUresult r = Driver::instance().current(&context); r != kSuccess) return r;
  if (out == nullptr || !sound(d)) return kInvalidValue;
  CUdeviceptr storage = 0;
  if ((d.Flags & kArraySparse) == 0)
    if (const CUresult r = memory_allocate(context, size_of(d, 0), &storage); r != kSuccess)
      return r;
  *out = new Array{d, storage, false};
  return kSuccess;
}

}  // namespace

CU_API cuArrayCreate_v2(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* d) {
  if (d == nullptr) return kInvalidValue;
  return create(out, {d->Width, d->Height, 0, d->Format, d->NumChannels, 0});
}

CU_API cuArray3DCreate_v2(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* d) {
  return d == nullptr ? kInvalidValue : create(out, *d);
}

CU_API cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* d, CUarray array) {
  if (d == nullptr || array == nullptr) return kInvalidValue;
  const auto& own = array->descriptor;
  *d = {own.Width, own.Height, own.Format, own.NumChannels};
  return kSuccess;
}

CU_API cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* d, CUarray array) {
  return array == nullptr ? kInvalidValue : give(d, array->descriptor);
}

CU_API cuArrayDestroy(CUarray array) {
  if (const CUresult r = Driver::instance().ready(); r != kSuccess) return r;
  if (array == nullptr || array->level) return kInvalidValue;
  unmap_all(array);
  const CUresult r = memory_free(array->storage);
  delete array;
  return r;
}

CU_API cuMipmappedArrayCreate(CUmipmappedArray* out, const CUDA_ARRAY3D_DESCRIPTOR* d,
                              unsigned levels) {
  Context* context = nullptr;
  if (const CUresult r = Driver::instance().current(&context); r != kSuccess) return r;
  if (out == nullptr || d == nullptr || levels == 0 || !sound(*d)) return kInvalidValue;
  std::size_t size = 0;
  for (unsigned level = 0; level < levels; ++level) size += size_of(*d, level);
  CUdeviceptr storage = 0;
  if ((d->Flags & kArraySparse) == 0)
    if (const CUresult r = memory_allocate(context, size, &storage); r != kSuccess) return r;
  *out = new MipmappedArray{*d, levels, storage};
  return kSuccess;
}

CU_API cuMipmappedArrayGetLevel(CUarray* out, CUmipmappedArray array, unsigned level) {
  if (const CUresult r = Driver::instance().ready(); r != kSuccess) return r;
  if (out == nullptr || array == nullptr || level >= array->levels) return kInvalidValue;
  *out = new Array{array->descriptor, array->storage, true};
  return kSuccess;
}

CU_API cuMipmappedArrayDestroy(CUmipmappedArray array) {
  if (const CUresult r = Driver::instance().ready(); r != kSuccess) return r;
  if (array == nullptr) return kInvalidValue;
  unmap_all(array);
  const CUresult r = memory_free(array->storage);
  delete array;
  return r;
}

// In order with the stream on the real GPU; here at once.
CU_API_STREAM(cuMemMapArrayAsync, _ptsz, (CUarrayMapInfo * list, unsigned count, CUstream stream),
              (list, count, stream)) {
  Stream* s = nullptr;
  if (const CUresult r = resolve_stream(stream, &s); r != kSuccess) return r;
  if (list == nullptr || count == 0) return kInvalidValue;
  const std::lock_guard lock(Driver::instance().mutex);
  for (unsigned i = 0; i < count; ++i)
    if (const CUresult r = map_piece(list[i]); r != kSuccess) return r;
  return kSuccess;
}

}  // namespace aliquot::standin
