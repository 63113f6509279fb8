#include "core/fair_share.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>

namespace aliquot::core {
namespace {

Cluster shared_machine(int gpus) {
  Node node{.id = NodeId("n"), .cpus = CpuMilli(64'000), .memory = gib(512)};
  for (int i = 0; i < gpus; ++i) {
    node.gpus.push_back({.id = GpuId("GPU-" + std::to_string(i)), .model = "m", .memory = gib(80)});
  }
  return *Cluster::create({node});
}

Use held_share(Bytes memory, Compute compute) {
  return {0, kOneCpu, Bytes(0), {{0, {memory, compute}, false}}};
}

TEST(FairShare, AShareCountsAsTheLargerOfItsParts) {
  const Cluster cluster = shared_machine(4);
  EXPECT_EQ(billed(cluster, held_share(gib(20), Compute(1'000))), Compute(2'500));
  EXPECT_EQ(billed(cluster, held_share(gib(8), Compute(5'000))), Compute(5'000));
  EXPECT_EQ(billed(cluster, Use{0, kOneCpu, Bytes(0), {{1, {gib(80), kWholeGpu}, true}}}),
            kWholeGpu);
  EXPECT_EQ(billed(cluster, Use{0, CpuMilli(32'000), Bytes(0), {}}), 2 * kWholeGpu);
  EXPECT_EQ(billed(shared_machine(0), Use{0, CpuMilli(3'000), Bytes(0), {}}), 3 * kWholeGpu);
}

// Compute may be granted several times over: a whole GPU is one, and no share is more.
TEST(FairShare, OverCommittedComputeIsNoMoreThanAGpu) {
  Node node{.id = NodeId("n"), .cpus = CpuMilli(8'000), .memory = gib(8)};
  node.gpus.push_back({.id = GpuId("GPU-0"), .model = "m", .memory = gib(80)});
  node.compute_limit = 4 * kWholeGpu;
  const Cluster cluster = *Cluster::create({node});
  EXPECT_EQ(billed(cluster, held_share(gib(1), 3 * kWholeGpu)), kWholeGpu);
}

TEST(FairShare, WhatWaitsIsCountedAsWhatRuns) {
  const Cluster cluster = shared_machine(4);
  Request request{
      .gpus = GpuRequest{.count = 2, .what = Amounts{gib(40), std::nullopt}, .models = {}},
      .cpus = kOneCpu,
      .memory = {}};
  EXPECT_EQ(billed(cluster, *cluster.shape(request)), kWholeGpu);
  EXPECT_DOUBLE_EQ(part_of_all(cluster, *cluster.shape(request)), 0.25);
}

TEST(FairShare, HalfIsLeftAfterAHalfLife) {
  UsageBook book(days(7));
  const WallTime start(0);
  book.charge(Uid(1), kWholeGpu, hours(1), start);
  const double then = book.usage(Uid(1), start);
  EXPECT_NEAR(then, 3'600, 15);
  EXPECT_NEAR(book.usage(Uid(1), start + days(7)), then / 2, 1e-9);
  EXPECT_EQ(book.usage(Uid(1), start - days(1)), then) << "the clock was set back";
  EXPECT_EQ(book.usage(Uid(2), start), 0);
  book.set_half_life(Millis(0));
  EXPECT_EQ(book.usage(Uid(1), start + days(900)), then) << "nothing fades";
}

TEST(FairShare, TheFactorIsSlurms) {
  std::vector<Standing> all;
  find_standings({{.user = Uid(1), .shares = 1, .usage = 50, .held = {}},
                  {.user = Uid(2), .shares = 3, .usage = 50, .held = {}},
                  {.user = Uid(3), .shares = 0, .usage = 0, .held = {}}},
                 all);
  EXPECT_DOUBLE_EQ(all[0].factor, std::exp2(-0.5 / 0.25));
  EXPECT_DOUBLE_EQ(all[1].factor, std::exp2(-0.5 / 0.75));
  EXPECT_DOUBLE_EQ(all[2].factor, 1);
}

TEST(FairShare, ThePartsAddUp) {
  const PriorityModel model({}, days(7), {{.user = Uid(1), .shares = 1, .usage = 0, .held = {}}});
  Urgency urgency;
  urgency.waited = hours(84);
  urgency.factors = {.job_size = 1, .partition = 1, .qos = 0.5};
  urgency.nice = 100;
  const Priority sum = model.priority(urgency);
  EXPECT_EQ(sum.age, 500);
  EXPECT_EQ(sum.fair_share, 100'000);
  EXPECT_EQ(sum.job_size, 0);
  EXPECT_EQ(sum.partition, 10'000);
  EXPECT_EQ(sum.qos, 5'000);
  EXPECT_EQ(sum.total, 115'400);
  EXPECT_EQ(model.fixed_part(urgency) + model.moving_part(urgency), sum.total);
  urgency.nice = 1'000'000;
  EXPECT_EQ(model.priority(urgency).total, 1);
  urgency.fixed = 7;
  EXPECT_EQ(model.priority(urgency).total, 7);
}

struct Charge {
  Compute held;
  Millis length;
  WallTime end;
};

std::vector<Charge> some_charges() {
  std::vector<Charge> all;
  const int count = *rc::gen::inRange(1, 12);
  for (int i = 0; i < count; ++i) {
    all.push_back({Compute(*rc::gen::inRange(0, 80'000)), Millis(*rc::gen::inRange(0, 9'000'000)),
                   WallTime(*rc::gen::inRange<std::int64_t>(0, 4'000'000'000))});
  }
  return all;
}

// In whichever order ends come on record, and never below nothing.
RC_GTEST_PROP(FairShare, UsageIsOfNoOrderAndNeverNegative, ()) {
  const Millis half_life = *rc::gen::element(Millis(0), hours(1), days(7));
  auto charges = some_charges();
  std::ranges::sort(charges, {}, &Charge::end);
  const WallTime now = charges.back().end + Millis(*rc::gen::inRange(0, 1'000'000'000));
  UsageBook whole(half_life);
  for (const Charge& one : charges) whole.charge(Uid(1), one.held, one.length, one.end);
  double sum = 0;
  for (const Charge& one : charges) {
    const double left =
        charge_of(one.held, one.length, half_life) * faded(half_life, now - one.end);
    RC_ASSERT(left >= 0);
    sum += left;
  }
  RC_ASSERT(std::abs(whole.usage(Uid(1), now) - sum) <= 1e-9 * (1 + sum));
}

// A run that is charged in two halves has cost the same.
RC_GTEST_PROP(FairShare, AChargeMayBeSplit, ()) {
  const Millis half_life = *rc::gen::element(Millis(0), minutes(1), days(7));
  const Compute held(*rc::gen::inRange(1, 80'000));
  const Millis first(*rc::gen::inRange(0, 10'000'000));
  const Millis second(*rc::gen::inRange(0, 10'000'000));
  const double whole = charge_of(held, first + second, half_life);
  const double halves = charge_of(held, first, half_life) * faded(half_life, second) +
                        charge_of(held, second, half_life);
  RC_ASSERT(std::abs(whole - halves) <= 1e-9 * (1 + whole));
}

RC_GTEST_PROP(FairShare, UsageOnlyFadesWhereNothingRuns, ()) {
  UsageBook book(*rc::gen::element(hours(1), days(7)));
  for (const Charge& one : some_charges()) book.charge(Uid(1), one.held, one.length, WallTime(0));
  double last = book.usage(Uid(1), WallTime(0));
  for (int i = 1; i < 20; ++i) {
    const double now = book.usage(Uid(1), WallTime(i * 40'000'000));
    RC_ASSERT(now >= 0);
    RC_ASSERT(now <= last);
    last = now;
  }
}

// The model that goes on by itself comes to the same as the book that is asked anew.
RC_GTEST_PROP(FairShare, WhatRunsIsCountedAsItGoes, ()) {
  const Millis half_life = *rc::gen::element(Millis(0), hours(1), days(7));
  const Compute held(*rc::gen::inRange(1, 80'000));
  const Millis length(*rc::gen::inRange(1, 10'000'000));
  PriorityModel model({}, half_life, {{.user = Uid(1), .shares = 1, .usage = 0, .held = held}});
  const Millis part(*rc::gen::inRange<std::int64_t>(0, length.value()));
  model.pass(part);
  model.pass(length - part);
  const double whole = charge_of(held, length, half_life);
  RC_ASSERT(std::abs(model.sharers()[0].usage - whole) <= 1e-9 * (1 + whole));
}

}  // namespace
}  // namespace aliquot::core
