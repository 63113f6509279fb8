#include "base/ids.hpp"

#include <gtest/gtest.h>

#include <type_traits>
#include <unordered_map>

namespace aliquot {
namespace {

static_assert(std::is_trivially_copyable_v<JobId> && std::is_trivially_copyable_v<Uid>);
static_assert(!std::is_convertible_v<std::string, GpuId> && !std::is_same_v<GpuId, NodeId>);
static_assert(JobId(7) < JobId(8) && JobId(7) == JobId(7));

TEST(Ids, AreKeysAndPrint) {
  const std::unordered_map<GpuId, NodeId> where{{GpuId("GPU-1"), NodeId("n01")}};
  EXPECT_EQ(where.at(GpuId("GPU-1")), NodeId("n01"));
  EXPECT_EQ(fmt::format("{} of {} on {:>5}", JobId(7), Uid(1000), NodeId("n01")),
            "7 of 1000 on   n01");
}

}  // namespace
}  // namespace aliquot
