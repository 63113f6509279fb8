#include "base/percent.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <map>
#include <string>

namespace aliquot {
namespace {

std::string error_of(std::string_view text) {
  const auto percent = parse_percent(text);
  return percent ? "none" : percent.error().message;
}

TEST(Percent, ReadsBasisPoints) {
  const std::map<std::string, std::int64_t> texts = {
      {"25%", 2500}, {"25", 2500}, {"0.5%", 50}, {"12.34%", 1234}, {"0.01", 1}, {"100%", 10'000}};
  for (const auto& [text, points] : texts) EXPECT_EQ(parse_percent(text), Compute(points)) << text;
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
  const std::map<std::int64_t, std::string> texts = {
      {2500, "25%"},
      {50, "0.5%"},
      {1234, "12.34%"},
      {0, "0%"},
      {20'000, "200%"},
      {-1050, "-10.5%"},
      {std::numeric_limits<std::int64_t>::min(), "-92233720368547758.08%"}};
  for (const auto& [points, text] : texts) EXPECT_EQ(format_percent(Compute(points)), text);
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
