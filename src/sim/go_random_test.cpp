#include "sim/go_random.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>

namespace aliquot::sim {
namespace {

using ::testing::ElementsAre;

// What every program in Go that forgot to seed has printed: rand.Intn(100), ten times.
TEST(GoRandom, DrawsAsGoDoes) {
  GoRandom random(1);
  std::vector<std::uint32_t> drawn(10);
  std::ranges::generate(drawn, [&] { return random.below(100); });
  EXPECT_THAT(drawn, ElementsAre(81, 87, 47, 59, 81, 18, 25, 40, 56, 0));
}

TEST(GoRandom, SeedsCountModuloTheirGeneratorsPrime) {
  EXPECT_EQ(GoRandom(0x7fffffff).permutation(20), GoRandom(0).permutation(20));
  EXPECT_EQ(GoRandom(0x7fffffff + 5ULL).permutation(20), GoRandom(5).permutation(20));
  EXPECT_NE(GoRandom(1).permutation(20), GoRandom(2).permutation(20));
}

RC_GTEST_PROP(GoRandom, KeepsWhatItShuffles, (std::vector<int> items, std::uint64_t seed)) {
  auto shuffled = items;
  GoRandom(seed).shuffle(shuffled);
  RC_ASSERT(std::is_permutation(items.begin(), items.end(), shuffled.begin(), shuffled.end()));
}

RC_GTEST_PROP(GoRandom, PermutesAllNumbers, (std::uint64_t seed)) {
  auto numbers = GoRandom(seed).permutation(*rc::gen::inRange<std::uint32_t>(0, 1'000));
  std::vector<std::uint32_t> all(numbers.size());
  std::iota(all.begin(), all.end(), 0U);
  std::ranges::sort(numbers);
  RC_ASSERT(numbers == all);
}

RC_GTEST_PROP(GoRandom, StaysBelow, (std::uint64_t seed)) {
  const auto count = *rc::gen::inRange<std::uint32_t>(1, 0x7fffffff);
  RC_ASSERT(GoRandom(seed).below(count) < count);
}

}  // namespace
}  // namespace aliquot::sim
