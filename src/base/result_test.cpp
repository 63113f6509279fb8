#include "base/result.hpp"

#include <gtest/gtest.h>

#include <memory>

namespace aliquot {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return fail(Error::Code::invalid_argument, "{} is odd", n);
  return n / 2;
}

Result<> must_be_even(int n) {
  TRY(half(n));
  return {};
}

Result<int> quarter(int n) { return TRY(half(TRY(half(n)))); }

Result<std::unique_ptr<int>> boxed_quarter(int n) {
  auto box = TRY([&]() -> Result<std::unique_ptr<int>> { return std::make_unique<int>(n); }());
  TRY(must_be_even(n));
  *box = TRY(quarter(*box));
  return box;
}

TEST(Result, TryHandsTheValueOn) { EXPECT_EQ(quarter(12), 3); }

TEST(Result, TryHandsTheErrorUp) {
  const auto result = quarter(6);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error(), (Error{Error::Code::invalid_argument, "3 is odd"}));
  EXPECT_EQ(fmt::format("{}", result.error()), "3 is odd");
}

TEST(Result, TryWorksAsAStatement) {
  EXPECT_TRUE(must_be_even(2).has_value());
  EXPECT_FALSE(must_be_even(3).has_value());
}

TEST(Result, TryMovesWhatCannotBeCopied) { EXPECT_EQ(**boxed_quarter(8), 2); }

TEST(Result, TryOnANamedResultLeavesItWhole) {
  const auto twice = [](const Result<std::string>& text) -> Result<std::string> {
    return TRY(text) + TRY(text);
  };
  EXPECT_EQ(twice(Result<std::string>("ab")), "abab");
}

}  // namespace
}  // namespace aliquot
