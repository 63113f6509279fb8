#include "slurm/agent/room.hpp"

#include <gtest/gtest.h>

#include "gpu/fake_devices.hpp"

namespace aliquot::slurm {
namespace {

class RoomTest : public testing::Test {
 protected:
  void see(Bytes foreign, const std::string& trouble = "") {
    std::vector<node::GpuView> views(2);
    for (std::size_t i = 0; i < 2; ++i) views[i].sample.id = node_.devices[i].gpu.id;
    views[1].sample.trouble = trouble;
    views[1].processes = {{.pid = 7, .memory = foreign},
                          {.pid = 8, .memory = gib(30), .holder = HolderId("slurm:3")}};
    room_.observe(views, granted_);
  }
  [[nodiscard]] std::string start(Bytes memory, std::size_t gpu = 1) {
    core::Grant grant;
    grant.gpus = {{.gpu = node_.devices[gpu].gpu.id, .portion = {memory, Compute(100)}}};
    const auto checked = room_.check(grant, granted_);
    return checked ? "" : checked.error().message;
  }

  ManualClock clock_;
  NodeGpus node_{"n1", gpu::fake_gpus(2, "a100", gib(80)), ShareSettings{}};
  Room::Granted granted_{{GpuId("GPU-1"), gib(30)}};
  Room room_{node_, clock_};
};

TEST_F(RoomTest, MemoryThatIsNotFreeIsNotPromised) {
  EXPECT_EQ(start(gib(50)), "");
  see(gib(20));
  EXPECT_EQ(start(gib(30)), "");
  EXPECT_EQ(room_.keep_away(), "");
  EXPECT_EQ(start(gib(31)),
            "processes of no job hold 20480 MiB of GPU 1 of n1: of the 31744 MiB that the job was "
            "given, 30720 are free");
  EXPECT_EQ(start(gib(80), 0), "") << "the other GPU is free";
  EXPECT_TRUE(room_.closed());
  EXPECT_EQ(room_.keep_away(), "") << "it may be about to go";
  clock_.advance(seconds(2));
  const std::string why = "processes of no job hold memory of GPU 1 that was given to jobs";
  EXPECT_EQ(room_.keep_away(), why);
  see(gib(25));
  EXPECT_EQ(room_.keep_away(), why);
  // A job there has ended.
  granted_.clear();
  see(gib(25));
  EXPECT_EQ(room_.keep_away(), "");
  EXPECT_FALSE(room_.closed());
}

TEST_F(RoomTest, LessThanAShardIsNobodysTrouble) {
  see(mib(1'000));
  EXPECT_EQ(start(gib(50)), "");
  see(gib(2));
  EXPECT_NE(start(gib(50)), "");
  clock_.advance(seconds(5));
  see(mib(1'000));
  EXPECT_EQ(room_.keep_away(), "");
}

TEST_F(RoomTest, ABrokenGpuGetsNothing) {
  see(Bytes(0), "xid79");
  EXPECT_EQ(start(gib(1)), "GPU 1 of n1 is broken: Xid 79, it has fallen off the bus");
  EXPECT_EQ(start(gib(1), 0), "");
  EXPECT_EQ(room_.keep_away(), "GPU 1 is broken: Xid 79, it has fallen off the bus");
  see(Bytes(0));
  EXPECT_EQ(start(gib(1)), "");
  EXPECT_EQ(room_.keep_away(), "");
}

}  // namespace
}  // namespace aliquot::slurm
