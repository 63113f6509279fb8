#include "node/gpu_faults.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include "gpu/fake_devices.hpp"

namespace aliquot::node {
namespace {

std::vector<GpuView> views(const std::string& trouble) {
  std::vector<GpuView> all(2);
  all[0].sample.id = GpuId("GPU-0");
  all[1].sample.id = GpuId("GPU-1");
  all[1].sample.trouble = trouble;
  return all;
}

std::vector<RunningJob> jobs() {
  return {{HolderId("7"), Uid(1000), "m", 0, {{GpuId("GPU-1")}}},
          {HolderId("8"), Uid(1000), "n", 0, {{GpuId("GPU-0")}}},
          {HolderId("9"), Uid(1000), "o"}};
}

TEST(GpuFaults, TellTheJobsThatHoldTheGpuOnce) {
  GpuFaults faults;
  EXPECT_TRUE(faults.look(views(""), jobs(), {}).empty());
  const auto said = faults.look(views("xid79"), jobs(), {});
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said[0].job, HolderId("7"));
  EXPECT_EQ(said[0].what,
            "GPU 1 (GPU-1), which it holds, is broken: Xid 79, it has fallen off the bus");
  EXPECT_TRUE(faults.look(views("xid79"), jobs(), {}).empty());
}

TEST(GpuFaults, AGpuThatIsWellAgainIsForgotten) {
  GpuFaults faults;
  faults.look(views("lost"), jobs(), {});
  faults.look(views(""), jobs(), {});
  EXPECT_EQ(faults.look(views("ecc"), jobs(), {}).size(), 1U);
}

TEST(GpuFaults, AJobThatComesLateIsToldToo) {
  GpuFaults faults;
  EXPECT_TRUE(faults.look(views("ecc"), {}, {}).empty());
  EXPECT_EQ(faults.look(views("ecc"), jobs(), {}).size(), 1U);
}

}  // namespace
}  // namespace aliquot::node
