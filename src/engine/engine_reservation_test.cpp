#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_fixture.hpp"

namespace aliquot::engine {
namespace {

using testing::HasSubstr;

class EngineReservationTest : public testing::Test, public EngineFixture {
 protected:
  // Two GPUs for u1000, from in an hour on and for two.
  api::ReservationSpec course() const {
    return {.name = "course",
            .start_ms = (clock.wall() + hours(1)).ms(),
            .duration_ms = hours(2).value(),
            .users = std::vector<std::string>{"u1000"},
            .gpus = std::vector<std::int64_t>{0, 1}};
  }
  std::string create(const api::ReservationSpec& spec, Uid uid = Uid(0)) {
    const auto answer = engine->queue().reservations().create({uid}, spec);
    settle();
    return answer ? *answer : answer.error().message;
  }
  api::JobSpec in(const std::string& reservation, const std::string& gres) const {
    auto wanted = spec(gres);
    wanted.reservation = reservation;
    return wanted;
  }
  api::JobSpec lasting(const std::string& gres, Millis length) const {
    auto wanted = spec(gres);
    wanted.time_limit_ms = length.value();
    return wanted;
  }
  std::set<std::string> gpus_of(std::int64_t id) {
    std::set<std::string> gpus;
    for (const auto& gpu : job(id).gpus) gpus.insert(gpu.uuid);
    return gpus;
  }
};

TEST_F(EngineReservationTest, ItsGpusAreForItsUsersAloneAndOnlyThen) {
  ASSERT_EQ(create(course()), "course");
  // Others may be there until it begins.
  const auto shorter = submit(lasting("gpu:4", minutes(60)), Uid(1001));
  EXPECT_EQ(state(shorter), "RUNNING");
  end(shorter);
  const auto longer = submit(lasting("gpu:3", minutes(61)), Uid(1001));
  EXPECT_EQ(state(longer), "PENDING");
  const auto beside = submit(spec("gpu:2"), Uid(1001));
  EXPECT_EQ(gpus_of(beside), (std::set<std::string>{"GPU-2", "GPU-3"}));
  const auto mine = submit(in("course", "gpu:1"));
  EXPECT_EQ(job(mine).reason, "Reservation");
  EXPECT_THAT(job(mine).reason_detail, HasSubstr("begins in 1:00:00"));
  EXPECT_EQ(engine->next_due(), clock.wall() + hours(1));
  crash();
  clock.advance(hours(1));
  settle();
  EXPECT_EQ(state(mine), "RUNNING");
  EXPECT_EQ(job(mine).time_limit_ms, hours(2).value()) << "until the reservation ends";
  EXPECT_EQ(gpus_of(submit(in("course", "mps:50"))).size(), 1U);
  EXPECT_EQ(state(submit(spec("gpu:1"))), "PENDING") << "who does not name it is not in it";
  clock.advance(hours(2));
  settle();
  EXPECT_TRUE(engine->reservations().empty());
  const auto late = submit(spec());
  EXPECT_EQ(refusal(in("course", "gpu:1")), "ESLURM_RESERVATION_INVALID");
  EXPECT_EQ(state(late), "RUNNING");
}

TEST_F(EngineReservationTest, WhoIsInItNoMoreDoesNotStartInIt) {
  ASSERT_EQ(create(course()), "course");
  const auto mine = submit(in("course", "gpu:1"));
  auto others = course();
  others.users = std::vector<std::string>{"u1001"};
  ASSERT_TRUE(engine->queue().reservations().update({Uid(0)}, others));
  clock.advance(hours(1));
  settle();
  EXPECT_EQ(state(mine), "PENDING");
  EXPECT_THAT(job(mine).reason_detail, HasSubstr("course, is not for u1000 any more"));
}

TEST_F(EngineReservationTest, WhoIsNotInItIsRefused) {
  ASSERT_EQ(create(course()), "course");
  EXPECT_EQ(refusal(in("course", "gpu:1"), Uid(1001)), "ESLURM_RESERVATION_ACCESS");
  EXPECT_EQ(refusal(in("nope", "gpu:1")), "ESLURM_RESERVATION_INVALID");
  EXPECT_EQ(refusal(in("course", "gpu:3")), "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE");
  EXPECT_EQ(refusal(in("course", "gpu:2"), Uid(0)), "accepted");
  auto longer = in("course", "gpu:1");
  longer.time_limit_ms = hours(3).value();
  const auto id = submit(longer);
  clock.advance(hours(1));
  settle();
  EXPECT_THAT(job(id).reason_detail, HasSubstr("before its time limit would"));
}

TEST_F(EngineReservationTest, WhatCannotBeIsRefused) {
  EXPECT_EQ(create(course(), Uid(1000)), "only root may do this");
  const auto refused = [&](const std::function<void(api::ReservationSpec&)>& spoil) {
    auto wanted = course();
    spoil(wanted);
    return create(wanted);
  };
  EXPECT_THAT(refused([](auto& one) { one.duration_ms.reset(); }), HasSubstr("needs a Duration"));
  EXPECT_THAT(refused([](auto& one) { one.users->clear(); }), HasSubstr("for somebody"));
  EXPECT_THAT(refused([](auto& one) { one.gpus = std::vector<std::int64_t>{7}; }),
              HasSubstr("no GPU 7"));
  EXPECT_THAT(refused([](auto& one) { one.gpus.reset(); }), HasSubstr("needs GPUs"));
  EXPECT_THAT(refused([](auto& one) { one.name = "a b"; }), HasSubstr("one word"));
  EXPECT_THAT(refused([](auto& one) { one.accounts = std::vector<std::string>{"nope"}; }),
              HasSubstr("no account 'nope'"));
  // A job without a time limit is on its GPUs.
  const auto id = submit(spec("gpu:4"), Uid(1001));
  EXPECT_THAT(create(course()), HasSubstr("IGNORE_JOBS"));
  EXPECT_EQ(refused([](auto& one) { one.ignore_jobs = true; }), "course");
  EXPECT_EQ(state(id), "RUNNING");
  EXPECT_THAT(create(course()), HasSubstr("already"));
  EXPECT_THAT(refused([](auto& one) {
                one.name = "other";
                one.gpus = std::vector<std::int64_t>{1, 2};
              }),
              HasSubstr("GPU 1 is reserved then"));
}

TEST_F(EngineReservationTest, OfANumberTheFreeOnesAreChosenAndItCanBeChanged) {
  submit(spec("gpu:1"), Uid(1001));
  const std::string held = *gpus_of(1).begin();
  auto wanted = course();
  wanted.name.clear();
  wanted.gpus.reset();
  wanted.gpu_count = 3;
  EXPECT_EQ(create(wanted), "u0_1");
  ASSERT_EQ(engine->reservations().size(), 1U);
  for (const auto index : engine->reservations()[0].gpus) {
    EXPECT_NE("GPU-" + std::to_string(index), held);
  }
  ASSERT_TRUE(engine->queue().reservations().update(
      {Uid(0)}, {.name = "u0_1", .users = std::vector<std::string>{"u1001"}}));
  settle();
  crash();
  EXPECT_EQ(engine->reservations()[0].users, std::vector<std::string>{"u1001"});
  EXPECT_EQ(engine->reservations()[0].gpus.size(), 3U);
  EXPECT_FALSE(engine->queue().reservations().remove({Uid(0)}, "nope"));
}

TEST_F(EngineReservationTest, SharesMayBeForReservationsAlone) {
  settings.shares_in_reservations = true;
  crash();
  ASSERT_EQ(create(course()), "course");
  const auto refused = engine->queue().submit({Uid(1000)}, spec("mps:25"));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("parts of a GPU are for reservations"));
  EXPECT_EQ(refusal(in("course", "mps:25")), "accepted");
  EXPECT_EQ(refusal(spec("gpu:1")), "accepted");
}

// Sixty students with an eighth each are 7.5 GPUs: on eight all of them run.
TEST_F(EngineReservationTest, ACourseOfSixty) {
  machine.gpus = gpu::fake_gpus(8, "h200", gib(140));
  machine.cpus = 128;
  crash();
  std::vector<std::string> students;
  for (std::uint32_t i = 0; i < 60; ++i) students.push_back(fmt::format("u{}", 2000 + i));
  auto wanted = course();
  wanted.start_ms.reset();
  wanted.users = students;
  wanted.gpus = std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7};
  ASSERT_EQ(create(wanted), "course");
  for (std::uint32_t i = 0; i < 60; ++i) {
    EXPECT_EQ(state(submit(in("course", "shard:1"), Uid(2000 + i))), "RUNNING") << i;
  }
}

// Slices have their GPU's number: who reserves it has all of them, and who is on one is on it.
TEST_F(EngineReservationTest, AGpuIsReservedWithAllItsSlices) {
  for (unsigned slice = 0; slice < 3; ++slice) {
    machine.gpus[slice].index = 0;
    machine.gpus[slice].slice = slice;
  }
  crash();
  std::map<std::string, std::int64_t> on;
  for (int i = 0; i < 4; ++i) {
    const auto id = submit(spec("gpu:1"), Uid(1001));
    on[*gpus_of(id).begin()] = id;
  }
  ASSERT_EQ(on.size(), 4U);
  end(on["GPU-0"]);
  end(on["GPU-2"]);
  end(on["GPU-3"]);
  auto wanted = course();
  wanted.gpus = std::vector<std::int64_t>{0};
  EXPECT_THAT(create(wanted), HasSubstr("jobs may run on GPU 0 then"));
  wanted.gpus.reset();
  wanted.gpu_count = 1;
  ASSERT_EQ(create(wanted), "course");
  EXPECT_EQ(engine->reservations()[0].gpus, std::vector<std::int64_t>{3}) << "the free one";
  ASSERT_TRUE(engine->queue().reservations().remove({Uid(0)}, "course"));
  end(on["GPU-1"]);
  wanted.gpu_count = 3;
  EXPECT_THAT(create(wanted), HasSubstr("2 GPUs are not reserved"));
  wanted.gpu_count = 2;
  ASSERT_EQ(create(wanted), "course");
  EXPECT_EQ(engine->reservations()[0].gpus, (std::vector<std::int64_t>{0, 3}));
}

}  // namespace
}  // namespace aliquot::engine
