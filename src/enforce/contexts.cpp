// Contexts cost memory before anything is allocated. A guess is reserved, the context made, and the
// guess replaced by what NVML then counts for this process; without NVML the guess stays. With the
// first one on a GPU goes the room for what the driver will take by itself (overhead.hpp).
#include "enforce/memory.hpp"
#include "enforce/nvml.hpp"
#include "enforce/overhead.hpp"
#include "enforce/patience.hpp"
#include "enforce/reset.hpp"

namespace aliquot::enforce {
namespace {

constexpr std::uint64_t kGreenGuess = 64ULL << 20;
// So much more of the card a context takes than NVML attributes to the process (H200, driver 580).
constexpr std::uint64_t kHidden = 8ULL << 20;

enum ContextKind : std::uint32_t { context_own = 0, context_primary = 1, context_measured = 2 };

Lock lock;       // over the making of contexts: the driver makes one at a time anyway
Table contexts;  // key: the context; size: its cost; owner: the device

unsigned contexts_on(int gpu) {
  unsigned count = 0;
  for (std::size_t i = 0; i < contexts.places(); ++i)
    if (contexts.at(i).key != 0 && contexts.at(i).gpu == gpu) ++count;
  return count;
}

void forget(const Record& record) {
  // The primary context has its handle for ever; its blocks are gone all the same.
  const auto context = reinterpret_cast<CUcontext>(record.key);
  context_gone(context);
  release(record.gpu, record.size, true);
  if ((record.kind & context_measured) != 0) remove_unattributed(record.gpu, kHidden);
  if (record.gpu >= 0 && contexts_on(record.gpu) == 0) {
    room_ends(record.gpu);
    forget_functions();
  }
  settle_pools();
}

// What the process holds beside contexts. A measurement during which this changed does not count.
std::uint64_t plain_bytes(int gpu) {
  const aliquot_use* use = own_use(gpu);
  return use == nullptr ? 0
                        : __atomic_load_n(&use->charged, __ATOMIC_ACQUIRE) -
                              __atomic_load_n(&use->context, __ATOMIC_ACQUIRE);
}

template <class Create, class Destroy>
CUresult make(CUcontext* out, CUdevice device, ContextKind kind, std::uint64_t guess, Create create,
              Destroy destroy) {
  const int gpu = gpu_of_device(device);
  CUuuid uuid{};
  // No such device: the driver has its own answer.
  if (gpu < 0 && real::cuDeviceGetUuid(&uuid, device) != kSuccess) return create();
  std::uint64_t before = 0;
  std::uint64_t after = 0;
  const std::uint64_t plain = plain_bytes(gpu);
  const bool can_measure = nvml_own_bytes(gpu, &before);
  // Pools outlive a context that is reset, and are attributed again with the next one.
  if (before < plain) before = plain;
  if (!reserve_or_squeeze(gpu, guess, true)) return kOutOfMemory;
  const CUresult r = insist(create);
  if (r != kSuccess) {
    release(gpu, guess, true);
    return r;
  }
  std::uint64_t cost = guess;
  const bool measured =
      can_measure && nvml_own_bytes(gpu, &after) && after > before && plain == plain_bytes(gpu);
  if (measured) cost = after - before + kHidden;
  std::uint64_t room =
      gpu < 0 || contexts_on(gpu) != 0 ? 0 : room_for(gpu, cost > guess ? cost - guess : 0);
  // A job that is nearly full gets less room.
  while (!settle_context(gpu, guess, cost + room)) {
    if (const std::uint64_t least = least_room(gpu); room > least) {
      room = room / 2 > least ? room / 2 : least;
      continue;
    }
    (void)destroy(*out);
    release(gpu, guess, true);
    count_refusal(gpu);
    return kOutOfMemory;
  }
  if (room != 0) room_kept(gpu, room);
  if (measured) add_unattributed(gpu, kHidden);
  (void)contexts.insert({reinterpret_cast<std::uintptr_t>(*out), cost,
                         static_cast<std::uint64_t>(device), gpu,
                         static_cast<std::uint32_t>(kind) | (measured ? context_measured : 0U)});
  return r;
}

template <class Create>
CUresult make_own(CUcontext* out, CUdevice device, Create create) {
  if (!governed() || out == nullptr) return create();
  const Hold hold(lock);
  return make(out, device, context_own, context_guess(gpu_of_device(device)), create,
              real::cuCtxDestroy_v2);
}

template <class Destroy>
CUresult destroy_own(CUcontext context, Destroy destroy) {
  const bool ours = governed();
  const Hold hold(lock);
  if (ours) gate_context_ends(context);
  const CUresult r = destroy();
  Record gone{};
  if (ours && r == kSuccess && contexts.remove(reinterpret_cast<std::uintptr_t>(context), &gone))
    forget(gone);
  return r;
}

bool primary_active(CUdevice device) {
  unsigned flags = 0;
  int active = 0;
  return real::cuDevicePrimaryCtxGetState(device, &flags, &active) == kSuccess && active != 0;
}

// The place of a device's primary context in the table, or kNowhere.
constexpr std::size_t kNowhere = SIZE_MAX;
std::size_t find_primary(CUdevice device) {
  for (std::size_t i = 0; i < contexts.places(); ++i) {
    const Record& record = contexts.at(i);
    if (record.key != 0 && (record.kind & context_primary) != 0 &&
        record.owner == static_cast<std::uint64_t>(device))
      return i;
  }
  return kNowhere;
}

template <class Call>
CUresult leave_primary(CUdevice device, bool reset, Call call) {
  const bool ours = governed();
  const Hold hold(lock);
  const std::size_t place = ours ? find_primary(device) : kNowhere;
  if (place == kNowhere) return call(device);
  const Record record = contexts.at(place);
  gate_context_ends(reinterpret_cast<CUcontext>(record.key));
  const CUresult r = call(device);
  // A release may not have been the last one.
  if (r != kSuccess || (!reset && primary_active(device))) return r;
  contexts.remove_at(place);
  forget(record);
  return r;
}

}  // namespace

void reset_contexts() {
  lock = {};
  contexts.reset();
}

ALIQUOT_HOOK cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
  const auto create = [&] { return real::cuDevicePrimaryCtxRetain(out, device); };
  if (!governed() || out == nullptr) return create();
  const Hold hold(lock);
  if (primary_active(device)) return create();
  return make(out, device, context_primary, context_guess(gpu_of_device(device)), create,
              [&](CUcontext) { return real::cuDevicePrimaryCtxRelease_v2(device); });
}

ALIQUOT_HOOK cuDevicePrimaryCtxRelease(CUdevice device) {
  return leave_primary(device, false, real::cuDevicePrimaryCtxRelease);
}

ALIQUOT_HOOK cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return leave_primary(device, false, real::cuDevicePrimaryCtxRelease_v2);
}

ALIQUOT_HOOK cuDevicePrimaryCtxReset(CUdevice device) {
  return leave_primary(device, true, real::cuDevicePrimaryCtxReset);
}

ALIQUOT_HOOK cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return leave_primary(device, true, real::cuDevicePrimaryCtxReset_v2);
}

ALIQUOT_HOOK cuCtxCreate(CUcontext* out, unsigned flags, CUdevice device) {
  return make_own(out, device, [&] { return real::cuCtxCreate(out, flags, device); });
}

ALIQUOT_HOOK cuCtxCreate_v2(CUcontext* out, unsigned flags, CUdevice device) {
  return make_own(out, device, [&] { return real::cuCtxCreate_v2(out, flags, device); });
}

ALIQUOT_HOOK cuCtxCreate_v3(CUcontext* out, void* affinity, int count, unsigned flags,
                            CUdevice device) {
  return make_own(out, device,
                  [&] { return real::cuCtxCreate_v3(out, affinity, count, flags, device); });
}

ALIQUOT_HOOK cuCtxCreate_v4(CUcontext* out, void* params, unsigned flags, CUdevice device) {
  return make_own(out, device, [&] { return real::cuCtxCreate_v4(out, params, flags, device); });
}

ALIQUOT_HOOK cuCtxDestroy(CUcontext context) {
  return destroy_own(context, [&] { return real::cuCtxDestroy(context); });
}

ALIQUOT_HOOK cuCtxDestroy_v2(CUcontext context) {
  return destroy_own(context, [&] { return real::cuCtxDestroy_v2(context); });
}

// A part of the primary context's SMs with a context of its own, on top of the primary one.
ALIQUOT_HOOK cuGreenCtxCreate(CUcontext* out, void* resources, CUdevice device, unsigned flags) {
  const auto create = [&] { return real::cuGreenCtxCreate(out, resources, device, flags); };
  if (!governed() || out == nullptr) return create();
  const Hold hold(lock);
  return make(out, device, context_own, kGreenGuess, create, real::cuGreenCtxDestroy);
}

ALIQUOT_HOOK cuGreenCtxDestroy(CUcontext context) {
  return destroy_own(context, [&] { return real::cuGreenCtxDestroy(context); });
}

}  // namespace aliquot::enforce
