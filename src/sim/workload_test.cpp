#include "sim/workload.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace aliquot::sim {
namespace {

using ::testing::ElementsAre;

std::vector<TraceNode> two_nodes() {
  return {{"a", CpuMilli(8000), gib(32), 2, "T4"}, {"b", CpuMilli(4000), gib(16), 0, ""}};
}

TracePod pod(std::int64_t gpus, std::int64_t milli, std::vector<std::string> models = {}) {
  return {"p", CpuMilli(1000), gib(1), gpus, milli, std::move(models)};
}

Workload workload(const std::vector<TracePod>& pods) {
  return make_workload(two_nodes(), pods, 1, kWholeGpu).value();
}

TEST(Workload, TurnsPodsIntoRequests) {
  const auto made = workload({pod(0, 0), pod(1, 460), pod(1, 1000), pod(8, 1000)});
  ASSERT_EQ(made.kinds.size(), 4U);
  EXPECT_FALSE(made.kinds[0].request.gpus.has_value());
  EXPECT_EQ(std::get<core::Amounts>(made.kinds[1].request.gpus->what),
            (core::Amounts{Bytes(0), Compute(4600)}));
  EXPECT_TRUE(std::holds_alternative<core::WholeGpu>(made.kinds[2].request.gpus->what));
  EXPECT_EQ(made.kinds[3].request.gpus->count, 8);
  EXPECT_EQ(made.kinds[3].milli, 8000);
}

TEST(Workload, DropsModelsNobodyHasUnlessNoneIsLeft) {
  const auto made = workload({pod(1, 500, {"K80", "t4"}), pod(1, 500, {"K80"})});
  EXPECT_THAT(made.kinds[0].request.gpus->models, ElementsAre("t4"));
  EXPECT_THAT(made.kinds[1].request.gpus->models, ElementsAre("K80"));
}

TEST(Workload, CountsKinds) {
  const auto made = workload({pod(1, 460), pod(1, 1000), pod(1, 1000), pod(1, 460), pod(1, 1000)});
  EXPECT_THAT(made.pods, ElementsAre(0, 1, 1, 0, 1));
  ASSERT_EQ(made.profile.size(), 2U);
  EXPECT_EQ(made.profile[0].weight, 3);
  EXPECT_TRUE(std::holds_alternative<core::WholeGpu>(made.profile[0].request.gpus->what));
}

TEST(Workload, CopiesNodesAndPods) {
  const auto made = make_workload(two_nodes(), {pod(1, 500)}, 3, Compute(11'300)).value();
  EXPECT_EQ(made.nodes.size(), 6U);
  EXPECT_EQ(made.gpus, 6);
  EXPECT_EQ(made.pods.size(), 3U);
  EXPECT_EQ(made.profile.front().weight, 1);
  EXPECT_EQ(made.nodes[0].id.value(), "a");
  EXPECT_EQ(made.nodes[2].id.value(), "a@2");
  EXPECT_EQ(made.nodes[2].gpus[1].id.value(), "GPU-a@2-1");
  EXPECT_EQ(made.nodes[2].compute_limit, Compute(11'300));
}

TEST(Workload, RefusesWhatCannotBeReplayed) {
  EXPECT_FALSE(make_workload({two_nodes()[1]}, {pod(1, 500)}, 1, kWholeGpu).has_value());
  EXPECT_FALSE(make_workload(two_nodes(), {pod(0, 0)}, 1, kWholeGpu).has_value());
}

}  // namespace
}  // namespace aliquot::sim
