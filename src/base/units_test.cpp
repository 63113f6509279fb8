#include "base/units.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <type_traits>
#include <unordered_set>

namespace aliquot {
namespace {

static_assert(std::is_trivially_copyable_v<Bytes> && sizeof(Bytes) == sizeof(std::int64_t));
static_assert(!std::is_convertible_v<std::int64_t, Bytes>);
static_assert(!std::is_convertible_v<Bytes, Compute>);
static_assert(gib(8) == mib(8192) && mib(1) == Bytes(1 << 20));
static_assert(kWholeGpu - Compute(2500) == Compute(7500));
static_assert(gib(80) / gib(8) == 10);

constexpr std::int64_t kMostUnits = std::numeric_limits<std::int64_t>::max();

TEST(Units, CheckedArithmeticRefusesOverflow) {
  EXPECT_EQ(checked_add(Bytes(1), Bytes(2)), Bytes(3));
  EXPECT_EQ(checked_add(Bytes(kMostUnits), Bytes(1)), std::nullopt);
  EXPECT_EQ(checked_mul(Bytes(3), 4), Bytes(12));
  EXPECT_EQ(checked_mul(Bytes(kMostUnits / 2), 3), std::nullopt);
}

TEST(UnitsDeathTest, OperatorsTerminateOnOverflow) {
  EXPECT_DEATH(Bytes(kMostUnits) + Bytes(1), "");
  EXPECT_DEATH(Bytes(-2) - Bytes(kMostUnits), "");
  EXPECT_DEATH(Bytes(kMostUnits) * 2, "");
}

TEST(Units, ProportionsRoundAsAsked) {
  EXPECT_EQ(scale_down(gib(80), 2500, kWholeGpu.value()), gib(20));
  EXPECT_EQ(scale_down(Bytes(10), 1, 3), Bytes(3));
  EXPECT_EQ(scale_up(Bytes(10), 1, 3), Bytes(4));
  EXPECT_EQ(scale_down(Bytes(kMostUnits), kMostUnits, kMostUnits), Bytes(kMostUnits));
}

TEST(Units, PrintAsTheirNumberAndHash) {
  EXPECT_EQ(fmt::format("{} {:>6}", kib(1), Compute(25)), "1024     25");
  EXPECT_TRUE(std::unordered_set<Bytes>{kib(1)}.contains(Bytes(1024)));
}

RC_GTEST_PROP(UnitsProperty, ScalingUpCoversScalingDown, ()) {
  const auto amount = Bytes(*rc::gen::inRange<std::int64_t>(0, kMostUnits));
  const auto share = *rc::gen::inRange<std::int64_t>(0, kWholeGpu.value() + 1);
  const auto low = scale_down(amount, share, kWholeGpu.value());
  const auto high = scale_up(amount, share, kWholeGpu.value());
  RC_ASSERT(low <= high && high - low <= Bytes(1) && high <= amount);
}

}  // namespace
}  // namespace aliquot
