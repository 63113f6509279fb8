// sprio's and sshare's tables, against transcripts of Slurm's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/view/sprio_text.hpp"
#include "cli/view/sshare_text.hpp"

namespace aliquot::cli {
namespace {

api::PriorityInfo waiting_job(std::int64_t id, std::int64_t size) {
  api::PriorityInfo job;
  job.job_id = id;
  job.user = "root";
  job.partition = "gpu";
  job.fair_share = {10'000'000, 10'000};
  job.job_size = {size * 1'000, size};
  job.priority = 10'000 + size;
  return job;
}

api::PriorityList slurms_queue() {
  api::PriorityList list;
  list.weights.age.weighted = 1'000;
  list.weights.fair_share.weighted = 10'000;
  list.weights.job_size.weighted = 1'000;
  list.weights.qos_factor.weighted = 1'000;
  list.jobs = {waiting_job(11, 625), waiting_job(7, 531), waiting_job(13, 625)};
  list.jobs[2].partition = "debug";
  return list;
}

TEST(Sprio, AsSlurmPrintsIt) {
  const auto list = slurms_queue();
  SprioView view;
  view.format = sprio_format(list.weights, {});
  EXPECT_EQ(
      format_sprio(list, view).out,
      R"(          JOBID PARTITION   PRIORITY       SITE        AGE  FAIRSHARE    JOBSIZE        QOS
              7 gpu            10531          0          0      10000        531          0
             11 gpu            10625          0          0      10000        625          0
             13 debug          10625          0          0      10000        625          0
)");
  view.format = sprio_format(list.weights, {.longer = true});
  view.sort = "-Y,-i";
  const std::string tail(21, ' ');
  EXPECT_EQ(format_sprio(list, view).out,
            "          JOBID PARTITION     USER   PRIORITY       SITE        AGE      ASSOC  "
            "FAIRSHARE    "
            "JOBSIZE  PARTITION        QOS        NICE                 TRES\n"
            "             13 debug         root      10625          0          0          0      "
            "10000    "
            "    625          0          0           0" +
                tail +
                "\n"
                "             11 gpu           root      10625          0          0          0    "
                "  10000 "
                "       625          0          0           0" +
                tail +
                "\n"
                "              7 gpu           root      10531          0          0          0    "
                "  10000 "
                "       531          0          0           0" +
                tail + "\n");
}

TEST(Sprio, FactorsWeightsAndWhatIsNoField) {
  const auto list = slurms_queue();
  SprioView view;
  view.format = sprio_format(list.weights, {.normal = true, .users = true});
  view.header = false;
  const auto normal = format_sprio(list, view).out;
  EXPECT_TRUE(
      normal.starts_with("              7 gpu           root 0.00000245 0.0000000  1.0000000  "
                         "0.0531000  0.0000000 \n"))
      << normal;
  view.format = sprio_format(list.weights, {});
  view.weights = true;
  EXPECT_EQ(
      format_sprio(list, view).out,
      "        Weights                               1       1000      10000       1000       "
      "1000\n");
  view.format = "%i%x";
  EXPECT_THAT(format_sprio(list, view).complaints,
              testing::ElementsAre("Invalid job format specification: x"));
  EXPECT_EQ(format_sprio(list, view).out, "Weights\n");
  view.weights = false;
  view.format = "%i";
  view.sort = "i,x";
  EXPECT_EQ(format_sprio(list, view).error, "Invalid sort specification: x");
}

api::ShareList two_users() {
  api::ShareList list;
  list.users.push_back({.user = "ann",
                        .uid = 1000,
                        .account = "ann",
                        .norm_shares = 250'000,
                        .usage_ms = 179'500,
                        .norm_usage = 750'000,
                        .factor = 125'000,
                        .held = 10'000,
                        .held_cpu_min = 20,
                        .held_gpu_min = 4});
  list.users.push_back({.user = "bob",
                        .uid = 1001,
                        .account = "bob",
                        .shares = 3,
                        .norm_shares = 750'000,
                        .usage_ms = 60'000,
                        .norm_usage = 250'000,
                        .factor = 793'701});
  return list;
}

TEST(Sshare, TheTreeOfAccounts) {
  const auto list = two_users();
  EXPECT_EQ(
      *format_sshare(list, {&list.users[1]}, {}),
      R"(Account                    User  RawShares  NormShares    RawUsage  EffectvUsage  FairShare 
-------------------- ---------- ---------- ----------- ----------- ------------- ---------- 
root                                          0.000000         239      1.000000            
 bob                        bob          3    0.750000          60      0.250000   0.793701 
)");
}

TEST(Sshare, ForProgramsAndAtLength) {
  const auto list = two_users();
  SshareView view;
  view.format = "Account%256";
  view.header = false;
  view.users_only = true;
  view.delimiter = "|";
  EXPECT_EQ(*format_sshare(list, {&list.users[0]}, view), " ann\n");
  view.format = kSshareLong;
  view.trailing = true;
  EXPECT_EQ(*format_sshare(list, {&list.users[0], &list.users[1]}, view),
            " ann|ann|1|0.250000|179|0.750000|0.750000|0.125000|0.333333||cpu=20,gres/gpu=4|\n"
            " bob|bob|3|0.750000|60|0.250000|0.250000|0.793701|3.000000||cpu=0,gres/gpu=0|\n");
  view.format = "nope";
  EXPECT_EQ(format_sshare(list, {}, view).error().message, "Invalid field requested: \"nope\"");
}

}  // namespace
}  // namespace aliquot::cli
