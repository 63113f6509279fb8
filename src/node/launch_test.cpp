#include "node/launch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <signal.h>

namespace aliquot::node {
namespace {

using ::testing::HasSubstr;

Launch example() {
  Launch launch;
  launch.job_id = 26;
  launch.attempt = 1;
  launch.node = "host1";
  launch.mark = "26:ab";
  launch.uid = 1000;
  launch.gid = 100;
  launch.groups = {100, 44};
  launch.script = "/var/lib/aliquot/jobs/26/script";
  launch.arguments = {"a", "", "b\n\"c\""};
  launch.environment = {"A=1", "BYTES=\xff\xfe", "EMPTY="};
  launch.work_dir = "/home/me";
  launch.std_out = "/home/me/slurm-26.out";
  launch.append = true;
  launch.umask = 027;
  launch.limits = {{.resource = 7, .soft = 1024, .hard = RLIM_INFINITY}};
  launch.group.folders = {{"cpu", "/sys/fs/cgroup/cpu/aliquot/job_26"}};
  launch.time_limit_ms = 60'000;
  launch.signal = EarlySignal{.number = SIGUSR1, .before_s = 30, .batch_only = true};
  return launch;
}

TEST(Launch, GoesThroughJsonUnchanged) {
  const auto before = example();
  const auto after = launch_from_json(to_json(before));
  ASSERT_TRUE(after) << after.error().message;
  EXPECT_EQ(to_json(*after), to_json(before));
  EXPECT_EQ(after->environment, before.environment) << "bytes that are no UTF-8 too";
  EXPECT_EQ(after->arguments, before.arguments);
  EXPECT_EQ(after->limits.at(0).hard, RLIM_INFINITY);
  EXPECT_EQ(after->group, before.group);
  EXPECT_EQ(after->time_limit_ms, 60'000);
  EXPECT_EQ(after->signal->before_s, 30);
}

TEST(Launch, KeepsDefaultsAndIgnoresTheUnknown) {
  const auto launch =
      launch_from_json(R"({"job_id": 7, "uid": 5, "script": "/s", "of_tomorrow": {"x": 1}})");
  ASSERT_TRUE(launch) << launch.error().message;
  EXPECT_EQ(launch->kill_wait_ms, 30'000);
  EXPECT_FALSE(launch->time_limit_ms);
  EXPECT_EQ(launch->umask, 0022U);
}

TEST(Launch, NamesTheFieldThatIsWrong) {
  EXPECT_THAT(launch_from_json(R"({"job_id": 7, "uid": "root", "script": "/s"})").error().message,
              HasSubstr("'uid'"));
  EXPECT_THAT(launch_from_json(R"({"job_id": 7, "uid": 5, "script": "/s", "arguments": [1]})")
                  .error()
                  .message,
              HasSubstr("'arguments'"));
  EXPECT_THAT(
      launch_from_json("{\"job_id\": 7, \"uid\": 5, \"script\": \"/a\\u0000b\"}").error().message,
      HasSubstr("'script'"));
}

TEST(Launch, NeverMeansRootByOmission) {
  EXPECT_FALSE(launch_from_json(R"({"job_id": 7, "script": "/s"})"));
  EXPECT_FALSE(launch_from_json(R"({"uid": 7, "script": "/s"})"));
  EXPECT_FALSE(launch_from_json(R"({"job_id": 7, "uid": 5, "script": "s"})"));
  EXPECT_FALSE(launch_from_json("[]"));
  EXPECT_FALSE(launch_from_json(""));
}

RC_GTEST_PROP(Launch, AnyBytesMakeAnErrorOrALaunch, (const std::string& text)) {
  static_cast<void>(launch_from_json(text));
  static_cast<void>(exit_from_json(text));
  static_cast<void>(command_from_line(text));
}

RC_GTEST_PROP(Launch, ArgumentsComeBackByteForByte, (std::vector<std::string> words)) {
  for (auto& word : words) std::erase(word, '\0');
  auto launch = example();
  launch.arguments = words;
  const auto after = launch_from_json(to_json(launch));
  RC_ASSERT(after.has_value());
  RC_ASSERT(after->arguments == words);
}

TEST(ExitRecord, GoesThroughJsonUnchanged) {
  ExitRecord record;
  record.job_id = 26;
  record.attempt = 3;
  record.exit_code = 2;
  record.exit_signal = 15;
  record.reason = EndReason::launch_failed;
  record.detail = "why \"so\"";
  record.start_ms = 1;
  record.end_ms = 2;
  record.max_rss = 5;
  record.leftovers = 6;
  const auto after = exit_from_json(to_json(record));
  ASSERT_TRUE(after) << after.error().message;
  EXPECT_EQ(to_json(*after), to_json(record));
  EXPECT_EQ(after->reason, EndReason::launch_failed);
  EXPECT_FALSE(exit_from_json(R"({"reason": "boredom"})"));
}

TEST(Command, IsALine) {
  EXPECT_EQ(to_line(CancelCommand{}), "cancel\n");
  EXPECT_EQ(to_line(CancelCommand{"DUE TO\nPREEMPTION"}), "cancel DUE TO PREEMPTION\n");
  EXPECT_EQ(to_line(CancelCommand{"DUE TO PREEMPTION", seconds(1)}),
            "cancel within=1000 DUE TO PREEMPTION\n");
  EXPECT_EQ(to_line(SignalCommand{10, Target::all}), "signal 10 all\n");
  EXPECT_EQ(to_line(SuspendCommand{}), "suspend\n");
  EXPECT_EQ(to_line(ResumeCommand{}), "resume\n");
  EXPECT_EQ(to_line(LimitCommand{Millis(1500)}), "limit 1500\n");
  EXPECT_EQ(to_line(LimitCommand{}), "limit none\n");
  for (const auto* line : {"cancel\n", "cancel DUE TO PREEMPTION\n", "cancel within=7\n",
                           "cancel within=7 A B\n", "signal 10 batch\n", "signal 64 steps\n",
                           "suspend\n", "resume\n", "limit 7\n", "limit none\n"}) {
    const auto command = command_from_line(line);
    ASSERT_TRUE(command) << line;
    EXPECT_EQ(to_line(*command), line);
  }
  for (const auto* line : {"", "signal", "signal 0 all", "signal 65 all", "signal 9", "signal 9 me",
                           "limit", "limit -1", "resume now", "dance"}) {
    EXPECT_FALSE(command_from_line(line)) << line;
  }
}

}  // namespace
}  // namespace aliquot::node
