#include "slurm/agent/job_note.hpp"

#include <gtest/gtest.h>

namespace aliquot::slurm {
namespace {

TEST(JobNote, ComesBack) {
  const JobNote note{.grant = {.holder = HolderId("7"),
                               .attempt = 2,
                               .owner = Uid(1000),
                               .group = Gid(100),
                               .processes = 4,
                               .gpus = {{GpuId("GPU-1"), {gib(8), Compute(2'500)}, false}}},
                     .enforcement = "library+watchdog",
                     .mark = "mark",
                     .steps = {{Pid(12), 34}, {Pid(56), 78}},
                     .booked = 18,
                     .partition = "gpu",
                     .name = "train \"7\"",
                     .account = "physics",
                     .start_s = 1'790'000'000,
                     .time_limit_s = 3'600,
                     .checked = false};
  const auto read = parse_note(format_note(note));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->grant, note.grant);
  EXPECT_EQ(read->enforcement, note.enforcement);
  EXPECT_EQ(read->mark, note.mark);
  EXPECT_EQ(read->steps, note.steps);
  EXPECT_EQ(read->booked, 18);
  EXPECT_FALSE(read->checked);
  EXPECT_EQ(read->partition, note.partition);
  EXPECT_EQ(read->name, note.name);
  EXPECT_EQ(read->account, note.account);
  EXPECT_EQ(read->start_s, note.start_s);
  EXPECT_EQ(read->time_limit_s, note.time_limit_s);
}

// An agent that is updated goes on with the jobs of the one before it.
TEST(JobNote, OfAnEarlierVersionIsRead) {
  const auto read = parse_note(
      "mark\n12 34\n"
      R"({"id":7,"name":"wrap","uid":1000,"gid":100,"state":"RUNNING","restarts":1,"ntasks":1,)"
      R"("gres":"--gpu-mem=8G","gpus":[{"index":1,"uuid":"GPU-1","model":"a100",)"
      R"("memory":8589934592,"compute":1000,"whole":false}],"enforcement":"watchdog"})"
      "\n");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->grant.holder, HolderId("7"));
  EXPECT_TRUE(read->checked);
  EXPECT_EQ(read->grant.gpus.at(0).portion, (core::Portion{gib(8), Compute(1'000)}));
  EXPECT_EQ(read->enforcement, "watchdog");
}

TEST(JobNote, ThatIsNotWholeIsNothing) {
  for (const char* text : {"", "mark", "mark\n12 34\n", "mark\n{\"id\":7", "half"}) {
    EXPECT_FALSE(parse_note(text)) << text;
  }
}

}  // namespace
}  // namespace aliquot::slurm
