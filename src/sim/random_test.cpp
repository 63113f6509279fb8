#include "sim/random.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>

namespace aliquot::sim {
namespace {

using ::testing::ElementsAre;

// Published figures hang on this: the same seed must mean the same order everywhere and for ever.
TEST(Random, IsTheSameEverywhere) {
  std::vector<int> items = {0, 1, 2, 3, 4, 5, 6, 7};
  Random random(42);
  random.shuffle(items);
  EXPECT_THAT(items, ElementsAre(7, 0, 5, 1, 2, 4, 3, 6));
}

TEST(Random, FavoursNobody) {
  Random random(1);
  std::array<int, 3> counts = {};
  for (int i = 0; i < 30'000; ++i) ++counts[random.below(3)];
  for (const int count : counts) EXPECT_NEAR(count, 10'000, 400);
  std::array<int, 6> orders = {};
  for (int i = 0; i < 60'000; ++i) {
    std::vector<int> items = {0, 1, 2};
    random.shuffle(items);
    ++orders[static_cast<std::size_t>(items[0] * 2 + (items[1] > items[2] ? 1 : 0))];
  }
  for (const int count : orders) EXPECT_NEAR(count, 10'000, 400);
}

RC_GTEST_PROP(Random, KeepsWhatItShuffles, (std::vector<int> items, std::uint64_t seed)) {
  auto shuffled = items;
  Random(seed).shuffle(shuffled);
  RC_ASSERT(std::is_permutation(items.begin(), items.end(), shuffled.begin(), shuffled.end()));
}

RC_GTEST_PROP(Random, StaysBelow, (std::uint64_t seed)) {
  const auto count = *rc::gen::nonZero<std::uint64_t>();
  RC_ASSERT(Random(seed).below(count) < count);
}

}  // namespace
}  // namespace aliquot::sim
