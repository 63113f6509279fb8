#include "standin/cuda/memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "standin/cuda/driver.hpp"
#include "standin/cuda/graph.hpp"
#include "standin/cuda/pool.hpp"

namespace aliquot::standin {
namespace {

struct Registry {
  std::map<std::uintptr_t, Block> blocks;
  std::uint64_t small[kMaxGpus] = {};  // bytes in slabs, by GPU
  unsigned long long next_id = 1;
};

Registry& registry() {
  static Registry* const r = new Registry;
  return *r;
}

// As many small pieces as fit share a slab.
std::uint64_t part_of_slab(std::size_t size) {
  return kGranularity / (kGranularity / round_up(size, 512));
}

// Charge only when the sum needs another slab.
CUresult charge_block(unsigned gpu, std::size_t size) {
  Driver& driver = Driver::instance();
  if (size > kSmallLimit) return driver.charge(gpu, round_up(size, kGranularity));
  std::uint64_t& sum = registry().small[gpu];
  const std::uint64_t after = sum + part_of_slab(size);
  const std::uint64_t more = round_up(after, kGranularity) - round_up(sum, kGranularity);
  if (const CUresult r = more == 0 ? kSuccess : driver.charge(gpu, more); r != kSuccess) return r;
  sum = after;
  return kSuccess;
}

void refund_block(unsigned gpu, std::size_t size) {
  Driver& driver = Driver::instance();
  if (size > kSmallLimit) {
    driver.refund(gpu, round_up(size, kGranularity));
    return;
  }
  std::uint64_t& sum = registry().small[gpu];
  const std::uint64_t after = sum - part_of_slab(size);
  const std::uint64_t less = round_up(sum, kGranularity) - round_up(after, kGranularity);
  if (less != 0) driver.refund(gpu, less);
  sum = after;
}

void dispose(const Block& block) {
  switch (block.kind) {
    case BlockKind::device:
      refund_block(block.gpu, block.size);
      break;
    case BlockKind::managed:
      Driver::instance().refund(block.gpu, block.resident);
      break;
    case BlockKind::pool:
      pool_give_back(block.pool, block.size);
      break;
    case BlockKind::host:
    case BlockKind::imported:
    case BlockKind::graph:
    case BlockKind::mapped:
      break;
  }
  if (!block.registered) release_range(reinterpret_cast<void*>(block.base), block.size);
}

}  // namespace

std::size_t round_up(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

void* reserve_range(std::size_t size, bool accessible, bool shared) {
  const int protection = accessible ? PROT_READ | PROT_WRITE : PROT_NONE;
  const int flags = MAP_ANONYMOUS | MAP_NORESERVE | (shared ? MAP_SHARED : MAP_PRIVATE);
  void* base = mmap(nullptr, std::max<std::size_t>(size, 1), protection, flags, -1, 0);
  return base == MAP_FAILED ? nullptr : base;
}

void release_range(void* base, std::size_t size) { munmap(base, std::max<std::size_t>(size, 1)); }

void memory_insert(const Block& block) {
  const std::lock_guard lock(Driver::instance().mutex);
  Block copy = block;
  copy.id = registry().next_id++;
  registry().blocks[copy.base] = copy;
}

Block* memory_find(CUdeviceptr address) {
  const std::lock_guard lock(Driver::instance().mutex);
  auto& blocks = registry().blocks;
  auto after = blocks.upper_bound(address);
  if (after == blocks.begin()) return nullptr;
  Block& block = std::prev(after)->second;
  return address < block.base + std::max<std::size_t>(block.size, 1) ? &block : nullptr;
}

bool memory_erase(CUdeviceptr base, Block* erased) {
  const std::lock_guard lock(Driver::instance().mutex);
  const auto found = registry().blocks.find(base);
  if (found == registry().blocks.end()) return false;
  *erased = found->second;
  registry().blocks.erase(found);
  return true;
}

CUresult memory_allocate(Context* context, std::size_t size, CUdeviceptr* out) {
  if (out == nullptr || size == 0) return kInvalidValue;
  const std::lock_guard lock(Driver::instance().mutex);
  if (const CUresult r = charge_block(context->gpu, size); r != kSuccess) return r;
  Block block;
  block.size = size;
  block.context = context;
  block.gpu = context->gpu;
  block.backed = size <= kBackedLimit;
  block.base = reinterpret_cast<std::uintptr_t>(reserve_range(size, block.backed));
  if (block.base == 0) {
    refund_block(context->gpu, size);
    return kOutOfMemory;
  }
  memory_insert(block);
  *out = block.base;
  return kSuccess;
}

CUresult memory_free(CUdeviceptr address) {
  if (address == 0) return kSuccess;
  const std::lock_guard lock(Driver::instance().mutex);
  Block* found = memory_find(address);
  if (found == nullptr || found->base != address) return kInvalidValue;
  if (found->kind == BlockKind::graph) {
    // The address belongs to the graph; only the memory goes back.
    graph_memory_free(found->gpu, found->size);
    return kSuccess;
  }
  if (found->kind != BlockKind::device && found->kind != BlockKind::managed &&
      found->kind != BlockKind::pool)
    return kInvalidValue;
  Block block;
  memory_erase(address, &block);
  dispose(block);
  return kSuccess;
}

void memory_release_context(Context* context) {
  const std::lock_guard lock(Driver::instance().mutex);
  std::vector<std::uintptr_t> mine;
  for (const auto& [base, block] : registry().blocks)
    if (block.context == context && block.kind != BlockKind::mapped) mine.push_back(base);
  for (const std::uintptr_t base : mine) {
    Block block;
    memory_erase(base, &block);
    dispose(block);
  }
}

std::byte* memory_bytes(CUdeviceptr address, std::size_t size, bool* bad) {
  *bad = false;
  Block* block = memory_find(address);
  // Not ours: the program's own memory, which the unified address space lets it pass here.
  if (block == nullptr) return reinterpret_cast<std::byte*>(address);
  if (address + size > block->base + block->size) {
    // Neighbouring mappings of one reserved range form one piece.
    const Block* end = memory_find(address + size - 1);
    *bad = block->kind != BlockKind::mapped || end == nullptr || end->kind != BlockKind::mapped;
    if (*bad) return nullptr;
  }
  return block->backed ? reinterpret_cast<std::byte*>(address) : nullptr;
}

void memory_touch(CUdeviceptr address, std::size_t size) {
  const std::lock_guard lock(Driver::instance().mutex);
  Block* block = memory_find(address);
  if (block == nullptr || block->kind != BlockKind::managed) return;
  const std::uint64_t wanted = std::min(round_up(block->size, kGranularity),
                                        std::max(block->resident, round_up(size, kGranularity)));
  // Managed memory that finds no room stays on the host: never an error.
  if (wanted > block->resident &&
      Driver::instance().charge(block->gpu, wanted - block->resident) == kSuccess)
    block->resident = wanted;
}

bool memory_forget(CUdeviceptr address, std::size_t size) {
  const std::lock_guard lock(Driver::instance().mutex);
  const Block* block = memory_find(address);
  if (block == nullptr || block->kind != BlockKind::managed || block->base != address ||
      block->size != size)
    return false;
  return madvise(reinterpret_cast<void*>(block->base), block->size, MADV_DONTNEED) == 0;
}

Block* memory_share(CUdeviceptr address, const char* path) {
  const std::lock_guard lock(Driver::instance().mutex);
  Block* block = memory_find(address);
  if (block == nullptr || block->kind != BlockKind::device) return nullptr;
  if (!block->backed) return block;
  const int fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) return nullptr;
  struct stat state_mode {};
  const bool known = stat(Driver::instance().state().path().c_str(), &state_mode) == 0;
  const std::size_t size = round_up(block->size, 4096);
  bool ok = known && fchmod(fd, state_mode.st_mode & 0666) == 0 &&
            ftruncate(fd, static_cast<off_t>(size)) == 0;
  void* memory = ok ? mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  ok = memory != MAP_FAILED;
  if (ok) {
    std::memcpy(memory, reinterpret_cast<const void*>(block->base), block->size);
    void* const base = reinterpret_cast<void*>(block->base);
    ok = mmap(base, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == base;
    munmap(memory, size);
  }
  close(fd);
  if (!ok) unlink(path);
  return ok ? block : nullptr;
}

}  // namespace aliquot::standin
