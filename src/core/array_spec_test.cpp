#include "core/array_spec.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <set>

namespace aliquot::core {
namespace {

std::string canonical(std::string_view text) {
  const auto array = parse_array(text);
  return array ? format_array(*array) : "error: " + array.error().message;
}

TEST(ArraySpec, ReadsWhatSlurmReads) {
  EXPECT_EQ(parse_array("0-15:4%2,20")->tasks, (std::vector<std::int64_t>{0, 4, 8, 12, 20}));
  EXPECT_EQ(parse_array("0-15:4%2,20")->limit, 2);
  const std::map<std::string_view, std::string_view> canonical_texts{
      {"1-6%2", "1-6%2"},
      {"6,1,2,3,4,5", "1-6"},
      {"0-15:4", "0,4,8,12"},
      {"0-23:4", "0-20:4"},
      {"[1-3]", "1-3"},
      {"1,3", "1,3"},
      {"5", "5"},
      {"5-5", "5"},
      {"3,3,3", "3"},
      {"1-3,7,9-10%4", "1-3,7,9-10%4"}};
  for (const auto& [text, shortest] : canonical_texts) EXPECT_EQ(canonical(text), shortest);
}

TEST(ArraySpec, RefusesTheRest) {
  for (const char* text : {"", "a-b", "1-", "-1", "3-1", "1:2", "1-5:0", "1,,2", "1-6%", "1%x",
                           "4000001", "0-4000000", "99999999999999999999", "1 2", "%2"}) {
    EXPECT_FALSE(parse_array(text)) << text;
  }
}

RC_GTEST_PROP(ArraySpec, IsReadBack, (const std::set<std::uint16_t>& tasks, std::uint8_t limit)) {
  RC_PRE(!tasks.empty());
  ArraySpec array;
  array.tasks.assign(tasks.begin(), tasks.end());
  array.limit = limit;
  const auto back = parse_array(format_array(array));
  RC_ASSERT(back.has_value());
  RC_ASSERT(*back == array);
}

}  // namespace
}  // namespace aliquot::core
