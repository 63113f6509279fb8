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

  void tell_used(std::int64_t job) {
    remarks_.tell_used(JobId(job), {Millis(1'000), mib(5)});
    remarks_.note_use();
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
  tell_used(1);
  EXPECT_EQ(comment(1), "aliquot: gpu:1; used 1.0 s 5M on n1");
  tell_used(2);
  EXPECT_EQ(comment(2), "aliquot: gpu:1");
  clock_.advance(seconds(40));
  tell_used(3);
  EXPECT_EQ(comment(3), "aliquot: gpu:1; used 1.0 s 5M on n1");
}

// Ten jobs that end in one second, on a controller that is merely busy.
TEST_F(RemarksTest, ABusySlurmctldHasTheFiguresOfAllJobs) {
  for (std::int64_t id = 4; id <= 10; ++id)
    slurm_.known_jobs.push_back({.id = id, .state = "RUNNING", .admin_comment = "aliquot: gpu:1"});
  slurm_.takes_time = [this] { clock_.advance(Millis(60)); };
  for (std::int64_t id = 1; id <= 10; ++id) remarks_.tell_used(JobId(id), {Millis(1'000), mib(5)});
  for (int more = 9; more >= 1; --more) EXPECT_TRUE(remarks_.note_use()) << "one at a time";
  EXPECT_TRUE(remarks_.owes(JobId(10)));
  EXPECT_FALSE(remarks_.note_use());
  EXPECT_FALSE(remarks_.owes(JobId(10)));
  for (std::size_t id = 1; id <= 10; ++id) {
    EXPECT_EQ(comment(id), "aliquot: gpu:1; used 1.0 s 5M on n1") << id;
  }
}

TEST_F(RemarksTest, NothingPilesUpWhileSlurmctldIsAway) {
  slurm_.away = true;
  for (std::int64_t id = 1; id <= 3; ++id) tell_used(id);
  EXPECT_EQ(slurm_.questions, 1);
  EXPECT_FALSE(remarks_.owes(JobId(2)));
}

}  // namespace
}  // namespace aliquot::slurm
