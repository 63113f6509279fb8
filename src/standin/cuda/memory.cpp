#include "standin/cuda/memory.hpp"

#include <sys/mman.h>
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

void dispose(const Block& block, Stream* stream = nullptr) {
  switch (block.kind) {
    case BlockKind::device:
      if (block.shared == 0 || block.size <= kSmallLimit) refund_block(block.gpu, block.size);
      break;
    case BlockKind::managed:
      Driver::instance().refund(block.gpu, block.resident, true);
      break;
    case BlockKind::pool:
      pool_give_back(block.pool, block.size, stream);
      break;
    case BlockKind::host:
    case BlockKind::imported:
    case BlockKind::graph:
    case BlockKind::mapped:
      break;
  }
  if (!block.registered) release_range(reinterpret_cast<void*>(block.base), block.size);
  if (block.shared == 0) return;
  if (block.fd >= 0) close(block.fd);
  State& state = Driver::instance().state();
  const State::Guard guard(state);
  if (block.kind == BlockKind::imported)
    state.note_import(block.shared, Driver::instance().slot(), true);
  else
    state.abandon(block.shared);
  state.reap();
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

bool memory_close(CUdeviceptr address) {
  const std::lock_guard lock(Driver::instance().mutex);
  const Block* found = memory_find(address);
  if (found == nullptr || found->kind != BlockKind::imported) return false;
  Block block;
  memory_erase(found->base, &block);
  dispose(block);
  return true;
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

CUresult memory_free(CUdeviceptr address, Stream* stream) {
  if (address == 0) return kSuccess;
  const std::lock_guard lock(Driver::instance().mutex);
  Block* found = memory_find(address);
  if (found == nullptr || found->base != address) return kInvalidValue;
  if (found->kind == BlockKind::graph) {
    // The address belongs to the graph; only the memory goes back.
    graph_memory_free(found->gpu, found->base);
    return kSuccess;
  }
  if (found->kind != BlockKind::device && found->kind != BlockKind::managed &&
      found->kind != BlockKind::pool)
    return kInvalidValue;
  Block block;
  memory_erase(address, &block);
  dispose(block, stream);
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
      Driver::instance().charge(block->gpu, wanted - block->resident, true) == kSuccess)
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

Block* memory_share(CUdeviceptr address) {
  Driver& driver = Driver::instance();
  const std::lock_guard lock(driver.mutex);
  Block* block = memory_find(address);
  if (block == nullptr || block->kind != BlockKind::device) return nullptr;
  if (block->shared != 0) return block;
  const std::size_t size = block->backed ? round_up(block->size, 4096) : 0;
  {
    // A small piece lies in a slab with others, which stays its owner's.
    const std::uint64_t bytes = block->size > kSmallLimit ? round_up(block->size, kGranularity) : 0;
    const State::Guard guard(driver.state());
    block->shared = driver.state().share(driver.slot(), block->gpu, bytes, size);
  }
  if (block->shared == 0) return nullptr;
  block->fd = driver.state().hold_shared(block->shared);
  if (block->fd < 0) return nullptr;
  if (!block->backed) return block;
  const int content = driver.state().open_content(block->shared);
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, content, 0);
  bool ok = memory != MAP_FAILED;
  if (ok) {
    std::memcpy(memory, reinterpret_cast<const void*>(block->base), block->size);
    void* const base = reinterpret_cast<void*>(block->base);
    ok = mmap(base, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, content, 0) == base;
    munmap(memory, size);
  }
  if (content >= 0) close(content);
  return ok ? block : nullptr;
}

}  // namespace aliquot::standin
