// Memory handles between processes. The memory is attributed to its owner; whoever opened it keeps
// it on the GPU, also when the owner frees it or is gone (state/shared.cpp).
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "standin/cuda/driver.hpp"
#include "standin/cuda/memory.hpp"

namespace aliquot::standin {
namespace {

struct Ticket {
  std::uint64_t magic;
  std::uint64_t number;
  std::int32_t slot;
  std::uint32_t gpu;
  std::uint64_t size;
  std::uint64_t offset;
  std::uint8_t backed;
};
static_assert(sizeof(Ticket) <= sizeof(CUipcMemHandle));
constexpr std::uint64_t kTicketMagic = 0x414C495149504321ULL;

}  // namespace

CU_API cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  Driver& driver = Driver::instance();
  if (const CUresult r = driver.ready(); r != kSuccess) return r;
  const std::lock_guard lock(driver.mutex);
  const Block* block = memory_share(address);
  if (handle == nullptr || block == nullptr) return kInvalidValue;
  const Ticket ticket{kTicketMagic, block->shared,         driver.slot(), block->gpu,
                      block->size,  address - block->base, block->backed};
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, &ticket, sizeof ticket);
  return kSuccess;
}

CU_API cuIpcOpenMemHandle_v2(CUdeviceptr* out, CUipcMemHandle handle, unsigned) {
  Driver& driver = Driver::instance();
  Context* context = nullptr;
  if (const CUresult r = driver.current(&context); r != kSuccess) return r;
  Ticket ticket{};
  std::memcpy(&ticket, &handle, sizeof ticket);
  if (out == nullptr || ticket.magic != kTicketMagic) return kInvalidHandle;
  // The real driver does not open a handle in the process that made it.
  if (ticket.slot == driver.slot()) return kInvalidContext;
  {
    const State::Guard guard(driver.state());
    if (driver.state().find_shared(ticket.number) == nullptr) return kInvalidHandle;
    driver.state().note_import(ticket.number, driver.slot(), false);
  }
  Block block;
  block.kind = BlockKind::imported;
  block.size = ticket.size;
  block.gpu = ticket.gpu;
  block.context = context;
  block.backed = ticket.backed != 0;
  block.shared = ticket.number;
  block.fd = driver.state().hold_shared(ticket.number);
  if (block.fd < 0) return kInvalidHandle;
  const int content = block.backed ? driver.state().open_content(ticket.number) : -1;
  void* base = block.backed ? mmap(nullptr, round_up(block.size, 4096), PROT_READ | PROT_WRITE,
                                   MAP_SHARED, content, 0)
                            : reserve_range(block.size, false);
  if (content >= 0) close(content);
  if (base == nullptr || base == MAP_FAILED) {
    close(block.fd);
    return kOutOfMemory;
  }
  block.base = reinterpret_cast<std::uintptr_t>(base);
  memory_insert(block);
  *out = block.base + ticket.offset;
  return kSuccess;
}

CU_API cuIpcOpenMemHandle(CUdeviceptr* out, CUipcMemHandle handle, unsigned flags) {
  return cuIpcOpenMemHandle_v2(out, handle, flags);
}

CU_API cuIpcCloseMemHandle(CUdeviceptr address) {
  Driver& driver = Driver::instance();
  if (const CUresult r = driver.ready(); r != kSuccess) return r;
  return memory_close(address) ? kSuccess : kInvalidValue;
}

}  // namespace aliquot::standin
