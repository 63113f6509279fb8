#include "slurm/agent/remarks.hpp"

#include <gtest/gtest.h>

#include "slurm/fake_client.hpp"

namespace aliquot::slurm {
namespace {

class RemarksTest : public testing::Test {
 protected:
  RemarksTest() {
    for (std::int64_t id = 1; id <= 3; ++id) {
      slurm_.known_jobs.push_back(
          {.id = id, .state = "RUNNING", .admin_comment = "aliquot: gpu:1"});
    }
  }
  [[nodiscard]] std::string comment(std::size_t job) const {
    return slurm_.known_jobs[job - 1].admin_comment;
  }

  FakeSlurm slurm_;
  ManualClock clock_;
  Remarks remarks_{slurm_, "n1", clock_};
};

TEST_F(RemarksTest, AreWrittenLaterWhereSlurmctldIsAway) {
  slurm_.away = true;
  remarks_.tell(JobId(1), Remark::broken_gpu);
  slurm_.away = false;
  remarks_.catch_up();
  EXPECT_EQ(comment(1), "aliquot: gpu:1") << "it is left alone for a while";
  clock_.advance(seconds(11));
  remarks_.catch_up();
  EXPECT_EQ(comment(1), "aliquot: gpu:1; broken GPU on n1");
  remarks_.tell(JobId(1), Remark::escape);
  EXPECT_EQ(comment(1), "aliquot: gpu:1; broken GPU on n1; escape on n1");
}

// Steps wait for their shares behind it.
TEST_F(RemarksTest, FiguresDoNotWaitForASlurmctldThatIsSlow) {
  slurm_.takes_time = [this] { clock_.advance(seconds(1)); };
  remarks_.tell_used(JobId(1), {Millis(1'000), mib(5)});
  EXPECT_EQ(comment(1), "aliquot: gpu:1; used 1.0 s 5M on n1");
  remarks_.tell_used(JobId(2), {Millis(1'000), mib(5)});
  EXPECT_EQ(comment(2), "aliquot: gpu:1");
  clock_.advance(seconds(40));
  remarks_.tell_used(JobId(3), {Millis(1'000), mib(5)});
  EXPECT_EQ(comment(3), "aliquot: gpu:1; used 1.0 s 5M on n1");
}

}  // namespace
}  // namespace aliquot::slurm
