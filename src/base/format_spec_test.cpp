#include "base/format_spec.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace aliquot {
namespace {

TEST(FormatSpec, ReadsLetters) {
  EXPECT_EQ(
      parse_letter_format("%.18i %8j|%R"),
      (LetterFormat{
          "",
          {{"i", 18, Align::right, " "}, {"j", 8, Align::left, "|"}, {"R", 0, Align::left, ""}}}));
  EXPECT_EQ(parse_letter_format("job=%i\\x1f"),
            (LetterFormat{"job=", {{"i", 0, Align::left, "\\x1f"}}}));
}

TEST(FormatSpec, ReadsNames) {
  EXPECT_EQ(parse_name_format("jobarrayid:.18 ,state,tres-alloc:60,JobID:,Account:\x1f"),
            (std::vector<FieldSpec>{{"jobarrayid", 18, Align::right, " "},
                                    {"state", 20, Align::left, ""},
                                    {"tres-alloc", 60, Align::left, ""},
                                    {"JobID", 0, Align::left, ""},
                                    {"Account", 0, Align::left, "\x1f"}}));
}

TEST(FormatSpec, ReadsAccountingFields) {
  EXPECT_EQ(parse_accounting_format("jobid,state%20,alloctres%-40"),
            (std::vector<AccountingField>{{"jobid", std::nullopt, std::nullopt},
                                          {"state", 20, Align::right},
                                          {"alloctres", 40, Align::left}}));
}

TEST(FormatSpec, TakesTextsWithoutFields) {
  EXPECT_EQ(parse_letter_format(""), (LetterFormat{"", {}}));
  EXPECT_EQ(parse_letter_format("none"), (LetterFormat{"none", {}}));
  EXPECT_EQ(parse_name_format(""), std::vector<FieldSpec>());
  EXPECT_EQ(parse_name_format("a,,b,")->size(), 2U);
  EXPECT_EQ(parse_accounting_format(",a,,b")->size(), 2U);
  for (const auto* none : {"a%", "a%-", "a%x", "a%0"}) {
    EXPECT_EQ(parse_accounting_format(none)->at(0).width, 0U) << none;
  }
}

TEST(FormatSpec, RefusesJunkInOneLine) {
  for (const auto* junk : {"%", "%.", "%.8", "%i %", "%99999999i", "%99999999999999999999i"}) {
    EXPECT_FALSE(parse_letter_format(junk).has_value()) << junk;
  }
  for (const auto* junk : {":20", "a:99999999"}) {
    EXPECT_FALSE(parse_name_format(junk).has_value()) << junk;
  }
  for (const auto* junk : {"%20", "a%2x", "a%99999999"}) {
    EXPECT_FALSE(parse_accounting_format(junk).has_value()) << junk;
  }
  EXPECT_EQ(parse_accounting_format("state%2x").error().message,
            "the width '2x' in the format 'state%2x' is none: write 1 to 65536");
}

RC_GTEST_PROP(FormatSpecProperty, PrintedLetterFormatsReadBack, ()) {
  const auto literal = rc::gen::container<std::string>(rc::gen::element(' ', '|', 'x', '7', '.'));
  LetterFormat format{*literal, {}};
  std::string text = format.prefix;
  const auto count = *rc::gen::inRange(1, 10);
  for (int i = 0; i < count; ++i) {
    FieldSpec field{std::string(1, *rc::gen::inRange('A', 'Z')),
                    *rc::gen::inRange<std::size_t>(1, 99),
                    *rc::gen::element(Align::left, Align::right), *literal};
    text += fmt::format("%{}{}{}{}", field.align == Align::right ? "." : "", field.width,
                        field.name, field.suffix);
    format.fields.push_back(std::move(field));
  }
  RC_ASSERT(parse_letter_format(text) == format);
}

}  // namespace
}  // namespace aliquot
