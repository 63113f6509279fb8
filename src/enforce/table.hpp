// A growing hash table from a non-zero number (an address, a handle) to a small record, in memory
// of its own: the program's malloc may be replaced, or be what called us. Open addressing; removal
// leaves no tombstones. The caller locks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace aliquot::enforce {

struct Record {
  std::uint64_t key;  // 0 = free place
  std::uint64_t size;
  std::uint64_t owner;
  std::int32_t gpu;
  std::uint32_t kind;
};

class Table {
 public:
  // False when there is no memory for it.
  bool insert(const Record& record);
  Record* find(std::uint64_t key);
  bool remove(std::uint64_t key, Record* removed);
  // For walking: record(i) is in use when its key is not 0. After remove_at(i) look at i again.
  [[nodiscard]] std::size_t places() const { return places_; }
  Record& at(std::size_t place) { return records_[place]; }
  void remove_at(std::size_t place);
  [[nodiscard]] std::size_t size() const { return count_; }
  // Forgets everything, memory included: what was there may be half written.
  void reset() { *this = Table{}; }

 private:
  [[nodiscard]] std::size_t home_of(std::uint64_t key) const;
  bool grow();

  Record* records_ = nullptr;
  std::size_t places_ = 0;  // a power of two
  std::size_t count_ = 0;
};

}  // namespace aliquot::enforce
