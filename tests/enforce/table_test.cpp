#include "enforce/table.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <vector>

namespace aliquot::enforce {
namespace {

// Against std::map, over any order of insertions and removals, keys close together and far apart.
RC_GTEST_PROP(Table, holds_what_a_map_holds,
              (const std::vector<std::pair<bool, std::uint16_t>>& steps)) {
  Table table;
  std::map<std::uint64_t, std::uint64_t> model;
  std::uint64_t value = 0;
  for (const auto& [insert, number] : steps) {
    const std::uint64_t key = (number % 300 + 1ULL) << (number % 3 == 0 ? 21 : 4);
    Record removed{};
    if (insert) {
      RC_ASSERT(table.insert({key, ++value, 0, 0, 0}));
      model[key] = value;
    } else {
      RC_ASSERT(table.remove(key, &removed) == (model.count(key) == 1));
      if (model.erase(key) == 1) RC_ASSERT(removed.key == key);
    }
    RC_ASSERT(table.size() == model.size());
  }
  for (const auto& [key, expected] : model) {
    const Record* found = table.find(key);
    RC_ASSERT(found != nullptr);
    RC_ASSERT(found->size == expected);
  }
}

TEST(TableOfBlocks, removed_while_walking_loses_and_keeps_the_right_ones) {
  Table table;
  for (std::uint64_t i = 1; i <= 10'000; ++i) ASSERT_TRUE(table.insert({i * 512, i, i % 3, 0, 0}));
  for (std::size_t place = 0; place < table.places();)
    if (table.at(place).key != 0 && table.at(place).owner == 1)
      table.remove_at(place);
    else
      ++place;
  for (std::uint64_t i = 1; i <= 10'000; ++i)
    ASSERT_EQ(table.find(i * 512) != nullptr, i % 3 != 1) << i;
}

}  // namespace
}  // namespace aliquot::enforce
