#include "base/text.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>

namespace aliquot {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

TEST(Text, DigitsAreDigitsOnly) {
  EXPECT_EQ(parse_digits("0042"), 42);
  EXPECT_EQ(parse_digits("9223372036854775807"), kMax);
  for (const auto* junk : {"", "-1", "+1", " 1", "1 ", "1.0", "0x1", "9223372036854775808"}) {
    EXPECT_EQ(parse_digits(junk), std::nullopt) << junk;
  }
}

TEST(Text, DecimalsAreRoundedDown) {
  EXPECT_EQ(parse_decimal("1.5", 1024), 1536);
  EXPECT_EQ(parse_decimal("0.999999999", 10), 9);
  EXPECT_EQ(parse_decimal("7", 100), 700);
  for (const auto* junk : {"", ".", ".5", "1.", "1.2.3", "1.0000000000", "9223372036854775807.1"}) {
    EXPECT_EQ(parse_decimal(junk, 100), std::nullopt) << junk;
  }
}

TEST(Text, SplitKeepsEmptyParts) {
  EXPECT_EQ(split("a,,b", ','), (std::vector<std::string_view>{"a", "", "b"}));
  EXPECT_EQ(split("", ','), (std::vector<std::string_view>{""}));
  EXPECT_EQ(split("a,", ','), (std::vector<std::string_view>{"a", ""}));
}

TEST(Text, CaseIsIgnoredInAscii) {
  EXPECT_TRUE(equals_ignoring_case("UNLIMITED", "unlimited"));
  EXPECT_FALSE(equals_ignoring_case("unlimite", "unlimited"));
  EXPECT_EQ(to_lower("GiB"), "gib");
}

TEST(Text, QuotedIsOneShortLine) {
  EXPECT_EQ(quote("8X"), "'8X'");
  EXPECT_EQ(quote("a\nb\x1b"), "'a\\x0ab\\x1b'");
  EXPECT_LT(quote(std::string(10'000, 'x')).size(), 80U);
  EXPECT_EQ(quote(std::string(59, 'x') + "ää"), "'" + std::string(59, 'x') + "…'");
}

RC_GTEST_PROP(TextProperty, NumbersReadBack, ()) {
  const auto number = *rc::gen::inRange<std::int64_t>(0, kMax);
  RC_ASSERT(parse_digits(std::to_string(number)) == number);
  RC_ASSERT(parse_decimal(std::to_string(number), 1) == number);
}

RC_GTEST_PROP(TextProperty, JoiningASplitGivesTheText, (const std::string& text)) {
  std::string joined;
  for (const auto part : split(text, ',')) joined.append(part).push_back(',');
  joined.pop_back();
  RC_ASSERT(joined == text);
}

TEST(Text, APlainLineSteersNoTerminal) {
  for (const char* good : {"", "train 7", "naïve", "数据", "🚀 a%j ../$(x)`;", "\xc2\xa0"}) {
    EXPECT_TRUE(is_plain_line(good)) << good;
  }
  for (const char* bad : {"a\nb", "a\tb", "\x1b[2J", "\x7f",
                          "\xc2\x9b"
                          "2J",
                          "\x9b", "\xff", "\xc0\x8a", "\xe0\x80\x8a", "\xed\xa0\x80",
                          "\xf4\x90\x80\x80", "\xe2\x82", "a\xc3"}) {
    EXPECT_FALSE(is_plain_line(bad)) << bad;
  }
  EXPECT_FALSE(is_plain_line(std::string_view("a\0b", 3)));
}

TEST(Text, AFilesNameMayBeAnyBytesButThoseThatSteer) {
  for (const char* good : {"", "/home/ann/a b", "naïve", "caf\xe9/x", "\xff\xfe"}) {
    EXPECT_FALSE(steers_terminal(good)) << good;
  }
  for (const char* bad : {"a\nb", "/tmp/\x1b[2J", "\x7f", "\xc2\x9b", "\x9b", "\xe2\x82"}) {
    EXPECT_TRUE(steers_terminal(bad)) << bad;
  }
}

RC_GTEST_PROP(TextProperty, WhatIsMadePlainIsPlain, (const std::string& text)) {
  RC_ASSERT(is_plain_line(make_plain(text)));
  RC_ASSERT(is_plain_line(quote(text)));
  if (is_plain_line(text)) RC_ASSERT(make_plain(text) == text);
}

}  // namespace
}  // namespace aliquot
