#include "node/job_processes.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "node/fake_cgroups.hpp"
#include "node/spawn.hpp"
#include "node/testing.hpp"

namespace aliquot::node {
namespace {

TEST(JobProcesses, AreThoseOfTheGroupWithoutTheirClient) {
  FakeCgroups cgroups;
  const Group group{{JobId(7)}};
  const Pid self(getpid());
  const Pid client(getppid());
  ASSERT_TRUE(cgroups.create(group, {}));
  ASSERT_TRUE(cgroups.add(group, self));
  ASSERT_TRUE(cgroups.add(group, client));
  const JobProcesses all(cgroups, group, "7:x", {}, {client});
  ASSERT_EQ(all.find().size(), 1U);
  EXPECT_EQ(all.find()[0].pid, self);
  EXPECT_EQ(all.kill(false, seconds(1)).count, 1);
  EXPECT_FALSE(all.gone()) << "its client reports how it went";
  EXPECT_EQ(all.kill(true, seconds(1)).count, 1);
  EXPECT_TRUE(all.gone());
}

TEST(JobProcesses, WhoIsLeftIsNamed) {
  FakeCgroups cgroups;
  const Group group{{JobId(7)}};
  ASSERT_TRUE(cgroups.create(group, {}));
  const JobProcesses all(cgroups, group, "7:x");
  EXPECT_EQ(all.describe_left(), "");
  ASSERT_TRUE(cgroups.add(group, Pid(getpid())));
  EXPECT_EQ(all.describe_left(), fmt::format("process {} ('node_test', user {}, in state R)",
                                             getpid(), test::me().user));
}

// Whoever writes the mark of a job into an environment of their own is not in the job.
TEST(JobProcesses, AreNotTakenFromTheirEnvironmentWhereThereAreGroups) {
  FakeCgroups cgroups;
  const Group group{{JobId(7)}};
  ASSERT_TRUE(cgroups.create(group, {}));
  SpawnSpec spec;
  spec.identity = test::me();
  spec.file = "/bin/sleep";
  spec.argv = {"sleep", "60"};
  const auto mark = make_mark(JobId(7));
  spec.environment = {"ALIQUOT_JOB=" + mark};
  const auto pid = spawn(spec);
  ASSERT_TRUE(pid);
  const auto none = no_cgroups("a test");
  EXPECT_TRUE(test::eventually([&] { return !JobProcesses(*none, group, mark).gone(); }));
  EXPECT_TRUE(JobProcesses(cgroups, group, mark).find().empty());
  EXPECT_TRUE(JobProcesses(*none, group, mark).kill(true, seconds(20)).all_gone);
  waitpid(pid->value(), nullptr, 0);
}

}  // namespace
}  // namespace aliquot::node
