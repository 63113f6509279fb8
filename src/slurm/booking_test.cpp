#include "slurm/booking_model_test.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "slurm/site_settings.hpp"
#include "slurm/slurm_grant.hpp"

namespace aliquot::slurm {
namespace {

using core::Amounts;
using core::Tickets;
using core::WholeGpu;
using namespace test;

constexpr Bytes kH200 = mib(143'771);  // 140.4 GiB: not a multiple of the unit
constexpr Bytes kShard = shard_memory(kH200, 140, 1);

SiteTable h200_site() {
  return {.models = {{"h200", kH200, 140, 4}, {"A100", gib(40), 40, 2}},
          .partitions = {{"main", {"h200"}}, {"mixed", {"h200", "A100"}}, {"cpu", {}}},
          .default_partition = "main"};
}

Part mem(Bytes memory) { return Amounts{memory, std::nullopt}; }
Part share(std::int64_t compute) { return Amounts{std::nullopt, Compute(compute)}; }
Part both(Bytes memory, std::int64_t compute) { return Amounts{memory, Compute(compute)}; }
Part mps(std::int64_t count) { return Tickets{Tickets::Kind::mps, count}; }
Part shard(std::int64_t count) { return Tickets{Tickets::Kind::shard, count}; }

std::optional<std::int64_t> shards(const Part& what, const SiteTable& site = h200_site()) {
  return shards_for(what, site.models.front(), site);
}

std::string booked(const SiteTable& site, const std::string& partition,
                   const core::GpuOptions& options) {
  const auto booking = book(site, partition, options);
  if (!booking) return "refused: " + booking.error().message;
  if (booking->kind == Booking::Kind::none) return "none";
  const auto what = booking->kind == Booking::Kind::shards ? booking->gres
                    : booking->exclusive                   ? std::string("native, whole nodes")
                                                           : std::string("native");
  return what + " for " + booking->words;
}

TEST(Shards, FollowTheLargerOfMemoryAndCompute) {
  EXPECT_EQ(shards(mem(gib(8))), 8);
  EXPECT_EQ(shards(mem(kShard * 8)), 8);
  EXPECT_EQ(shards(mem(kShard * 8 + Bytes(1))), 9);
  EXPECT_EQ(shards(mem(Bytes(1))), 1);
  EXPECT_EQ(shards(share(2'500)), 35);
  EXPECT_EQ(shards(both(gib(8), 5'000)), 70);
  EXPECT_EQ(shards(both(gib(80), 100)), 80);
  EXPECT_EQ(shards(share(1)), 1);
}

TEST(Shards, OvercommitPacksComputeCloser) {
  auto site = h200_site();
  site.overcommit = Compute(20'000);
  EXPECT_EQ(shards(both(gib(8), 5'000), site), 35);
  EXPECT_EQ(shards(both(gib(60), 5'000), site), 60);
  // Memory that follows in proportion is never over-committed.
  EXPECT_EQ(shards(share(5'000), site), 70);
  EXPECT_EQ(shards(mps(50), site), 70);
}

TEST(Shards, PartitionsCountInTheirOwn) {
  auto site = h200_site();
  site.partitions[1].share = {.overcommit = kWholeGpu * 2, .mps_per_gpu = 80, .shards_per_gpu = 4};
  const auto in = [&](std::string_view partitions, const Part& what) {
    return shards_for(what, site.models.front(), site, partitions);
  };
  EXPECT_EQ(in("main", mps(20)), 28);
  EXPECT_EQ(in("mixed", mps(20)), 35);
  EXPECT_EQ(in("mixed", shard(1)), 35);
  EXPECT_EQ(in("mixed", both(gib(8), 5'000)), 35);
  EXPECT_EQ(in("mixed", mps(81)), std::nullopt);
  // In either: as little is promised as in one of them.
  EXPECT_EQ(in("main,mixed", both(gib(8), 5'000)), 70);
  EXPECT_EQ(in("main,mixed", mps(20)), 28);
}

TEST(Shards, PartsOfAGpuAddUpToIt) {
  EXPECT_EQ(shards(mps(25)), 35);
  EXPECT_EQ(shards(mps(50)), 70);
  EXPECT_EQ(shards(shard(2)), 35);
  EXPECT_EQ(shards(shard(4)), 70);
  EXPECT_EQ(shards(mps(1)), 2);
}

TEST(Shards, AllOfThemAreTheWholeGpu) {
  EXPECT_EQ(shards(WholeGpu{}), 140);
  EXPECT_EQ(shards(mps(100)), 140);
  EXPECT_EQ(shards(share(10'000)), 140);
  EXPECT_EQ(shards(mem(kH200)), 140);
  EXPECT_EQ(shards(mem(kShard * 139 + Bytes(1))), 140);
  EXPECT_EQ(shards(mem(kH200 + Bytes(1))), std::nullopt);
  EXPECT_EQ(shards(mps(101)), std::nullopt);
  EXPECT_EQ(shards(shard(9)), std::nullopt);
}

TEST(BookedPortion, IsWhatWasAskedWithinWhatIsBooked) {
  const auto site = h200_site();
  const auto& gpu = site.models.front();
  EXPECT_EQ(booked_portion(mem(gib(8)), 8, gpu.memory, gpu.shards, units_of(site)),
            (core::Portion{gib(8), Compute(569)}));
  EXPECT_EQ(booked_portion(share(5'000), 70, gpu.memory, gpu.shards, units_of(site)),
            (core::Portion{kShard * 70, Compute(5'000)}));
  EXPECT_EQ(booked_portion(mps(100), 140, gpu.memory, gpu.shards, units_of(site)),
            (core::Portion{kH200, kWholeGpu}));
  EXPECT_EQ(booked_portion(mps(101), 140, gpu.memory, gpu.shards, units_of(site)), std::nullopt);
}

TEST(Book, WritesPlainShards) {
  const auto site = h200_site();
  EXPECT_EQ(booked(site, "main", {}), "none");
  EXPECT_EQ(booked(site, "main", {.gres = "none"}), "none");
  EXPECT_EQ(booked(site, "main", {.gres = "mps:25"}), "shard:35 for mps:25");
  EXPECT_EQ(booked(site, "", {.gres = "gres:shard:2"}), "shard:35 for shard:2");
  EXPECT_EQ(booked(site, "main", {.gres = "mps:H200:25"}), "shard:h200:35 for mps:h200:25");
  EXPECT_EQ(booked(site, "main", {.gpu_mem = "8G", .gpu_share = "50%"}),
            "shard:70 for --gpu-mem=8G --gpu-share=50%");
  EXPECT_EQ(booked(site, "mixed", {.gpus = "a100:1", .gpu_mem = "8G"}),
            "shard:A100:8 for --gpu-mem=8G --gpus=a100:1");
}

TEST(Book, UntypedOnSeveralModelsTakesTheMostThatOneNeeds) {
  const auto site = h200_site();
  EXPECT_EQ(booked(site, "mixed", {.gpu_mem = "8G"}), "shard:8 for --gpu-mem=8G");
  EXPECT_EQ(booked(site, "mixed", {.gres = "mps:50"}), "shard:70 for mps:50");
  EXPECT_EQ(booked(site, "mixed", {.gpu_mem = "100G"}), "shard:100 for --gpu-mem=100G");
  // Not on the A100, which would have room by the count of its shards.
  EXPECT_EQ(booked(site, "mixed", {.gpu_mem = "40.1G"}), "shard:41 for --gpu-mem=43057047142B");
  // A partition that is not in the table may have any model.
  EXPECT_EQ(booked(site, "new", {.gres = "mps:50"}), "shard:70 for mps:50");
  EXPECT_EQ(booked(site, "cpu,main", {.gres = "mps:50"}), "shard:70 for mps:50");
}

TEST(Book, RefusesWhatCanNeverFit) {
  const auto site = h200_site();
  EXPECT_EQ(booked(site, "main", {.gpu_mem = "141G"}),
            "refused: --gpu-mem=141G is more than any GPU of the partition 'main' has: the largest "
            "has 143771M of memory");
  EXPECT_EQ(booked(site, "main", {.gres = "mps:a100:25"}),
            "refused: there is no GPU of model 'a100' in the partition 'main': write one of h200");
  EXPECT_EQ(booked(site, "cpu", {.gres = "gpu:1"}), "refused: the partition 'cpu' has no GPU");
  EXPECT_EQ(booked(site, "main", {.gres = "gpu:5"}),
            "refused: 5 GPUs of one node are more than any of the partition 'main' has: write at "
            "most 4");
  EXPECT_EQ(booked(site, "main", {.gpus = "2", .gpu_share = "25%"}),
            "refused: 2 parts of GPUs on a node are not possible: ask for one, or for whole GPUs");
}

TEST(Book, WholeGpusAreSlurmsOwnUnlessItMixesThem) {
  auto site = h200_site();
  EXPECT_EQ(booked(site, "main", {.gres = "gpu:2"}), "native for gpu:2");
  EXPECT_EQ(booked(site, "main", {.gpus = "5"}), "native for gpu:5");
  site.whole_as_shards = true;
  EXPECT_EQ(booked(site, "main", {.gres = "gpu:1"}), "shard:140 for gpu:1");
  EXPECT_EQ(booked(site, "mixed", {.gres = "gpu:a100:1"}), "shard:A100:40 for gpu:a100:1");
  EXPECT_EQ(booked(site, "mixed", {.gres = "gpu:1"}), "native, whole nodes for gpu:1");
  EXPECT_EQ(booked(site, "main", {.gpus = "2"}), "native, whole nodes for gpu:2");
  EXPECT_EQ(booked(site, "main", {.gpus = "2", .nodes = 2}), "shard:140 for gpu:1");
}

TEST(Book, WhereNothingIsSharedWholeGpusAreSlurmsOwn) {
  auto site = h200_site();
  site.whole_as_shards = true;
  site.partitions[0].shared = false;
  EXPECT_EQ(booked(site, "main", {.gres = "gpu:1"}), "native for gpu:1");
  EXPECT_EQ(booked(site, "main", {.gpus = "2"}), "native for gpu:2");
  // It may start in either.
  EXPECT_EQ(booked(site, "main,mixed", {.gres = "gpu:2"}), "native, whole nodes for gpu:2");
  EXPECT_EQ(booked(site, "main,new", {.gres = "gpu:2"}), "native, whole nodes for gpu:2");
}

TEST(Book, GpusThatAreNotOursAreLeftToSlurm) {
  auto site = h200_site();
  site.whole_as_shards = true;
  site.partitions[2].foreign = true;
  EXPECT_EQ(booked(site, "cpu", {.gres = "mps:50"}), "native for ");
  EXPECT_EQ(booked(site, "cpu", {.gpus_per_task = "what:ever"}), "native for ");
  EXPECT_EQ(booked(site, "cpu", {.gpu_mem = "8G"}),
            "refused: the GPUs of the partition 'cpu' are not shared");
  EXPECT_EQ(booked(site, "cpu,main", {.gres = "mps:50"}), "shard:70 for mps:50");
}

TEST(SiteTable, IsHeldToWhatAddsUp) {
  EXPECT_TRUE(check(h200_site()).has_value());
  const auto wrong = [](auto change) {
    auto site = h200_site();
    change(site);
    return !check(site).has_value();
  };
  EXPECT_TRUE(wrong([](auto& site) { site.overcommit = Compute(9'999); }));
  EXPECT_TRUE(wrong([](auto& site) { site.mps_per_gpu = 0; }));
  EXPECT_TRUE(wrong([](auto& site) { site.models[0].shards = 0; }));
  EXPECT_TRUE(wrong([](auto& site) { site.partitions[0].models = {"b200"}; }));
  EXPECT_TRUE(wrong([](auto& site) { site.models[1].name = "H200"; }));
}

SiteTable any_site() {
  SiteTable site;
  site.unit = *rc::gen::element(mib(1), mib(512), gib(1), gib(3), Bytes(999'999'937));
  site.overcommit = Compute(*rc::gen::inRange<std::int64_t>(10'000, 100'001));
  site.mps_per_gpu = *rc::gen::element<std::int64_t>(1, 7, 100, 200, 999'983);
  site.shards_per_gpu = *rc::gen::element<std::int64_t>(1, 3, 8, 64);
  const auto memory = Bytes(*rc::gen::inRange<std::int64_t>(gib(3).value(), gib(300).value()));
  site.models = {{"any", memory, shards_of(memory, site.unit), 4}};
  site.partitions = {{"a", {"any"}}, {"b", {"any"}}};
  if (*rc::gen::arbitrary<bool>()) {
    auto& own = site.partitions.back().share;
    own.overcommit = Compute(*rc::gen::inRange<std::int64_t>(10'000, 100'001));
    own.mps_per_gpu = *rc::gen::element<std::int64_t>(7, 80, 320);
  }
  return site;
}

Part any_what(const SiteTable& site) {
  const auto memory = [&] {
    return Bytes(*rc::gen::inRange<std::int64_t>(1, site.models[0].memory.value() + 1));
  };
  const auto compute = [] { return *rc::gen::inRange<std::int64_t>(1, 10'001); };
  switch (*rc::gen::inRange(0, 6)) {
    case 0:
      return mem(memory());
    case 1:
      return share(compute());
    case 2:
      return both(memory(), compute());
    case 3:
      return mps(*rc::gen::inRange<std::int64_t>(1, site.mps_per_gpu + 1));
    case 4:
      return shard(*rc::gen::inRange<std::int64_t>(1, site.shards_per_gpu + 1));
    default:
      return WholeGpu{};
  }
}

RC_GTEST_PROP(BookingProperty, WhatFitsIntoTheShardsFitsOnTheGpu, ()) {
  const auto site = any_site();
  const auto& gpu = site.models.front();
  RC_ASSERT(check(site).has_value());
  std::int64_t used = 0;
  core::Portion sum{Bytes(0), Compute(0)};
  const int jobs = *rc::gen::inRange(1, 60);
  Compute most = site.overcommit;
  for (const auto& partition : site.partitions) {
    most = std::max(most, partition.share.overcommit.value_or(most));
  }
  for (int i = 0; i < jobs; ++i) {
    const auto what = any_what(site);
    // Jobs of partitions that count otherwise meet on one GPU.
    const std::string where = *rc::gen::element<std::string>("a", "b", "a,b");
    const auto n = shards_for(what, gpu, site, where);
    if (!n) continue;  // more tickets than that partition has of a GPU
    RC_ASSERT(*n >= 1);
    RC_ASSERT(*n <= gpu.shards);
    if (used + *n > gpu.shards) continue;
    used += *n;
    const auto runs = *rc::gen::elementOf(split(where, ','));
    const auto portion = booked_portion(what, *n, gpu.memory, gpu.shards, units_of(site, runs));
    if (!portion) continue;
    sum.memory += portion->memory;
    sum.compute += portion->compute;
  }
  RC_ASSERT(sum.memory <= gpu.memory);
  RC_ASSERT(sum.compute <= most);
}

RC_GTEST_PROP(BookingProperty, WhoAsksForAllHasItToHimself, ()) {
  const auto site = any_site();
  const auto& gpu = site.models.front();
  for (const auto& what : {Part(WholeGpu{}), mps(site.mps_per_gpu), shard(site.shards_per_gpu),
                           share(kWholeGpu.value()), mem(gpu.memory)}) {
    RC_ASSERT(shards_for(what, gpu, site).value() == gpu.shards);
    RC_ASSERT(booked_portion(what, gpu.shards, gpu.memory, gpu.shards, units_of(site))->memory ==
              gpu.memory);
  }
}

RC_GTEST_PROP(BookingProperty, AskingForMoreNeverBooksLess, ()) {
  const auto site = any_site();
  const auto& gpu = site.models.front();
  const auto pair = [](std::int64_t most) {
    const auto a = *rc::gen::inRange<std::int64_t>(1, most + 1);
    const auto b = *rc::gen::inRange<std::int64_t>(1, most + 1);
    return std::pair(std::min(a, b), std::max(a, b));
  };
  const auto [less_memory, more_memory] = pair(gpu.memory.value());
  const auto [less_compute, more_compute] = pair(10'000);
  const auto [less_mps, more_mps] = pair(site.mps_per_gpu);
  RC_ASSERT(shards_for(mem(Bytes(less_memory)), gpu, site).value() <=
            shards_for(mem(Bytes(more_memory)), gpu, site).value());
  RC_ASSERT(shards_for(share(less_compute), gpu, site).value() <=
            shards_for(share(more_compute), gpu, site).value());
  RC_ASSERT(shards_for(both(Bytes(less_memory), less_compute), gpu, site).value() <=
            shards_for(both(Bytes(more_memory), more_compute), gpu, site).value());
  RC_ASSERT(shards_for(mps(less_mps), gpu, site).value() <=
            shards_for(mps(more_mps), gpu, site).value());
}

// By the count of its shards alone, which is all that slurmctld looks at.
RC_GTEST_PROP(BookingProperty, NoJobLandsOnAGpuThatIsTooSmallForIt, ()) {
  auto site = any_site();
  site.partitions = {{"all", {}}};
  site.models.clear();
  const int models = *rc::gen::inRange(1, 5);
  for (int i = 0; i < models; ++i) {
    const auto memory = Bytes(*rc::gen::inRange<std::int64_t>(gib(3).value(), gib(300).value()));
    site.models.push_back({fmt::format("m{}", i), memory, shards_of(memory, site.unit), 4});
    site.partitions[0].models.push_back(site.models.back().name);
  }
  RC_ASSERT(check(site).has_value());
  const auto what = any_what(site);
  if (std::holds_alternative<WholeGpu>(what)) return;
  const auto options = core::options_of(core::GpuRequest{1, what, {}});
  const auto booking = book(site, "all", options);
  RC_ASSERT(booking.has_value());
  int places = 0;
  for (const auto& model : site.models) {
    const auto parts = split(booking->gres, ':');
    const auto booked = parse_digits(parts.back()).value();
    if (parts.size() == 3 && parts[1] != model.name) continue;
    if (booked > model.shards) continue;
    ++places;
    const auto needed = shards_for(what, model, site);
    RC_ASSERT(needed.has_value());
    RC_ASSERT(*needed <= booked);
  }
  RC_ASSERT(places > 0);
}

}  // namespace
}  // namespace aliquot::slurm
