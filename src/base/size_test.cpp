#include "base/size.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>

namespace aliquot {
namespace {

constexpr std::int64_t kMostBytes = std::numeric_limits<std::int64_t>::max();

TEST(Size, ReadsWhatSlurmReads) {
  EXPECT_EQ(parse_size("512"), mib(512));
  EXPECT_EQ(parse_size("0"), Bytes(0));
  EXPECT_EQ(parse_size("4096K"), mib(4));
  EXPECT_EQ(parse_size("8G"), gib(8));
  EXPECT_EQ(parse_size("2t"), gib(2048));
  EXPECT_EQ(parse_size("8GB"), gib(8));
  EXPECT_EQ(parse_size("8gib"), gib(8));
  EXPECT_EQ(parse_size("1.5G"), mib(1536));
  EXPECT_EQ(parse_size("0.5"), kib(512));
  EXPECT_EQ(parse_size("100B"), Bytes(100));
}

TEST(Size, RefusesJunkInOneLine) {
  for (const auto* junk : {"", "G", "-1G", "+1", "8 G", "8X", "8Gi", "8GG", "1e3", "1.G", ".5G",
                           "1.5B", "0x10", "1.2.3G", "eight"}) {
    const auto size = parse_size(junk);
    ASSERT_FALSE(size.has_value()) << junk;
    EXPECT_EQ(size.error().code, Error::Code::invalid_argument) << junk;
  }
  EXPECT_EQ(parse_size("8X").error().message,
            "'8X' is not a memory size: write a number with K, M, G or T, such as 8G or 512M");
}

TEST(Size, RefusesWhatCannotBeHeld) {
  EXPECT_EQ(parse_size("8388607T"), gib(1024) * 8388607);
  for (const auto* large : {"8388608T", "9223372036854775807", "99999999999999999999999G"}) {
    const auto size = parse_size(large);
    ASSERT_FALSE(size.has_value()) << large;
    EXPECT_EQ(size.error().code, Error::Code::out_of_range) << large;
  }
}

TEST(Size, PrintsExactly) {
  EXPECT_EQ(format_size(gib(8)), "8G");
  EXPECT_EQ(format_size(mib(1536)), "1536M");
  EXPECT_EQ(format_size(kib(4720)), "4720K");
  EXPECT_EQ(format_size(gib(1024)), "1T");
  EXPECT_EQ(format_size(Bytes(100)), "100B");
  EXPECT_EQ(format_size(Bytes(0)), "0");
  EXPECT_EQ(format_size(Bytes(0) - mib(3)), "-3M");
}

RC_GTEST_PROP(SizeProperty, PrintedSizesReadBack, ()) {
  const auto shift = *rc::gen::inRange(0, 50);
  const auto size = Bytes((*rc::gen::inRange<std::int64_t>(0, kMostBytes) >> shift) << (shift / 2));
  RC_ASSERT(parse_size(format_size(size)) == size);
}

RC_GTEST_PROP(SizeProperty, MoreIsMore, ()) {
  const auto low = *rc::gen::inRange(0, 1'000'000);
  const auto high = *rc::gen::inRange(low, 1'000'001);
  const std::string unit = *rc::gen::element<std::string>("", "K", "M", "GiB", "t");
  RC_ASSERT(parse_size(std::to_string(low) + unit).value() <=
            parse_size(std::to_string(high) + unit).value());
}

RC_GTEST_PROP(SizeProperty, AnyTextIsASizeOrOneLine, (const std::string& text)) {
  const auto size = parse_size(text);
  RC_ASSERT((size ? *size >= Bytes(0) : size.error().message.find('\n') == std::string::npos));
}

}  // namespace
}  // namespace aliquot
