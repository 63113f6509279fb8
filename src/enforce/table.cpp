#include "enforce/table.hpp"

#include <sys/mman.h>

namespace aliquot::enforce {

std::size_t Table::home_of(std::uint64_t key) const {
  return ((key * 0x9E3779B97F4A7C15ULL) >> 20) & (places_ - 1);
}

Record* Table::find(std::uint64_t key) {
  if (count_ == 0 || key == 0) return nullptr;
  for (std::size_t i = home_of(key);; i = (i + 1) & (places_ - 1)) {
    if (records_[i].key == key) return &records_[i];
    if (records_[i].key == 0) return nullptr;
  }
}

bool Table::insert(const Record& record) {
  if ((count_ + 1) * 2 > places_ && !grow()) return false;
  std::size_t i = home_of(record.key);
  while (records_[i].key != 0 && records_[i].key != record.key) i = (i + 1) & (places_ - 1);
  if (records_[i].key == 0) ++count_;
  records_[i] = record;
  return true;
}

bool Table::remove(std::uint64_t key, Record* removed) {
  Record* found = find(key);
  if (found == nullptr) return false;
  *removed = *found;
  remove_at(static_cast<std::size_t>(found - records_));
  return true;
}

void Table::remove_at(std::size_t place) {
  // Move up what would not be found any more past the new gap.
  std::size_t gap = place;
  for (std::size_t i = (place + 1) & (places_ - 1); records_[i].key != 0;
       i = (i + 1) & (places_ - 1)) {
    const std::size_t home = home_of(records_[i].key);
    if (((i - home) & (places_ - 1)) < ((i - gap) & (places_ - 1))) continue;
    records_[gap] = records_[i];
    gap = i;
  }
  records_[gap] = {};
  --count_;
}

bool Table::grow() {
  const std::size_t places = places_ == 0 ? 256 : places_ * 2;
  void* memory = mmap(nullptr, places * sizeof(Record), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  Table bigger;
  bigger.records_ = static_cast<Record*>(memory);
  bigger.places_ = places;
  for (std::size_t i = 0; i < places_; ++i)
    if (records_[i].key != 0) (void)bigger.insert(records_[i]);
  if (records_ != nullptr) (void)munmap(records_, places_ * sizeof(Record));
  *this = bigger;
  return true;
}

}  // namespace aliquot::enforce
