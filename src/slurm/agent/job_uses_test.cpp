#include "slurm/agent/job_uses.hpp"

#include <gtest/gtest.h>

#include "gpu/fake_devices.hpp"

namespace aliquot::slurm {
namespace {

class JobUsesTest : public testing::Test {
 protected:
  JobUsesTest() {
    for (std::size_t i = 0; i < 2; ++i) views_[i].sample.id = node_.devices[i].gpu.id;
    views_[0].sample.utilisation = Compute(9'000);
    views_[1].sample.utilisation = Compute(4'000);
    views_[0].processes = {process(7, gib(1)), process(7, gib(2)), process(8, gib(5)), {.pid = 1}};
    views_[1].processes = {process(9, gib(4))};
  }
  static node::GpuProcess process(std::int64_t job, Bytes memory) {
    return {.memory = memory, .holder = holder_of(JobId(job))};
  }
  std::vector<GpuLoad> look(Millis seven, Millis eight) {
    NodeSample sample{NodeId("n1"), {{.index = 0}, {.index = 1}}};
    uses_.add(
        sample, node_, views_,
        [&](const HolderId& job) -> std::optional<Millis> {
          if (job == holder_of(JobId(7))) return seven;
          if (job == holder_of(JobId(8))) return eight;
          return std::nullopt;
        },
        now_);
    return sample.gpus;
  }
  void pass(Millis time) { now_ = now_ + time; }

  NodeGpus node_{"n1", gpu::fake_gpus(2, "a100", gib(80)), ShareSettings{}};
  std::vector<node::GpuView> views_ = std::vector<node::GpuView>(2);
  MonoTime now_ = MonoTime(1'000'000);
  JobUses uses_;
};

TEST_F(JobUsesTest, JobsOnASharedGpuAreToldApart) {
  look(Millis(500), Millis(0));
  pass(seconds(1));
  const auto gpus = look(Millis(750), Millis(600));
  EXPECT_EQ(gpus[0].jobs,
            (std::vector<JobUse>{{8, Compute(6'000), gib(5)}, {7, Compute(2'500), gib(3)}}));
  EXPECT_EQ(gpus[1].jobs, (std::vector<JobUse>{{9, Compute(4'000), gib(4)}}))
      << "nobody measures it, and it is alone";
}

TEST_F(JobUsesTest, AJobThatBeginsAnewUsesNothingLessThanNothing) {
  look(Millis(500), Millis(0));
  pass(seconds(1));
  EXPECT_EQ(look(Millis(0), Millis(5'000))[0].jobs[0].utilisation, kWholeGpu);
  pass(Millis(0));
  EXPECT_EQ(look(Millis(0), Millis(5'000))[0].jobs[0].utilisation, kWholeGpu) << "as it was";
}

TEST_F(JobUsesTest, AJobOnTwoGpusIsTheMeanOfThem) {
  views_[1].processes = {process(7, gib(1))};
  look(Millis(0), Millis(0));
  pass(seconds(1));
  EXPECT_EQ(look(Millis(1'000), Millis(0))[1].jobs[0].utilisation, Compute(5'000));
}

}  // namespace
}  // namespace aliquot::slurm
