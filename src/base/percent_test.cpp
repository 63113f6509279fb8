#include "base/percent.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>

namespace aliquot {
namespace {

std::string error_of(std::string_view text) {
  const auto percent = parse_percent(text);
  return percent ? "none" : percent.error().message;
}

TEST(Percent, ReadsBasisPoints) {
  EXPECT_EQ(parse_percent("25%"), Compute(2500));
  EXPECT_EQ(parse_percent("25"), Compute(2500));
  EXPECT_EQ(parse_percent("0.5%"), Compute(50));
  EXPECT_EQ(parse_percent("12.34%"), Compute(1234));
  EXPECT_EQ(parse_percent("0.01"), Compute(1));
  EXPECT_EQ(parse_percent("100%"), kWholeGpu);
}

TEST(Percent, RefusalsSayWhatToDo) {
  EXPECT_EQ(error_of("0%"), "'0%' of a GPU is nothing: write more than 0 and at most 100%");
  EXPECT_EQ(error_of("-5%"), "'-5%' of a GPU is nothing: write more than 0 and at most 100%");
  EXPECT_EQ(error_of("150%"),
            "'150%' is more than one GPU: write at most 100%, or ask for several GPUs");
  EXPECT_EQ(error_of("99999999999999999999"),
            "'99999999999999999999' is more than one GPU: write at most 100%, or ask for several "
            "GPUs");
  EXPECT_EQ(error_of("1.234%"),
            "'1.234%' is finer than a hundredth of a percent: write at most two decimals");
  for (const auto* junk : {"", "%", "-", "a quarter", "25%%", "1.", ".5", "1.x", "25 %", "1,5%"}) {
    EXPECT_NE(error_of(junk).find("is not a percentage"), std::string::npos) << junk;
  }
}

TEST(Percent, PrintsShort) {
  EXPECT_EQ(format_percent(Compute(2500)), "25%");
  EXPECT_EQ(format_percent(Compute(50)), "0.5%");
  EXPECT_EQ(format_percent(Compute(1234)), "12.34%");
  EXPECT_EQ(format_percent(Compute(0)), "0%");
  EXPECT_EQ(format_percent(kWholeGpu * 2), "200%");
  EXPECT_EQ(format_percent(Compute(-1050)), "-10.5%");
  EXPECT_EQ(format_percent(Compute(std::numeric_limits<std::int64_t>::min())),
            "-92233720368547758.08%");
}

RC_GTEST_PROP(PercentProperty, PrintedPercentagesReadBack, ()) {
  const auto share = Compute(*rc::gen::inRange<std::int64_t>(1, kWholeGpu.value() + 1));
  RC_ASSERT(parse_percent(format_percent(share)) == share);
}

RC_GTEST_PROP(PercentProperty, AnyTextIsAShareOrOneLine, (const std::string& text)) {
  const auto share = parse_percent(text);
  RC_ASSERT((share ? *share > Compute(0) && *share <= kWholeGpu
                   : share.error().message.find('\n') == std::string::npos));
}

}  // namespace
}  // namespace aliquot
