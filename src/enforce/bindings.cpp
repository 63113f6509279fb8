// Memory without an address of its own: in sparse arrays and multicast objects. Each holds the
// allocation it is bound to until it is unbound or, with arrays, destroyed.
#include "enforce/mappings.hpp"
#include "enforce/memory.hpp"
#include "enforce/reset.hpp"

namespace aliquot::enforce {
namespace {

constexpr int kMap = 1;

// A place in an array or multicast object, as a number: equal for the same place only, as far as
// anyone can tell.
std::uint64_t mix(std::uint64_t sum, std::uint64_t word) {
  sum ^= word + 0x9E3779B97F4A7C15ULL + (sum << 6) + (sum >> 2);
  return sum * 0xFF51AFD7ED558CCDULL;
}

std::uint64_t place_of(const CUarrayMapInfo& info) {
  std::uint64_t sum = mix(reinterpret_cast<std::uintptr_t>(info.resource),
                          static_cast<std::uint64_t>(info.subresourceType));
  for (const std::uint64_t word : info.subresource) sum = mix(sum, word);
  return sum | 1U;
}

std::uint64_t place_of(CUmemHandle multicast, std::size_t offset) {
  return mix(multicast, offset) | 1U;
}

Lock lock;
Table bound;  // key: the place; owner: the allocation; size: the array it is in, or 0

// Unmapping is ordered with a stream: the memory is free when the stream has come that far.
struct Leaving {
  CUstream stream;
  std::uint64_t allocation;
};
constexpr std::size_t kMostLeaving = 64;
Leaving leaving[kMostLeaving];
std::size_t leaving_count = 0;

void settle_leaving() {
  for (std::size_t i = 0; i < leaving_count;) {
    if (!wait_for_stream(leaving[i].stream, 0)) {
      ++i;
      continue;
    }
    let_go(leaving[i].allocation);
    leaving[i] = leaving[--leaving_count];
  }
}

void bind(std::uint64_t place, std::uint64_t allocation, const void* array) {
  if (allocation != 0 &&
      !bound.insert({place, reinterpret_cast<std::uintptr_t>(array), allocation, 0, 0}))
    let_go(allocation);
}

void unbind(std::uint64_t place, CUstream stream) {
  Record gone{};
  if (!bound.remove(place, &gone)) return;
  if (leaving_count == kMostLeaving) {
    (void)real::cuStreamSynchronize(leaving[0].stream);
    settle_leaving();
  }
  // Without a place to wait in, it stays charged as long as the process lives.
  if (leaving_count < kMostLeaving) leaving[leaving_count++] = {stream, gone.owner};
}

CUresult map_arrays(CUarrayMapInfo* list, unsigned count, CUstream stream,
                    CUresult (*call)(CUarrayMapInfo*, unsigned, CUstream)) {
  if (!governed() || list == nullptr) return call(list, count, stream);
  const Hold hold(lock);
  settle_leaving();
  const CUresult r = call(list, count, stream);
  if (r != kSuccess) return r;
  for (unsigned i = 0; i < count; ++i) {
    const std::uint64_t place = place_of(list[i]);
    const std::uint64_t allocation =
        list[i].memOperationType == kMap ? hold_by_handle(list[i].memHandle) : 0;
    unbind(place, stream);
    bind(place, allocation, list[i].resource);
  }
  return r;
}

}  // namespace

void reset_bindings() {
  lock = {};
  bound.reset();
  leaving_count = 0;
}

void bindings_array_gone(CUarray array) {
  if (bound.size() == 0) return;
  const Hold hold(lock);
  for (std::size_t i = 0; i < bound.places();) {
    const Record record = bound.at(i);
    if (record.key == 0 || record.size != reinterpret_cast<std::uintptr_t>(array)) {
      ++i;
      continue;
    }
    bound.remove_at(i);
    let_go(record.owner);
  }
}

void bindings_stream_gone(CUstream stream) {
  if (leaving_count == 0) return;
  const Hold hold(lock);
  // The driver ends what is on it in its own time: wait for that while it can be asked.
  for (std::size_t i = 0; i < leaving_count; ++i)
    if (leaving[i].stream == stream) {
      (void)real::cuStreamSynchronize(stream);
      settle_leaving();
      return;
    }
}

void look_at_bindings() {
  if (leaving_count == 0) return;
  const Hold hold(lock);
  settle_leaving();
}

ALIQUOT_HOOK cuMemMapArrayAsync(CUarrayMapInfo* list, unsigned count, CUstream stream) {
  return map_arrays(list, count, stream, real::cuMemMapArrayAsync);
}

ALIQUOT_HOOK cuMemMapArrayAsync_ptsz(CUarrayMapInfo* list, unsigned count, CUstream stream) {
  return map_arrays(list, count, stream, real::cuMemMapArrayAsync_ptsz);
}

ALIQUOT_HOOK cuMulticastBindMem(CUmemHandle multicast, std::size_t offset, CUmemHandle handle,
                                std::size_t from, std::size_t size, unsigned long long flags) {
  const bool ours = governed();
  const CUresult r = real::cuMulticastBindMem(multicast, offset, handle, from, size, flags);
  if (!ours || r != kSuccess) return r;
  const Hold hold(lock);
  bind(place_of(multicast, offset), hold_by_handle(handle), nullptr);
  return r;
}

ALIQUOT_HOOK cuMulticastBindAddr(CUmemHandle multicast, std::size_t offset, CUdeviceptr address,
                                 std::size_t size, unsigned long long flags) {
  const bool ours = governed();
  const CUresult r = real::cuMulticastBindAddr(multicast, offset, address, size, flags);
  if (!ours || r != kSuccess) return r;
  const Hold hold(lock);
  bind(place_of(multicast, offset), hold_by_address(address), nullptr);
  return r;
}

ALIQUOT_HOOK cuMulticastUnbind(CUmemHandle multicast, CUdevice device, std::size_t offset,
                               std::size_t size) {
  const bool ours = governed();
  const CUresult r = real::cuMulticastUnbind(multicast, device, offset, size);
  if (!ours || r != kSuccess) return r;
  const Hold hold(lock);
  Record gone{};
  if (bound.remove(place_of(multicast, offset), &gone)) let_go(gone.owner);
  return r;
}

}  // namespace aliquot::enforce
