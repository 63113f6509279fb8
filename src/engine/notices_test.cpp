#include "engine/notices.hpp"

#include <gmock/gmock.h>

#include "engine/engine_fixture.hpp"
#include "engine/faulty_disk.hpp"

namespace aliquot::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class NoticesTest : public testing::Test, public EngineFixture {
 protected:
  api::JobSpec with_mail(const std::string& types) const {
    api::JobSpec wanted = spec();
    wanted.name = "train";
    wanted.mail_type = types;
    return wanted;
  }
  std::vector<std::string> subjects() {
    std::vector<std::string> all;
    for (const Notice& notice : std::exchange(executor.told, {})) all.push_back(notice.subject);
    return all;
  }
};

class FullDiskNoticesTest : public FaultyDisk, public NoticesTest {};

TEST_F(NoticesTest, SayInSlurmsWordsWhatBecameOfAJob) {
  const auto id = submit(with_mail("BEGIN,END,FAIL"));
  EXPECT_THAT(subjects(), ElementsAre("Slurm Job_id=1 Name=train Began, Queued time 00:00:00"));
  clock.advance(seconds(65));
  end(id);
  EXPECT_THAT(subjects(), ElementsAre("Slurm Job_id=1 Name=train Ended, Run time 00:01:05, "
                                      "COMPLETED, ExitCode 0"));
  const auto bad = submit(with_mail("FAIL"));
  end(bad, 3);
  EXPECT_THAT(
      subjects(),
      ElementsAre("Slurm Job_id=2 Name=train Failed, Run time 00:00:00, FAILED, ExitCode 3"));
  // Who asked for ends alone hears of failures as ends.
  const auto both = submit(with_mail("END"));
  end(both, 3);
  EXPECT_THAT(
      subjects(),
      ElementsAre("Slurm Job_id=3 Name=train Ended, Run time 00:00:00, FAILED, ExitCode 3"));
}

TEST_F(NoticesTest, GoToTheUserOrToWhomTheJobNames) {
  settings.mail_domain = "example.org";
  crash();
  submit(with_mail("BEGIN"));
  ASSERT_EQ(executor.told.size(), 1U);
  EXPECT_THAT(executor.told[0].addresses, ElementsAre("u1000@example.org"));
  EXPECT_EQ(executor.told[0].owner, Uid(1000));
  EXPECT_EQ(executor.told[0].program, "/usr/sbin/sendmail");
  executor.told.clear();
  auto wanted = with_mail("BEGIN");
  wanted.mail_user = "ann@lab.example,bob";
  submit(wanted);
  ASSERT_EQ(executor.told.size(), 1U);
  EXPECT_THAT(executor.told[0].addresses, ElementsAre("ann@lab.example", "bob@example.org"));
}

TEST_F(NoticesTest, NothingIsSaidThatNobodyAskedFor) {
  for (const char* types : {"", "NONE", "ARRAY_TASKS"}) {
    const auto id = submit(with_mail(types));
    end(id, 1);
  }
  EXPECT_THAT(subjects(), IsEmpty());
}

TEST_F(NoticesTest, AnArrayIsTalkedOfAsAWhole) {
  auto wanted = with_mail("BEGIN,END");
  wanted.array = "0-2";
  submit(wanted);
  EXPECT_THAT(subjects(), ElementsAre("Slurm Array Summary Job_id=1_* (2) Name=train Began, Queued "
                                      "time 00:00:00"));
  end(2);
  end(3, 4);
  EXPECT_THAT(subjects(), IsEmpty());
  end(1);
  EXPECT_THAT(subjects(), ElementsAre("Slurm Array Summary Job_id=1_* (1) Name=train Ended, Run "
                                      "time 00:00:00, Mixed, ExitCode [0-4]"));
}

TEST_F(NoticesTest, OrElementByElement) {
  auto wanted = with_mail("END,ARRAY_TASKS");
  wanted.array = "0-1";
  submit(wanted);
  end(2);
  EXPECT_THAT(subjects(), ElementsAre("Slurm Array Task Job_id=1_0 (2) Name=train Ended, Run time "
                                      "00:00:00, COMPLETED, ExitCode 0"));
}

TEST_F(NoticesTest, TellWhenTheTimeLimitIsNear) {
  auto wanted = with_mail("TIME_LIMIT,TIME_LIMIT_80,TIME_LIMIT_50");
  wanted.time_limit_ms = minutes(10).value();
  const auto id = submit(wanted);
  EXPECT_EQ(engine->next_due(), clock.wall() + minutes(5));
  clock.advance(minutes(5));
  settle();
  EXPECT_THAT(subjects(), ElementsAre("Slurm Job_id=1 Name=train Reached 50% of time limit, Run "
                                      "time 00:05:00"));
  // Nobody is told twice, nor after a restart of the daemon.
  settle();
  crash();
  settle();
  EXPECT_THAT(subjects(), IsEmpty());
  clock.advance(minutes(3));
  settle();
  EXPECT_THAT(subjects(), ElementsAre("Slurm Job_id=1 Name=train Reached 80% of time limit, Run "
                                      "time 00:08:00"));
  clock.advance(minutes(2));
  end(id, 0, node::EndReason::timeout);
  EXPECT_THAT(subjects(),
              ElementsAre("Slurm Job_id=1 Name=train Reached time limit, Run time 00:10:00"));
}

// What could not be recorded was not sent: it is sent when it can be.
TEST_F(FullDiskNoticesTest, TellOfTheTimeLimitOnceThereIsRoom) {
  auto wanted = with_mail("TIME_LIMIT_80");
  wanted.time_limit_ms = minutes(10).value();
  submit(wanted);
  clock.advance(minutes(8));
  writes = 0;
  ASSERT_TRUE(engine->queue().submit({Uid(1000)}, spec()));
  settle();
  ASSERT_TRUE(engine->trouble());
  mend();
  clock.advance(*engine->next_due() - clock.wall());
  settle();
  settle();
  EXPECT_THAT(subjects(), ElementsAre(HasSubstr("Reached 80% of time limit")));
}

TEST_F(NoticesTest, TellOfRequeuesAndOfWhatCanNeverStart) {
  const auto id = submit(with_mail("REQUEUE"));
  ASSERT_TRUE(engine->runs().requeue({Uid(1000)}, std::to_string(id), false));
  settle();
  end(id);
  EXPECT_THAT(subjects(), ElementsAre("Slurm Job_id=1 Name=train Requeued, Run time 00:00:00"));
  const auto bad = submit(spec());
  auto waits = with_mail("INVALID_DEPEND");
  waits.dependency = "afterok:" + std::to_string(bad);
  submit(waits);
  end(bad, 1);
  EXPECT_THAT(subjects(), ElementsAre("Slurm Job_id=3 Name=train Invalid dependency"));
}

TEST_F(NoticesTest, AreRefusedWhereNoneCanBeSent) {
  auto wanted = with_mail("END");
  wanted.mail_user = "-Cevil";
  EXPECT_NE(refusal(wanted), "accepted");
  wanted.mail_user = "ann bob";
  EXPECT_NE(refusal(wanted), "accepted");
  wanted.mail_user = "ann";
  EXPECT_EQ(refusal(wanted), "accepted");
  settings.mail_program.clear();
  crash();
  EXPECT_NE(refusal(wanted), "accepted");
  wanted.mail_type = "NONE";
  EXPECT_EQ(refusal(wanted), "accepted");
}

TEST_F(NoticesTest, TheSitesCommandHearsOfEveryJob) {
  settings.events_command = "/etc/aliquot/event";
  crash();
  const auto id = submit(spec());
  end(id, 1);
  ASSERT_EQ(executor.told.size(), 2U);
  EXPECT_EQ(executor.told[0].event, "BEGIN");
  EXPECT_EQ(executor.told[1].event, "FAIL");
  EXPECT_EQ(executor.told[1].job.exit_code, 1);
  EXPECT_EQ(executor.told[1].as_user, "nobody");
  EXPECT_EQ(executor.told[1].program, "/etc/aliquot/event");
}

TEST_F(NoticesTest, ExitCodesMaySendAJobBackToTheQueue) {
  settings.requeue_exit = {{75, 80}};
  settings.requeue_exit_hold = {{99, 99}};
  crash();
  const auto id = submit(spec());
  end(id, 77);
  EXPECT_EQ(state(id), "RUNNING");
  EXPECT_EQ(job(id).restarts, 1);
  end(id, 99);
  EXPECT_EQ(state(id), "PENDING");
  EXPECT_EQ(job(id).reason, "JobHeldUser");
  ASSERT_TRUE(engine->queue().release({Uid(1000)}, std::to_string(id)));
  settle();
  end(id, 3);
  EXPECT_EQ(state(id), "FAILED");
}

TEST(Notices, ReadTheWordsOfMailType) {
  const auto all = parse_mail_types("all");
  EXPECT_TRUE(all.begin && all.end && all.fail && all.requeue && all.invalid_dependency);
  EXPECT_TRUE(all.percents.empty());
  EXPECT_FALSE(parse_mail_types("END,NONE").any());
  EXPECT_THAT(parse_mail_types("TIME_LIMIT_90,TIME_LIMIT").percents, ElementsAre(90, 100));
}

}  // namespace
}  // namespace aliquot::engine
