#include "cli/view/sreport_text.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

namespace aliquot::cli {
namespace {

constexpr std::int64_t kHour = 3'600'000;

// A day in UTC, of which 24 hours have passed.
struct ReportFixture {
  ReportFixture() {
    ::setenv("TZ", "UTC", 1);
    ::tzset();
    query.start = WallTime(1'800'057'600'000);  // 2027-01-16T00:00:00
    query.end = query.start + hours(24);
    facts.now = query.end;
    facts.cluster.cluster = "lab";
    facts.cluster.node.cpus = 64;
    for (const char* uuid : {"GPU-0", "GPU-1"}) {
      api::GpuInfo gpu;
      gpu.uuid = uuid;
      gpu.memory = 100;
      facts.cluster.node.gpus.push_back(gpu);
    }
    facts.proper_name = [](const std::string& user) { return "Proper " + user; };
  }
  api::JobInfo& add(const std::string& user, const std::string& account, std::int64_t from_hour,
                    std::int64_t hours_long, std::int64_t cpus) {
    api::JobInfo job;
    job.id = static_cast<std::int64_t>(facts.jobs.size()) + 1;
    job.user = user;
    job.account = account;
    job.state = "COMPLETED";
    job.node = "n1";
    job.cpus = cpus;
    job.submit_ms = job.eligible_ms = query.start.ms() + from_hour * kHour;
    job.start_ms = job.eligible_ms;
    job.end_ms = *job.start_ms + hours_long * kHour;
    return facts.jobs.emplace_back(job);
  }
  std::string report() { return format_report(query, facts).out; }

  ReportQuery query;
  ReportFacts facts;
};

// What Slurm's sreport printed of two jobs that held two CPUs for one hour and one for two.
TEST(Sreport, UtilizationAsSlurmLaysItOut) {
  ReportFixture day;
  day.add("root", "phys", 18, 1, 2);
  day.add("root", "root", 18, 2, 1);
  EXPECT_EQ(day.report(),
            "--------------------------------------------------------------------------------\n"
            "Cluster Utilization 2027-01-16T00:00:00 - 2027-01-16T23:59:59\n"
            "Usage reported in CPU Minutes\n"
            "--------------------------------------------------------------------------------\n"
            "  Cluster Allocate     Down PLND Dow     Idle  Planned Reported \n"
            "--------- -------- -------- -------- -------- -------- -------- \n"
            "      lab      240        0        0    91920        0    92160 \n");
  ASSERT_TRUE(parse_report_time("minper", day.query));
  day.query.header = false;
  EXPECT_EQ(day.report(),
            "      lab        240(0.26%)          0(0.00%)          0(0.00%)     91920(99.74%)    "
            "      0(0.00%)    92160(100.00%) \n");
}

TEST(Sreport, WaitingIsPlannedUpToWhatWasIdle) {
  ReportFixture day;
  day.query.header = false;
  day.query.format = "allocated,planned,overcommitted";
  day.query.delimiter = "|";
  day.add("ann", "", 0, 2, 60);
  // Waits for two hours beside it: 4 CPUs are idle, it wants 10.
  auto& waits = day.add("bob", "", 0, 1, 10);
  *waits.start_ms += 2 * kHour;
  *waits.end_ms += 2 * kHour;
  EXPECT_EQ(day.report(), "7800|480|720\n");
}

TEST(Sreport, OnlyWhatIsInThePeriodCounts) {
  ReportFixture day;
  day.query.kind = ReportKind::top;
  day.query.header = false;
  day.query.format = "login,used";
  day.query.delimiter = "|";
  day.add("ann", "", -5, 6, 1);  // one hour of it
  day.add("bob", "", 23, 9, 1);  // one hour of it, too
  auto& runs = day.add("eve", "", 22, 0, 1);
  runs.state = "RUNNING";
  runs.end_ms.reset();
  auto& waits = day.add("max", "", 3, 1, 1);
  waits.state = "PENDING";
  EXPECT_EQ(day.report(), "eve|120\nann|60\nbob|60\n");
}

TEST(Sreport, AccountsFromTheRootDown) {
  ReportFixture day;
  day.query.kind = ReportKind::accounts_by_user;
  day.query.tree = true;
  api::AssociationInfo account;
  account.account = "phys";
  account.parent = "root";
  day.facts.book.associations.push_back(account);
  account.account = "hep";
  account.parent = "phys";
  day.facts.book.associations.push_back(account);
  account.account = "idle";
  account.parent = "root";
  day.facts.book.associations.push_back(account);
  day.add("ann", "hep", 1, 1, 2);
  day.add("bob", "phys", 1, 1, 1);
  day.add("eve", "", 1, 1, 1);  // in no account: in one of her name
  EXPECT_EQ(day.report(),
            "--------------------------------------------------------------------------------\n"
            "Cluster/Account/User Utilization 2027-01-16T00:00:00 - 2027-01-16T23:59:59 (86400 "
            "secs)\n"
            "Usage reported in CPU Minutes\n"
            "--------------------------------------------------------------------------------\n"
            "  Cluster Account                  Login     Proper Name     Used   Energy \n"
            "--------- -------------------- --------- --------------- -------- -------- \n"
            "      lab root                                                240        0 \n"
            "      lab  phys                                               180        0 \n"
            "      lab   phys                     bob      Proper bob       60        0 \n"
            "      lab   hep                                               120        0 \n"
            "      lab    hep                     ann      Proper ann      120        0 \n"
            "      lab  eve                                                 60        0 \n"
            "      lab   eve                      eve      Proper eve       60        0 \n");
  day.query.users = {"ann"};
  day.query.header = day.query.tree = false;
  EXPECT_EQ(day.report(),
            "      lab             hep       ann      Proper ann      120        0 \n");
}

TEST(Sreport, AShareCountsAsItsPart) {
  ReportFixture day;
  day.query.kind = ReportKind::top;
  day.query.header = false;
  day.query.tres_given = true;
  day.query.tres = parse_report_tres("gres/gpu,cpu,nonsense");
  ASSERT_EQ(day.query.tres.size(), 2U);
  day.query.delimiter = "|";
  day.add("ann", "a", 0, 10, 1).gpus = {
      {.uuid = "GPU-0", .model = "", .memory = 50, .compute = 2'500}};
  day.add("ann", "b", 0, 1, 1).gpus = {
      {.uuid = "GPU-1", .model = "", .memory = 100, .compute = 10'000, .whole = true}};
  EXPECT_EQ(day.report(),
            "lab|ann|Proper ann|a|cpu|600\nlab|ann|Proper ann|a|gres/gpu|300\n"
            "lab|ann|Proper ann|b|cpu|60\nlab|ann|Proper ann|b|gres/gpu|60\n");
  day.query.group = true;
  day.query.trailing = true;
  EXPECT_EQ(day.report(),
            "lab|ann|Proper ann|a, b|cpu|660|\nlab|ann|Proper ann|a, b|gres/gpu|360|\n");
}

TEST(Sreport, PeriodsAreWholeHours) {
  ReportFixture day;  // for the time zone
  const WallTime now = day.query.start + hours(20) + minutes(30);
  const auto rounded = report_period(now - hours(3), now, now);
  EXPECT_EQ(rounded.start, day.query.start + hours(18));
  EXPECT_EQ(rounded.end, day.query.start + hours(21));
  const auto usual = report_period({}, {}, now);
  EXPECT_EQ(usual.start, day.query.start - hours(24));
  EXPECT_EQ(usual.end, day.query.start);
  const auto least = report_period(now + hours(5), now, now);
  EXPECT_EQ(least.end - least.start, hours(1));
}

TEST(Sreport, AFieldThatIsNoneIsTold) {
  ReportFixture day;
  day.query.format = "foo";
  EXPECT_EQ(format_report(day.query, day.facts).complaints,
            std::vector<std::string>{" Unknown field 'foo'"});
}

}  // namespace
}  // namespace aliquot::cli
