#include "slurm/gres.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <fmt/format.h>

namespace aliquot::slurm {
namespace {

using Holds = std::vector<GresHold>;

TEST(Gres, ReadsWhatSlurm2205Prints) {
  EXPECT_EQ(parse_gres_detail("shard:h200:8(IDX:0)").value(),
            (Holds{{"shard", "h200", 8, {{0, 8}}}}));
  EXPECT_EQ(parse_gres_detail("gpu:h200:2(IDX:0,3)").value(),
            (Holds{{"gpu", "h200", 2, {{0, 1}, {3, 1}}}}));
  EXPECT_EQ(parse_gres_detail("gpu:3(IDX:1-3),license:1(CNT:1)").value(),
            (Holds{{"gpu", "", 3, {{1, 1}, {2, 1}, {3, 1}}}, {"license", "", 1, {}}}));
}

TEST(Gres, ReadsCountsGpuByGpu) {
  EXPECT_EQ(parse_gres_detail("shard:h200:12(8/140,4/140,0/140,0/140)").value(),
            (Holds{{"shard", "h200", 12, {{0, 8}, {1, 4}}}}));
}

TEST(Gres, NothingIsNothing) {
  EXPECT_EQ(parse_gres_detail("").value(), Holds{});
  EXPECT_EQ(parse_gres_detail("(null)").value(), Holds{});
}

TEST(Gres, SaysWhatItCannotRead) {
  for (const char* text : {"gpu:x(IDX:0)", "gpu:1(IDX:0", "gpu:1(IDX:3-1)", "gpu:1(IDX:0-99999999)",
                           ":1", "gpu:a:b:c:1", "gpu:1(what)", "shard:1(a/b)"}) {
    EXPECT_FALSE(parse_gres_detail(text)) << text;
  }
}

RC_GTEST_PROP(Gres, NeverCrashes, (const std::string& text)) { (void)parse_gres_detail(text); }

RC_GTEST_PROP(Gres, ReadsBackCounts, ()) {
  const auto counts = *rc::gen::container<std::vector<int>>(8, rc::gen::inRange(0, 141));
  std::string inside;
  std::int64_t sum = 0;
  for (const int count : counts) {
    inside += fmt::format("{}{}/140", inside.empty() ? "" : ",", count);
    sum += count;
  }
  const auto holds = parse_gres_detail(fmt::format("shard:h200:{}({})", sum, inside));
  RC_ASSERT(holds.has_value());
  for (std::size_t gpu = 0; gpu < counts.size(); ++gpu) {
    const auto found = holds->front().on.find(static_cast<std::int64_t>(gpu));
    RC_ASSERT((found == holds->front().on.end() ? 0 : found->second) == counts[gpu]);
  }
}

}  // namespace
}  // namespace aliquot::slurm
