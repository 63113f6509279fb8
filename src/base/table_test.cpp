#include "base/table.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

namespace aliquot {
namespace {

Column right(std::string header, std::size_t width) {
  return {std::move(header), width, Align::right, " "};
}

TEST(Table, LooksLikeSqueue) {
  const std::vector<Column> columns{right("JOBID", 18), right("PARTITION", 9),
                                    right("NAME", 8),   right("USER", 8),
                                    right("ST", 2),     right("TIME", 10),
                                    right("NODES", 6),  {"NODELIST(REASON)", 0, Align::left, ""}};
  EXPECT_EQ(
      render_table(columns, {{"7_[1-6%2]", "gpu", "arr", "root", "PD", "0:00", "1", "(Priority)"},
                             {"1", "gpu", "a-long-name", "root", "R", "0:29", "1", "localhost"}}),
      "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n"
      "         7_[1-6%2]       gpu      arr     root PD       0:00      1 (Priority)\n"
      "                 1       gpu a-long-n     root  R       0:29      1 localhost\n");
}

TEST(Table, HeadersAreCutToo) {
  EXPECT_EQ(render_table({right("TIME_LIMIT", 9), {"STATE", 5}}, {{"UNLIMITED", "idle"}}),
            "TIME_LIMI STATE \n"
            "UNLIMITED idle  \n");
}

TEST(Table, LooksLikeSinfo) {
  const std::vector<Column> columns{{"PARTITION", 9},       right("AVAIL", 5),
                                    right("TIMELIMIT", 10), right("NODES", 6),
                                    right("STATE", 6),      {"NODELIST", 0, Align::left, ""}};
  EXPECT_EQ(render_table(columns, {{"gpu*", "up", "infinite", "1", "mix", "localhost"},
                                   {"debug", "up", "30:00", "1", "mix", "localhost"}}),
            "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n"
            "gpu*         up   infinite      1    mix localhost\n"
            "debug        up      30:00      1    mix localhost\n");
}

const std::vector<Column> kSacct{
    {"JobID", 12},          right("JobName", 10), right("Partition", 10), right("Account", 10),
    right("AllocCPUS", 10), right("State", 10),   right("ExitCode", 8)};

TEST(Table, LooksLikeSacct) {
  EXPECT_EQ(render_table(kSacct,
                         {{"22.batch", "batch", "", "root", "1", "FAILED", "3:0"},
                          {"42", "interactive", "gpu", "root", "1", "COMPLETED", "0:0"}},
                         {.too_long = TooLong::plus, .dashes = true, .prefix = ""}),
            "JobID           JobName  Partition    Account  AllocCPUS      State ExitCode \n"
            "------------ ---------- ---------- ---------- ---------- ---------- -------- \n"
            "22.batch          batch                  root          1     FAILED      3:0 \n"
            "42           interacti+        gpu       root          1  COMPLETED      0:0 \n");
}

TEST(Table, WithoutHeaderOrRowsThereIsNothing) {
  EXPECT_EQ(render_table(kSacct, {}, {.header = false, .prefix = ""}), "");
}

TEST(Table, CountsCharactersNotBytes) {
  EXPECT_EQ(render_table({{"ÄÖÜ", 4}}, {{"äöüäöü"}, {"ä"}}), "ÄÖÜ  \näöüä \nä    \n");
  EXPECT_EQ(render_table({{"X", 3}}, {{"äöüä"}}, {.too_long = TooLong::plus, .prefix = ""}),
            "X   \näö+ \n");
}

TEST(TableDeathTest, ARowHasOneCellForEachColumn) {
  EXPECT_DEATH(render_table({{"A", 1}, {"B", 1}}, {{"a"}}), "");
}

RC_GTEST_PROP(TableProperty, EveryLineHasTheSameWidth, ()) {
  const auto text = rc::gen::container<std::string>(rc::gen::inRange(' ', '~'));
  const auto widths = *rc::gen::nonEmpty(
      rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(1, 30)));
  std::vector<Column> columns;
  std::size_t expected = 0;
  for (const auto width : widths) {
    columns.push_back({*text, width, *rc::gen::element(Align::left, Align::right), " "});
    expected += width + 1;
  }
  Row row;
  std::generate_n(std::back_inserter(row), widths.size(), [&] { return *text; });
  const auto out = render_table(
      columns, {row},
      {.too_long = *rc::gen::element(TooLong::cut, TooLong::plus), .dashes = true, .prefix = ""});
  RC_ASSERT(out.size() == 3 * (expected + 1));
  for (std::size_t line = 1; line <= 3; ++line) RC_ASSERT(out[line * (expected + 1) - 1] == '\n');
}

}  // namespace
}  // namespace aliquot
