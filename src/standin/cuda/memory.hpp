// Addresses of this process that stand for device memory. A block is a reserved range of the
// process's own address space; a block of at most kBackedLimit bytes is also readable and writable
// by the simulated GPU, and takes host memory only for the pages that are touched. Larger ones have
// a size but no content: writes to them are dropped and reads give zeros. What a block costs
// follows the H200: pieces of up to 1 MiB come out of shared 2 MiB slabs, larger ones are rounded
// up to 2 MiB.
#pragma once

#include <cstddef>
#include <cstdint>

#include "standin/abi/cuda.hpp"

namespace aliquot::standin {

inline constexpr std::size_t kBackedLimit = 256UL << 20;
inline constexpr std::size_t kGranularity = 2UL << 20;
inline constexpr std::size_t kSmallLimit = 1UL << 20;
inline constexpr std::size_t kPitchAlignment = 512;

enum class BlockKind { device, managed, host, pool, graph, mapped, imported };

struct Block {
  std::uintptr_t base = 0;
  std::size_t size = 0;
  BlockKind kind = BlockKind::device;
  Context* context = nullptr;
  unsigned gpu = 0;
  bool backed = false;
  bool registered = false;     // the program's own memory, only made known to us
  std::uint64_t resident = 0;  // managed memory: bytes charged so far
  Pool* pool = nullptr;
  unsigned long long id = 0;
  std::uint64_t mapping = 0;  // VMM: the allocation that is mapped here
  std::uint64_t shared = 0;   // its number among the memory that others can hold
  int fd = -1;                // with which this process holds it
};

[[nodiscard]] std::size_t round_up(std::size_t value, std::size_t to);

// Address space only; zero when there is none. `shared` memory can be mapped a second time.
[[nodiscard]] void* reserve_range(std::size_t size, bool accessible, bool shared = false);
void release_range(void* base, std::size_t size);

// Adds, finds (also by an address inside) and forgets. The driver's mutex is taken inside.
void memory_insert(const Block& block);
[[nodiscard]] Block* memory_find(CUdeviceptr address);
bool memory_erase(CUdeviceptr base, Block* erased);
// Lets go of imported memory.
bool memory_close(CUdeviceptr address);

// What cuMemAlloc and cuMemFree do.
CUresult memory_allocate(Context* context, std::size_t size, CUdeviceptr* out);
// Pool memory freed on a stream is free when the stream gets there.
CUresult memory_free(CUdeviceptr address, Stream* stream = nullptr);
void memory_release_context(Context* context);

// The bytes behind an address range, or null where there is no content. Sets *bad when the range
// starts in a block and leaves it.
[[nodiscard]] std::byte* memory_bytes(CUdeviceptr address, std::size_t size, bool* bad);
// Managed memory becomes resident, and is charged, when the GPU touches it.
void memory_touch(CUdeviceptr address, std::size_t size);

// Zeroes all of a managed block by giving its pages back, so that programs that clear gigabytes
// take no host memory for it. False when the range is not one.
bool memory_forget(CUdeviceptr address, std::size_t size);

// A mapping of a VMM allocation that has no address: a piece of a sparse array. False when there is
// no such handle.
bool vmm_hold(CUmemGenericAllocationHandle handle);
void vmm_drop(CUmemGenericAllocationHandle handle);

// Makes a device block shareable between processes in place; null when it cannot be.
[[nodiscard]] Block* memory_share(CUdeviceptr address);

}  // namespace aliquot::standin
