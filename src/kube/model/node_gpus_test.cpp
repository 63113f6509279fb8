#include "kube/model/node_gpus.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace aliquot::kube {
namespace {

TEST(NodeGpus, ReadsTheAnnotation) {
  const auto gpus = read_node_gpus(R"({"v":1,"unit":1073741824,"over_commit":20000,"later":[1],
    "gpus":[{"uuid":"GPU-a","index":3,"model":"h200","memory":151397597184,"units":141,
             "health":"lost","foreign":5,"mig":""},
            {"uuid":"MIG-b","index":4,"model":"a100","memory":10,"health":"odd","mig":"1g.10gb"}]})")
                        .value();
  EXPECT_EQ(gpus.unit, gib(1));
  EXPECT_EQ(gpus.over_commit, 2 * kWholeGpu);
  EXPECT_FALSE(gpus.nvidia);
  ASSERT_EQ(gpus.gpus.size(), 2U);
  EXPECT_EQ(gpus.gpus[0].uuid, GpuId("GPU-a"));
  EXPECT_EQ(gpus.gpus[0].index, 3);
  EXPECT_EQ(gpus.gpus[0].health, core::Health::lost);
  EXPECT_EQ(gpus.gpus[0].foreign, Bytes(5));
  EXPECT_EQ(units_of(gpus.gpus[0], gpus.unit), 141);
  // What we do not understand is not well.
  EXPECT_EQ(gpus.gpus[1].health, core::Health::draining);
  EXPECT_EQ(gpus.gpus[1].mig, "1g.10gb");
}

TEST(NodeGpus, RefusesWhatNoNodeCanBe) {
  const auto with = [](const std::string& rest) {
    return read_node_gpus("{\"v\":1,\"unit\":1024," + rest + "}");
  };
  EXPECT_TRUE(with(R"("gpus":[])"));
  EXPECT_FALSE(with(R"("gpus":{})"));
  EXPECT_FALSE(with(R"("gpus":[3])"));
  EXPECT_FALSE(with(R"("gpus":[{"uuid":"a","model":"m"}])"));
  EXPECT_FALSE(with(R"("gpus":[{"uuid":"a","model":"m","memory":-1}])"));
  EXPECT_FALSE(with(R"("gpus":[{"uuid":"a b","model":"m","memory":1}])"));
  EXPECT_FALSE(with(R"("gpus":[{"uuid":"a/b","model":"m","memory":1}])"));
  EXPECT_FALSE(with(R"("gpus":[{"uuid":"a","model":"","memory":1}])"));
  EXPECT_FALSE(with(R"("gpus":[{"uuid":"a","model":"m","memory":9223372036854775807}])"));
  EXPECT_FALSE(with(R"("gpus":[{"uuid":"a","model":"m","memory":1},
                               {"uuid":"a","model":"m","memory":1}])"));
  EXPECT_FALSE(with(R"("over_commit":9999,"gpus":[])"));
  EXPECT_FALSE(read_node_gpus(R"({"v":1,"unit":0,"gpus":[]})"));
  EXPECT_FALSE(read_node_gpus(R"({"v":2,"unit":1,"gpus":[]})"));
  EXPECT_FALSE(read_node_gpus("[]"));
  EXPECT_FALSE(read_node_gpus(""));
  EXPECT_FALSE(read_node_gpus(std::string(100'000, '[')));
}

RC_GTEST_PROP(NodeGpus, AreReadAsWritten, (bool nvidia)) {
  NodeGpus gpus{.unit = mib(*rc::gen::inRange(1, 4096)),
                .over_commit = Compute(*rc::gen::inRange(10'000, 50'000)),
                .nvidia = nvidia};
  const int count = *rc::gen::inRange(0, 9);
  for (int i = 0; i < count; ++i) {
    gpus.gpus.push_back(
        {.uuid = GpuId(fmt::format("GPU-{}", i)),
         .index = i,
         .model = *rc::gen::element<std::string>("h100", "a10"),
         .memory = Bytes(*rc::gen::inRange<std::int64_t>(0, 1LL << 40)),
         .health = *rc::gen::element(core::Health::ok, core::Health::draining, core::Health::lost),
         .foreign = Bytes(*rc::gen::inRange<std::int64_t>(0, 1LL << 40)),
         .mig = *rc::gen::element<std::string>("", "1g.10gb")});
  }
  RC_ASSERT(read_node_gpus(write_node_gpus(gpus)).value() == gpus);
}

TEST(DeviceId, NamesUnitsAndWholeGpus) {
  EXPECT_EQ(device_id(GpuId("GPU-a"), 12), "GPU-a/12");
  const auto unit = parse_device_id("GPU-a/12");
  ASSERT_TRUE(unit);
  EXPECT_EQ(unit->first, GpuId("GPU-a"));
  EXPECT_EQ(unit->second, 12);
  const auto all = parse_device_id("GPU-a");
  ASSERT_TRUE(all);
  EXPECT_EQ(all->second, std::nullopt);
  for (const char* text : {"", "/1", "a/", "a/x", "a/01", "a/1/2", "a b", "a/-1"}) {
    EXPECT_FALSE(parse_device_id(text)) << text;
  }
}

}  // namespace
}  // namespace aliquot::kube
