#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/accounts.hpp"
#include "engine/engine_fixture.hpp"

namespace aliquot::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class AccountsFixture : public EngineFixture {
 public:
  api::AccountBook book() const { return engine->book(); }
  std::string replace(const api::AccountBook& next, Uid uid = Uid(0)) {
    const auto answer = engine->queue().accounts().replace({uid}, next);
    settle();
    return answer ? "ok" : answer.error().message;
  }
  void set_normal(const std::function<void(api::QosInfo&)>& change) {
    auto next = book();
    change(next.qos[0]);
    EXPECT_EQ(replace(next), "ok");
  }
  // u1000 and u1001 in lab, which is below the root.
  void add_lab(const std::function<void(api::AssociationInfo&)>& change = {}) {
    auto next = book();
    next.accounts.push_back({"lab", "", ""});
    next.associations.push_back({.account = "lab", .parent = "root"});
    if (change) change(next.associations.back());
    for (const char* user : {"u1000", "u1001"}) {
      next.users.push_back({user, "lab"});
      next.associations.push_back({.account = "lab", .user = user});
    }
    EXPECT_EQ(replace(next), "ok");
  }
};

class EngineAccountsTest : public testing::Test, public AccountsFixture {
 protected:
  std::vector<std::string> why(std::int64_t id) {
    const auto answer = engine->views().why({Uid(0)}, std::to_string(id));
    return answer ? answer->sentences : std::vector<std::string>{answer.error().message};
  }
};

TEST_F(EngineAccountsTest, NoneAreNeeded) {
  auto wanted = spec();
  EXPECT_EQ(job(submit(wanted)).account, "u1000");
  wanted.account = "anything";
  EXPECT_EQ(job(submit(wanted)).account, "anything");
  wanted.qos = "normal";
  EXPECT_EQ(job(submit(wanted)).qos, "normal");
  wanted.qos = "high";
  EXPECT_EQ(refusal(wanted), "ESLURM_INVALID_QOS");
}

TEST_F(EngineAccountsTest, AccountAndQosAreThoseOfTheUser) {
  add_lab();
  auto next = book();
  next.qos.push_back({.name = "high"});
  next.associations.back().qos = {"high", "normal"};  // u1001's
  ASSERT_EQ(replace(next), "ok");
  EXPECT_EQ(job(submit(spec())).account, "lab");
  EXPECT_EQ(job(submit(spec(), Uid(1002))).account, "u1002") << "nobody has to be in one";
  auto wanted = spec();
  wanted.account = "nope";
  EXPECT_EQ(refusal(wanted), "ESLURM_INVALID_ACCOUNT");
  wanted.account = "lab";
  EXPECT_EQ(refusal(wanted, Uid(1002)), "ESLURM_INVALID_ACCOUNT");
  EXPECT_EQ(refusal(wanted, Uid(0)), "accepted");
  wanted.qos = "high";
  EXPECT_EQ(refusal(wanted), "ESLURM_INVALID_QOS");
  EXPECT_EQ(job(submit(wanted, Uid(1001))).qos, "high");
  // A default of its own.
  next = book();
  next.associations.back().default_qos = "high";
  ASSERT_EQ(replace(next), "ok");
  EXPECT_EQ(job(submit(spec(), Uid(1001))).qos, "high");
}

TEST_F(EngineAccountsTest, OnlyRootChangesTheBookAndNobodyOverwritesAnother) {
  auto next = book();
  next.qos[0].priority = 5;
  EXPECT_EQ(replace(next, Uid(1000)), "only root may do this");
  EXPECT_EQ(replace(next), "ok");
  EXPECT_THAT(replace(next), HasSubstr("meanwhile"));
  crash();
  EXPECT_EQ(book().qos[0].priority, 5);
  EXPECT_EQ(book().version, 1);
}

TEST_F(EngineAccountsTest, ABookThatMakesNoSenseIsRefused) {
  const auto refused = [&](const std::function<void(api::AccountBook&)>& spoil) {
    auto next = book();
    spoil(next);
    const std::string message = replace(next);
    return message;
  };
  EXPECT_THAT(refused([](auto& one) { one.qos.clear(); }), HasSubstr("stay"));
  EXPECT_THAT(refused([](auto& one) { one.qos.push_back({.name = "a b"}); }),
              HasSubstr("'a b' is no name"));
  EXPECT_THAT(refused([](auto& one) { one.qos.push_back({.name = "normal"}); }),
              HasSubstr("two of 'normal'"));
  EXPECT_THAT(refused([](auto& one) { one.qos[0].grp_jobs = -1; }), HasSubstr("less than nothing"));
  EXPECT_THAT(refused([](auto& one) { one.associations[0].qos = {"x"}; }), HasSubstr("no QOS 'x'"));
  EXPECT_THAT(refused([](auto& one) {
                one.users.push_back({"ann", "root"});
              }),
              HasSubstr("not in his default account"));
  EXPECT_THAT(refused([](auto& one) {
                one.accounts.push_back({"a", "", ""});
                one.associations.push_back({.account = "a", .parent = "a"});
              }),
              HasSubstr("not below the root"));
  EXPECT_THAT(refused([](auto& one) { one.qos[0].description = "\033[2J"; }),
              HasSubstr("control characters"));
  EXPECT_EQ(book().version, 0);
}

TEST_F(EngineAccountsTest, MaxTresPerUserCountsSharesAsTheirParts) {
  set_normal([](auto& qos) { qos.max_tres_per_user.gpus = 15'000; });
  submit(spec("gpu:1"));
  submit(spec("mps:25"));
  const auto over = submit(spec("gpu:1"));
  EXPECT_EQ(job(over).reason, "QOSMaxGRESPerUser");
  EXPECT_THAT(why(over),
              ElementsAre("QOS normal lets each user hold 1.5 GPUs at once.",
                          "u1000 holds 1.25 GPUs with jobs 1 and 2, and this job wants 1 GPU.",
                          "It can start when enough of them have ended."));
  EXPECT_EQ(state(submit(spec("mps:25"))), "RUNNING");
  EXPECT_EQ(state(submit(spec())), "RUNNING");
  EXPECT_EQ(state(submit(spec("gpu:1"), Uid(1001))), "RUNNING");
  const auto never = submit(spec("gpu:2"));
  EXPECT_EQ(job(never).reason, "QOSMaxGRESPerUser");
  EXPECT_THAT(why(never),
              ElementsAre("QOS normal lets each user hold 1.5 GPUs at once.",
                          "This job alone wants 2 GPUs: ask for less, or have the limit raised."));
  // A higher limit acts at once.
  set_normal([](auto& qos) { qos.max_tres_per_user.gpus = 25'000; });
  EXPECT_EQ(state(over), "RUNNING");
  EXPECT_EQ(engine->views().cluster_info().config.at("MaxGpusPerUser"), "2.5");
}

TEST_F(EngineAccountsTest, LimitsOfOneJob) {
  set_normal([](auto& qos) {
    qos.max_tres.gpus = 10'000;
    qos.max_tres.cpus = 8;
    qos.max_wall_ms = hours(1).value();
  });
  EXPECT_EQ(job(submit(spec("gpu:1"))).time_limit_ms, hours(1).value());
  const auto large = submit(spec("gpu:2"));
  EXPECT_EQ(job(large).reason, "QOSMaxGRESPerJob");
  EXPECT_THAT(why(large)[0],
              "It asks for 2 GPUs, 1 CPU: more than its QOS, normal, allows one job.");
  auto wanted = spec();
  wanted.cpus_per_task = 9;
  EXPECT_EQ(job(submit(wanted)).reason, "QOSMaxCpuPerJobLimit");
  wanted = spec();
  wanted.time_limit_ms = hours(2).value();
  const auto longer = submit(wanted);
  EXPECT_EQ(job(longer).reason, "QOSMaxWallDurationPerJobLimit");
  EXPECT_THAT(why(longer),
              ElementsAre("Its time limit is 2:00:00, and its QOS, normal, allows a job 1:00:00.",
                          fmt::format("It starts with a shorter one: 'scontrol update jobid={} "
                                      "timelimit=1:00:00'.",
                                      longer)));
  set_normal([](auto& qos) { qos.deny_on_limit = true; });
  EXPECT_EQ(refusal(wanted), "ESLURM_ACCOUNTING_POLICY");
}

TEST_F(EngineAccountsTest, GroupsAndNumbersOfJobs) {
  add_lab([](auto& lab) {
    lab.grp_tres.gpus = 20'000;
    lab.max_jobs = 2;
    lab.max_submit = 4;
  });
  submit(spec("gpu:1"));
  submit(spec("gpu:1"), Uid(1001));
  const auto group = submit(spec("gpu:1"));
  EXPECT_EQ(job(group).reason, "AssocGrpGRES");
  EXPECT_THAT(why(group)[0], "The jobs of account lab may hold 2 GPUs together.");
  EXPECT_THAT(why(group)[1],
              "The jobs of account lab hold 2 GPUs with jobs 1 and 2, and this job wants 1 GPU.");
  EXPECT_EQ(state(submit(spec())), "RUNNING");
  const auto third = submit(spec());
  EXPECT_EQ(job(third).reason, "AssocMaxJobsLimit");
  EXPECT_THAT(why(third)[0], "u1000 may run 2 jobs at once in account lab.");
  EXPECT_EQ(refusal(spec()), "ESLURM_ACCOUNTING_POLICY");
  EXPECT_EQ(refusal(spec(), Uid(1001)), "accepted");
  end(1);
  EXPECT_EQ(state(group), "RUNNING") << "u1000 may run one more, and lab has a GPU free";
}

TEST_F(EngineAccountsTest, WhatHasGoneIsTold) {
  add_lab();
  auto held = spec();
  held.hold = true;
  const auto id = submit(held);
  auto next = book();
  const auto lab = [](const auto& one) { return one.account == "lab"; };
  std::erase_if(next.associations, lab);
  std::erase_if(next.users, [](const auto& one) { return one.name != "root"; });
  next.accounts[1].name = "other";
  next.associations.push_back({.account = "other", .parent = "root"});
  ASSERT_EQ(replace(next), "ok");
  ASSERT_TRUE(engine->queue().release({Uid(1000)}, std::to_string(id)));
  settle();
  EXPECT_EQ(job(id).reason, "InvalidAccount");
}

TEST_F(EngineAccountsTest, APartitionHasLimitsOfItsOwn) {
  settings.partitions = {{.name = "main"},
                         {.name = "two", .is_default = false, .gpu_count = 2},
                         {.name = "course", .is_default = false, .qos = "course"}};
  crash();
  auto next = book();
  next.qos.push_back({.name = "course"});
  next.qos.back().max_tres_per_user.gpus = 2'500;
  ASSERT_EQ(replace(next), "ok");
  auto wanted = spec("gpu:1");
  wanted.partition = "two";
  submit(wanted);
  submit(wanted, Uid(1001));
  const auto third = submit(wanted);
  EXPECT_EQ(job(third).reason, "QOSGrpGRES");
  EXPECT_THAT(why(third)[0], "The jobs of partition two may hold 2 GPUs together.");
  EXPECT_EQ(refusal([&] {
              auto more = wanted;
              more.gres = "gpu:3";
              return more;
            }()),
            "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE");
  wanted.partition = "course";
  wanted.gres = "mps:25";
  EXPECT_EQ(state(submit(wanted)), "RUNNING");
  EXPECT_EQ(job(submit(wanted)).reason, "QOSMaxGRESPerUser");
  wanted.partition = "main";
  EXPECT_EQ(state(submit(wanted)), "RUNNING");
}

// Its words are of the QOS that says so: here not the job's own.
TEST_F(EngineAccountsTest, APartitionsQosIsNamedWhereItIsTheOne) {
  settings.partitions = {{.name = "main"},
                         {.name = "course", .is_default = false, .qos = "course"}};
  crash();
  auto next = book();
  next.qos.push_back({.name = "course"});
  next.qos.back().max_wall_ms = minutes(60).value();
  next.qos.back().max_tres.gpus = 20'000;
  ASSERT_EQ(replace(next), "ok");
  auto wanted = spec("gpu:1");
  wanted.partition = "course";
  const auto usual = submit(wanted);
  EXPECT_EQ(job(usual).time_limit_ms, minutes(60).value()) << "what the partition's QOS allows";
  EXPECT_EQ(state(usual), "RUNNING");
  wanted.time_limit_ms = minutes(120).value();
  const auto longer = submit(wanted);
  EXPECT_EQ(job(longer).reason, "QOSMaxWallDurationPerJobLimit");
  EXPECT_EQ(why(longer)[0],
            "Its time limit is 2:00:00, and the QOS of its partition, course, allows a job "
            "1:00:00.");
  wanted.time_limit_ms = minutes(10).value();
  wanted.gres = "gpu:3";
  EXPECT_THAT(why(submit(wanted))[0],
              HasSubstr("more than the QOS of its partition, course, allows one job."));
}

// Jobs of besteffort count among their user's jobs, and not among the GPUs; who started first
// changes nothing for the others.
TEST_F(EngineAccountsTest, WhatMayBePushedAsideLeavesTheOthersTheirLimit) {
  set_normal([](auto& qos) {
    qos.max_tres_per_user.gpus = 10'000;
    qos.max_jobs_per_user = 4;
  });
  auto spare = spec("gpu:2");
  spare.partition = "besteffort";
  EXPECT_EQ(state(submit(spare)), "RUNNING");
  EXPECT_EQ(state(submit(spec("gpu:1"))), "RUNNING");
  EXPECT_EQ(job(submit(spec("gpu:1"))).reason, "QOSMaxGRESPerUser");
  EXPECT_EQ(state(submit(spec())), "RUNNING");
  EXPECT_EQ(state(submit(spec())), "RUNNING");
  EXPECT_EQ(job(submit(spec())).reason, "QOSMaxJobsPerUserLimit");
}

TEST_F(EngineAccountsTest, ALabelGivesNobodyMore) {
  auto next = book();
  next.associations[0].max_jobs = 2;
  ASSERT_EQ(replace(next), "ok");
  auto wanted = spec();
  submit(wanted);
  wanted.account = "one";
  submit(wanted);
  wanted.account = "other";
  const auto third = submit(wanted);
  EXPECT_EQ(job(third).reason, "AssocMaxJobsLimit");
  EXPECT_THAT(why(third)[0], "u1000 may run 2 jobs at once.");
}

TEST_F(EngineAccountsTest, InSeveralPartitionsTheDefaultTimeIsWithinMaxWall) {
  set_normal([](auto& qos) { qos.max_wall_ms = hours(1).value(); });
  auto wanted = spec("gpu:1");
  wanted.partition = "main,besteffort";
  const auto id = submit(wanted);
  EXPECT_EQ(state(id), "RUNNING");
  EXPECT_EQ(job(id).time_limit_ms, hours(1).value());
}

// Users submit, jobs end, limits and jobs change, at random: after every step what runs keeps every
// limit that it kept when it started, counted anew from what is shown.
RC_GTEST_PROP(EngineAccountsProperty, EveryLimitHoldsAtEveryInstant, ()) {
  AccountsFixture engine;
  engine.add_lab();
  std::int64_t gpus_per_user = INT64_MAX;
  std::int64_t jobs_per_user = INT64_MAX;
  std::int64_t lab_gpus = INT64_MAX;
  std::set<std::int64_t> before;
  const int steps = *rc::gen::inRange(5, 40);
  for (int step = 0; step < steps; ++step) {
    const auto lower = [](std::optional<std::int64_t>& limit, std::int64_t& known,
                          std::vector<std::int64_t> choices) {
      known = *rc::gen::elementOf(choices);
      limit = known == INT64_MAX ? std::nullopt : std::optional(known);
    };
    switch (*rc::gen::inRange(0, 8)) {
      case 0: {
        auto next = engine.book();
        lower(next.qos[0].max_tres_per_user.gpus, gpus_per_user,
              {5'000, 10'000, 20'000, INT64_MAX});
        lower(next.qos[0].max_jobs_per_user, jobs_per_user, {1, 2, 4, INT64_MAX});
        for (auto& one : next.associations) {
          if (one.account != "lab" || !one.user.empty()) continue;
          lower(one.grp_tres.gpus, lab_gpus, {7'500, 15'000, INT64_MAX});
        }
        RC_ASSERT(engine.replace(next) == "ok");
        break;
      }
      case 1:
      case 2: {
        const auto active = engine.engine->active();
        if (active.empty()) break;
        engine.end(active[*rc::gen::inRange<std::size_t>(0, active.size())]->id.value());
        break;
      }
      case 3: {
        std::vector<std::int64_t> waiting;
        const auto all = engine.list({Uid(0)}, {});
        for (const auto& job : all->jobs) {
          if (job.state == "PENDING") waiting.push_back(job.id);
        }
        if (waiting.empty()) break;
        (void)engine.update(
            {Uid(0)}, std::to_string(*rc::gen::elementOf(waiting)),
            *rc::gen::arbitrary<bool>() ? R"({"gres":"gpu:2"})" : R"({"gres":"mps:25"})");
        engine.settle();
        break;
      }
      case 4:
        engine.crash();
        engine.settle();
        break;
      default: {
        auto wanted = engine.spec(*rc::gen::element<std::string>("", "gpu:1", "mps:25", "gpu:2"));
        if (*rc::gen::inRange(0, 4) == 0) wanted.array = "1-3";
        (void)engine.submit(wanted, Uid(static_cast<std::uint32_t>(*rc::gen::inRange(1000, 1003))));
      }
    }
    std::map<std::uint32_t, std::int64_t> gpus;
    std::map<std::uint32_t, std::int64_t> jobs;
    std::int64_t lab = 0;
    std::set<std::int64_t> now;
    bool started_with_gpus = false;
    for (const Job* job : engine.engine->active()) {
      std::int64_t held = 0;
      for (const HeldGpu& gpu : job->gpus) held += gpu.granted.portion.compute.value();
      gpus[job->owner.uid.value()] += held;
      ++jobs[job->owner.uid.value()];
      if (job->spec.account == "lab") lab += held;
      now.insert(job->id.value());
      if (!before.contains(job->id.value()) && held > 0 && job->spec.account == "lab") {
        started_with_gpus = true;
      }
    }
    // A limit that was lowered ends nothing: only what starts has to keep it.
    for (const Job* job : engine.engine->active()) {
      if (before.contains(job->id.value())) continue;
      const auto uid = job->owner.uid.value();
      if (!job->gpus.empty()) RC_ASSERT(gpus[uid] <= gpus_per_user);
      RC_ASSERT(jobs[uid] <= jobs_per_user);
    }
    if (started_with_gpus) RC_ASSERT(lab <= lab_gpus);
    before = now;
  }
}

}  // namespace
}  // namespace aliquot::engine
