// Memory handles between processes. The owner pays; the importer sees the same bytes. The content
// moves to a file beside the state file, which goes with its owner (State::retire).
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <string>

#include "standin/cuda/driver.hpp"
#include "standin/cuda/memory.hpp"

namespace aliquot::standin {
namespace {

struct Ticket {
  std::uint64_t magic;
  std::int32_t slot;
  std::uint32_t generation;
  std::uint32_t number;
  std::uint32_t gpu;
  std::uint64_t size;
  std::uint64_t offset;
  std::uint8_t backed;
};
static_assert(sizeof(Ticket) <= sizeof(CUipcMemHandle));
constexpr std::uint64_t kTicketMagic = 0x414C495149504321ULL;

std::map<std::uintptr_t, std::uint32_t>& shared_blocks() {
  static auto* const blocks = new std::map<std::uintptr_t, std::uint32_t>;
  return *blocks;
}

}  // namespace

CU_API cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  Driver& driver = Driver::instance();
  if (const CUresult r = driver.ready(); r != kSuccess) return r;
  const std::lock_guard lock(driver.mutex);
  const Block* block = memory_find(address);
  if (handle == nullptr || block == nullptr || block->kind != BlockKind::device)
    return kInvalidValue;
  auto& shared = shared_blocks();
  if (!shared.contains(block->base)) {
    const std::uint32_t number = driver.self().shared_files;
    const auto path = driver.state().shared_file(driver.slot(), number);
    if (memory_share(block->base, path.c_str()) == nullptr) return kOperatingSystem;
    ++driver.self().shared_files;
    shared[block->base] = number;
  }
  const Ticket ticket{kTicketMagic, driver.slot(), driver.self().generation, shared[block->base],
                      block->gpu,   block->size,   address - block->base,    block->backed};
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
  if (out == nullptr || ticket.magic != kTicketMagic || ticket.slot < 0 ||
      ticket.slot >= static_cast<int>(kMaxProcesses) ||
      driver.state().process(ticket.slot).generation != ticket.generation)
    return kInvalidHandle;
  // The real driver does not open a handle in the process that made it.
  if (ticket.slot == driver.slot()) return kInvalidContext;
  Block block;
  block.kind = BlockKind::imported;
  block.size = ticket.size;
  block.gpu = ticket.gpu;
  block.context = context;
  block.backed = ticket.backed != 0;
  if (block.backed) {
    const auto path = driver.state().shared_file(ticket.slot, ticket.number);
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return kInvalidHandle;
    void* bytes =
        mmap(nullptr, round_up(block.size, 4096), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (bytes == MAP_FAILED) return kOperatingSystem;
    block.base = reinterpret_cast<std::uintptr_t>(bytes);
  } else {
    block.base = reinterpret_cast<std::uintptr_t>(reserve_range(block.size, false));
    if (block.base == 0) return kOutOfMemory;
  }
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
  const Block* found = memory_find(address);
  if (found == nullptr || found->kind != BlockKind::imported) return kInvalidValue;
  Block block;
  memory_erase(found->base, &block);
  munmap(reinterpret_cast<void*>(block.base), round_up(block.size, 4096));
  return kSuccess;
}

}  // namespace aliquot::standin
