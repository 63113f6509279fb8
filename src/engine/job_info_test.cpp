#include "engine/job_info.hpp"

#include <gtest/gtest.h>

#include "api/json.hpp"
#include "api/testing.hpp"

namespace aliquot::engine {
namespace {

// What the API shows of a job is what its record says: no field is lost on the way into memory and
// back.
TEST(JobInfo, BringsEveryFieldOfARecordBack) {
  auto info = api::filled<api::JobInfo>();
  info.state = "SUSPENDED";
  info.reason = "RaisedSignal:9(Killed)";
  info.exit_signal = 9;
  info.array_pending = "1-6%2";
  info.array_throttle = 2;
  info.gpus.at(0).node.clear();  // there is one machine
  info.gpus.at(0).container.clear();
  info.pod.clear();    // of Kubernetes alone
  info.steps.clear();  // the store has them
  info.oversubscribe = "YES";
  info.memory_by_cpu = info.kill_on_invalid_dependency = info.usual_limit = true;

  api::JobSpec spec;
  spec.name = info.name;
  spec.account = info.account;
  spec.qos = info.qos;
  spec.comment = info.comment;
  spec.reservation = info.reservation;
  spec.wckey = info.wckey;
  spec.nodelist = info.nodelist;
  spec.exclude = info.exclude;
  spec.oversubscribe = true;
  spec.min_cpus = info.min_cpus;
  spec.memory_per_cpu = info.min_memory;
  spec.mail_type = info.mail_type;
  spec.mail_user = info.mail_user;
  spec.kill_on_invalid_dependency = info.kill_on_invalid_dependency;
  spec.nice = info.nice;
  spec.requeue = info.requeue;
  spec.batch = info.batch;
  spec.deadline_ms = info.deadline_ms;
  spec.ntasks = info.ntasks;
  spec.ntasks_per_node = info.ntasks_per_node;
  spec.cpus_per_task = info.cpus_per_task;
  spec.constraint = info.constraint;
  spec.command = info.command;
  spec.work_dir = info.work_dir;
  spec.submit_host = info.submit_host;

  const auto job = from_record(info, spec);
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(api::to_json(to_info(*job)), api::to_json(info));

  // Into one that was used before.
  auto shown = api::filled<api::JobInfo>();
  write_info(*job, shown);
  EXPECT_EQ(api::to_json(shown), api::to_json(info));
  write_info(Job{}, shown);
  EXPECT_EQ(api::to_json(shown), api::to_json(to_info(Job{})));
}

TEST(JobInfo, SaysWhatAJobHoldsInOneGrant) {
  Job job{.id = JobId(7)};
  job.restarts = 2;
  job.owner = {"ann", Uid(1000), "users", Gid(100)};
  job.spec.ntasks = 4;
  job.gpus = {{{GpuId("GPU-1"), {gib(8), Compute(2'500)}, false}, 3, "h200"}};
  const core::Grant grant = job.grant();
  EXPECT_EQ(grant.holder, HolderId("7"));
  EXPECT_EQ(grant.attempt, 2);
  EXPECT_EQ(grant.owner, Uid(1000));
  EXPECT_EQ(grant.group, Gid(100));
  EXPECT_EQ(grant.processes, 4);
  ASSERT_NE(grant.find(GpuId("GPU-1")), nullptr);
  EXPECT_EQ(grant.find(GpuId("GPU-1"))->portion.compute, Compute(2'500));
}

TEST(Reason, IsReadBackFromItsWord) {
  for (int i = 0; i <= static_cast<int>(Reason::limit) + 5; ++i) {
    const auto reason = static_cast<Reason>(i);
    EXPECT_EQ(parse_reason(to_string(reason)), reason) << to_string(reason);
  }
  EXPECT_EQ(parse_reason("SomethingNew"), Reason::none);
}

}  // namespace
}  // namespace aliquot::engine
