#include "cli/control/scontrol_reservation.hpp"

#include <gtest/gtest.h>

#include "cli/view/samples.hpp"

namespace aliquot::cli {
namespace {

constexpr WallTime kThen{1'800'000'000'000};

TEST(ScontrolReservation, ReadsSlurmsWords) {
  const auto spec =
      parse_reservation({"ReservationName=course", "starttime=now", "duration=2:00:00",
                         "users=ann,bob", "TRES=gres/gpu=2", "flags=ignore_jobs"},
                        {0, 1, 2}, kThen);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->name, "course");
  EXPECT_EQ(spec->start_ms, kThen.ms());
  EXPECT_EQ(spec->duration_ms, hours(2).value());
  EXPECT_EQ(*spec->users, (std::vector<std::string>{"ann", "bob"}));
  EXPECT_EQ(spec->gpu_count, 2);
  EXPECT_TRUE(spec->ignore_jobs);
  EXPECT_EQ(parse_reservation({"Nodes=ALL"}, {0, 1, 2}, kThen)->gpus->size(), 3U);
  EXPECT_EQ(*parse_reservation({"Gpus=1,2"}, {}, kThen)->gpus, (std::vector<std::int64_t>{1, 2}));
  for (const char* wrong : {"TRES=cpu=4", "TRES=gres/gpu=x", "Flags=MAINT", "Duration=UNLIMITED",
                            "StartTime=yesterdayish", "Gpus=a", "CoreCnt=4", "Users+=x"}) {
    EXPECT_FALSE(parse_reservation({wrong}, {}, kThen)) << wrong;
  }
}

TEST(ScontrolReservation, ShowsThemAsSlurmDoes) {
  samples::use_utc();
  api::ClusterInfo cluster;
  cluster.node.name = "localhost";
  cluster.node.cpus = 16;
  const api::ReservationInfo one{.name = "course",
                                 .start_ms = kThen.ms(),
                                 .end_ms = (kThen + hours(2)).ms(),
                                 .users = {"ann", "bob"},
                                 .accounts = {},
                                 .gpus = {0, 1}};
  EXPECT_EQ(
      show_reservation(one, cluster, {}, kThen),
      R"(ReservationName=course StartTime=2027-01-15T08:00:00 EndTime=2027-01-15T10:00:00 Duration=02:00:00
   Nodes=localhost NodeCnt=1 CoreCnt=16 Features=(null) PartitionName=(null) Flags=
   TRES=gres/gpu=2
   Users=ann,bob Groups=(null) Accounts=(null) Licenses=(null) State=ACTIVE BurstBuffer=(null) Watts=n/a
   MaxStartDelay=(null)
   Gpus=0,1

)");
  EXPECT_EQ(reservation_table({one}, cluster, true, kThen - hours(1)),
            "RESV_NAME    STATE          START_TIME            END_TIME    DURATION NODELIST\n"
            "course    INACTIVE 2027-01-15T08:00:00 2027-01-15T10:00:00     2:00:00 localhost\n");
}

}  // namespace
}  // namespace aliquot::cli
