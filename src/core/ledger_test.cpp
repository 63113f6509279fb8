#include "core/ledger.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <map>

#include "base/text.hpp"
#include "core/test_support.hpp"

namespace aliquot::core {
namespace {

using namespace test;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

Ledger ledger_of(std::vector<Node> nodes) { return Ledger(cluster_of(std::move(nodes))); }

Use on(NodeIndex node, std::vector<GpuUse> gpus) {
  return {node, kOneCpu, gib(1), std::move(gpus)};
}

TEST(Ledger, GrantsAndReleases) {
  Ledger ledger = ledger_of({node("n0", gpus(2))});
  const auto before = picture(ledger);
  const Use use =
      on(0, {share_of(0, gib(8), Compute(2'500)), whole_of(ledger.cluster().node(0), 1)});
  ASSERT_TRUE(ledger.grant(JobId(7), use).has_value());
  ASSERT_NE(ledger.find(JobId(7)), nullptr);
  EXPECT_EQ(*ledger.find(JobId(7)), use);
  EXPECT_THAT(ledger.jobs(), ElementsAre(JobId(7)));
  EXPECT_THAT(ledger.jobs_on(0, 1), ElementsAre(JobId(7)));
  EXPECT_THAT(ledger.jobs_on(0, 9), IsEmpty());
  EXPECT_EQ(ledger.cluster().state(0).jobs_by_gpus[1], 1U);
  EXPECT_EQ(ledger.release(JobId(7)), use);
  EXPECT_EQ(picture(ledger), before);
}

TEST(Ledger, ReleasingTwiceIsAnError) {
  Ledger ledger = ledger_of({node("n0", gpus(1))});
  ASSERT_TRUE(ledger.grant(JobId(1), on(0, {share_of(0, gib(1), Compute(1))})).has_value());
  ASSERT_TRUE(ledger.release(JobId(1)).has_value());
  const auto again = ledger.release(JobId(1));
  ASSERT_FALSE(again.has_value());
  EXPECT_THAT(again.error().message, HasSubstr("job 1"));
}

TEST(Ledger, AJobHoldsOneGrant) {
  Ledger ledger = ledger_of({node("n0", gpus(1))});
  ASSERT_TRUE(ledger.grant(JobId(1), on(0, {})).has_value());
  const auto again = ledger.grant(JobId(1), on(0, {}));
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code, Error::Code::already_exists);
  EXPECT_FALSE(ledger.grant(JobId(-1), on(0, {})).has_value());
}

TEST(Ledger, AWholeGpuIsNeverShared) {
  Ledger ledger = ledger_of({node("n0", gpus(2))});
  const Node& host = ledger.cluster().node(0);
  const auto nothing = share_of(0, Bytes(0), Compute(0));
  ASSERT_TRUE(ledger.grant(JobId(1), on(0, {whole_of(host, 0)})).has_value());
  EXPECT_FALSE(ledger.grant(JobId(2), on(0, {whole_of(host, 0)})).has_value());
  EXPECT_FALSE(ledger.grant(JobId(2), on(0, {nothing})).has_value());
  ASSERT_TRUE(ledger.release(JobId(1)).has_value());
  ASSERT_TRUE(ledger.grant(JobId(2), on(0, {nothing})).has_value());
  EXPECT_FALSE(ledger.grant(JobId(1), on(0, {whole_of(host, 0)})).has_value());
  // Its own share does not stand in its way.
  EXPECT_TRUE(ledger.resize(JobId(2), on(0, {whole_of(host, 0)})).has_value());
  // Nor can a part pass for the whole.
  GpuUse part = whole_of(host, 1);
  part.portion.memory -= Bytes(1);
  EXPECT_FALSE(ledger.grant(JobId(3), on(0, {part})).has_value());
}

TEST(Ledger, ResizeIsAllOrNothing) {
  Ledger ledger = ledger_of({node("n0", gpus(1)), node("n1", gpus(1))});
  ASSERT_TRUE(ledger.grant(JobId(1), on(0, {share_of(0, gib(8), Compute(100))})).has_value());
  ASSERT_TRUE(ledger.grant(JobId(2), on(0, {share_of(0, gib(8), Compute(100))})).has_value());
  const auto before = picture(ledger);
  EXPECT_FALSE(ledger.resize(JobId(1), on(0, {share_of(0, gib(17), Compute(100))})).has_value());
  EXPECT_EQ(picture(ledger), before);
  EXPECT_FALSE(ledger.resize(JobId(9), on(0, {})).has_value());
  EXPECT_TRUE(ledger.resize(JobId(1), on(0, {share_of(0, gib(16), Compute(100))})).has_value());
  EXPECT_TRUE(ledger.resize(JobId(1), on(1, {share_of(0, gib(24), Compute(100))})).has_value());
  EXPECT_EQ(ledger.cluster().gpus(0)[0].memory_free, gib(16));
  EXPECT_EQ(ledger.cluster().gpus(1)[0].memory_free, Bytes(0));
}

TEST(Ledger, OverCommitsComputeButNeverMemory) {
  Node host = node("n0", gpus(1));
  host.compute_limit = Compute(11'300);
  Ledger ledger = ledger_of({host});
  ASSERT_TRUE(ledger.grant(JobId(1), on(0, {share_of(0, gib(1), Compute(10'000))})).has_value());
  ASSERT_TRUE(ledger.grant(JobId(2), on(0, {share_of(0, gib(1), Compute(1'300))})).has_value());
  EXPECT_FALSE(ledger.grant(JobId(3), on(0, {share_of(0, gib(1), Compute(1))})).has_value());
  EXPECT_FALSE(ledger.grant(JobId(3), on(0, {share_of(0, gib(23), Compute(0))})).has_value());
  EXPECT_TRUE(ledger.grant(JobId(3), on(0, {share_of(0, gib(22), Compute(0))})).has_value());
}

// Who holds what, as a child would write it down: every question goes through all grants again.
struct Naive {
  struct Seen {
    bool sampled = false;
    bool stale = false;
    GpuSample sample = {};
  };
  std::vector<Node> nodes;
  std::vector<std::vector<Seen>> samples;
  std::map<JobId, Use> grants;

  [[nodiscard]] std::vector<GpuUse> holders(NodeIndex node, GpuIndex gpu) const {
    std::vector<GpuUse> all;
    for (const auto& [job, use] : grants) {
      if (use.node != node) continue;
      for (const GpuUse& held : use.gpus) {
        if (held.gpu == gpu) all.push_back(held);
      }
    }
    return all;
  }
  [[nodiscard]] Portion left(NodeIndex node, GpuIndex gpu) const {
    Portion rest{nodes[node].gpus[gpu].memory, nodes[node].compute_limit};
    for (const GpuUse& held : holders(node, gpu)) {
      rest.memory -= held.portion.memory;
      rest.compute -= held.portion.compute;
    }
    return rest;
  }
  [[nodiscard]] CpuMilli cpus_left(NodeIndex node) const {
    CpuMilli rest = nodes[node].cpus;
    for (const auto& [job, use] : grants) {
      if (use.node == node) rest -= use.cpus;
    }
    return rest;
  }
  [[nodiscard]] Bytes memory_left(NodeIndex node) const {
    Bytes rest = nodes[node].memory;
    for (const auto& [job, use] : grants) {
      if (use.node == node) rest -= use.memory;
    }
    return rest;
  }

  [[nodiscard]] bool allows(const Use& use) const {
    if (use.node >= nodes.size()) return false;
    const Node& host = nodes[use.node];
    if (use.cpus < CpuMilli(0) || use.cpus > cpus_left(use.node)) return false;
    if (use.memory < Bytes(0) || use.memory > memory_left(use.node)) return false;
    for (std::size_t i = 0; i < use.gpus.size(); ++i) {
      const GpuUse& wanted = use.gpus[i];
      if (wanted.gpu >= host.gpus.size()) return false;
      if (i > 0 && use.gpus[i - 1].gpu >= wanted.gpu) return false;
      const auto now = holders(use.node, wanted.gpu);
      if (std::ranges::any_of(now, &GpuUse::whole)) return false;
      if (wanted.portion.memory < Bytes(0) || wanted.portion.compute < Compute(0)) return false;
      const Portion rest = left(use.node, wanted.gpu);
      if (wanted.whole && (!now.empty() || wanted.portion != rest)) return false;
      if (wanted.portion.memory > rest.memory) return false;
      if (wanted.portion.compute > rest.compute) return false;
    }
    return true;
  }
};

// Everything the ledger says, against the naive answer.
void check(const Ledger& ledger, const Naive& naive) {
  const Cluster& cluster = ledger.cluster();
  RC_ASSERT(cluster.size() == naive.nodes.size());
  RC_ASSERT(ledger.size() == naive.grants.size());
  std::vector<JobId> jobs;
  for (const auto& [job, use] : naive.grants) {
    jobs.push_back(job);
    RC_ASSERT(ledger.find(job) != nullptr);
    RC_ASSERT(*ledger.find(job) == use);
  }
  RC_ASSERT(ledger.jobs() == jobs);

  Compute free;
  Compute total;
  for (NodeIndex n = 0; n < cluster.size(); ++n) {
    const Node& host = naive.nodes[n];
    RC_ASSERT(cluster.find(host.id.value()) == n);
    const NodeState& state = cluster.state(n);
    RC_ASSERT(state.cpus_free == naive.cpus_left(n) && state.cpus_free >= CpuMilli(0));
    RC_ASSERT(state.memory_free == naive.memory_left(n) && state.memory_free >= Bytes(0));
    std::array<std::uint32_t, std::tuple_size_v<decltype(state.jobs_by_gpus)>> by_gpus = {};
    std::uint32_t here = 0;
    for (const auto& [job, use] : naive.grants) {
      if (use.node != n) continue;
      ++here;
      const auto wholes = std::ranges::count_if(use.gpus, &GpuUse::whole);
      if (!use.gpus.empty()) {
        ++by_gpus[std::min(static_cast<std::size_t>(wholes), by_gpus.size() - 1)];
      }
    }
    RC_ASSERT(state.jobs == here);
    RC_ASSERT(std::ranges::equal(state.jobs_by_gpus, by_gpus));

    RC_ASSERT(cluster.gpus(n).size() == host.gpus.size());
    Compute most;
    std::uint32_t unused = 0;
    for (GpuIndex g = 0; g < host.gpus.size(); ++g) {
      const GpuState& gpu = cluster.gpus(n)[g];
      const auto held = naive.holders(n, g);
      const Portion rest = naive.left(n, g);
      RC_ASSERT(gpu.memory_free == rest.memory && rest.memory >= Bytes(0));
      RC_ASSERT(gpu.compute_free == rest.compute && rest.compute >= Compute(0));
      RC_ASSERT(gpu.jobs == held.size());
      RC_ASSERT(gpu.whole == std::ranges::any_of(held, &GpuUse::whole));
      RC_ASSERT(!gpu.whole || held.size() == 1);
      RC_ASSERT(ledger.jobs_on(n, g).size() == held.size());
      RC_ASSERT(cluster.node(n).gpus[g].health == host.gpus[g].health);
      RC_ASSERT(gpu.usable == (host.gpus[g].health == Health::ok));
      const Naive::Seen& seen = naive.samples[n][g];
      RC_ASSERT(gpu.sampled == seen.sampled && gpu.stale == seen.stale);
      RC_ASSERT(gpu.foreign_memory == seen.sample.foreign_memory);
      RC_ASSERT(gpu.utilisation == (seen.stale ? kWholeGpu : seen.sample.utilisation));
      RC_ASSERT(gpu.memory == host.gpus[g].memory);
      if (!gpu.usable) continue;
      if (!gpu.whole) most = std::max(most, rest.compute);
      if (held.empty() && seen.sample.foreign_memory == Bytes(0)) ++unused;
      free += rest.compute;
      total += host.compute_limit;
    }
    RC_ASSERT(state.most_compute_free == most);
    RC_ASSERT(state.free_gpus == unused);
  }
  RC_ASSERT(cluster.compute_free() == free);
  RC_ASSERT(cluster.compute_total() == total);
}

// Mostly something that could be granted, sometimes nonsense.
Use some_use(Dice& dice, const Naive& naive) {
  Use use{dice(naive.nodes.size()),
          dice.one_of<CpuMilli>({CpuMilli(0), kOneCpu, kOneCpu * 6}),
          dice.one_of<Bytes>({Bytes(0), gib(10)}),
          {}};
  if (dice.rarely()) use.node = static_cast<NodeIndex>(naive.nodes.size() + dice(2) * 1'000);
  if (dice.rarely()) use.cpus = dice.one_of({CpuMilli(-1), CpuMilli(kMax)});
  if (dice.rarely()) use.memory = dice.one_of({Bytes(-1), Bytes(kMax)});
  if (use.node >= naive.nodes.size()) return use;
  const Node& host = naive.nodes[use.node];
  const std::uint32_t count = dice(4);
  GpuIndex at = dice(3);
  for (std::uint32_t i = 0; i < count && at < host.gpus.size(); ++i) {
    const Bytes memory = host.gpus[at].memory;
    if (dice(4) == 3) {
      use.gpus.push_back(whole_of(host, at));
    } else {
      use.gpus.push_back(share_of(
          at,
          dice.one_of<Bytes>(
              {Bytes(0), scale_down(memory, 1, 4), scale_down(memory, 1, 2), memory}),
          dice.one_of<Compute>({Compute(2'500), Compute(0), Compute(3'333), host.compute_limit})));
    }
    GpuUse& made = use.gpus.back();
    if (dice.rarely()) made.portion.memory += Bytes(1);
    if (dice.rarely()) made.portion.memory = dice.one_of({Bytes(-1), Bytes(kMax)});
    if (dice.rarely()) made.portion.compute = dice.one_of({Compute(-1), Compute(kMax)});
    if (dice.rarely()) made.gpu = dice.one_of<GpuIndex>({64, 0xffff'ffff, 0});
    if (!dice.rarely()) at += 1 + dice(2);
  }
  return use;
}

Result<void> forget_value(Result<Use> result) {
  if (!result) return tl::make_unexpected(std::move(result).error());
  return {};
}

// One step on both; asserts that they agree on whether it is allowed.
void apply(const Step& step, Ledger& ledger, Naive& naive, std::int64_t now) {
  Dice dice(step);
  Cluster& cluster = ledger.cluster();
  const auto before = picture(ledger);
  const auto agree = [&](const Result<void>& done, bool allowed) {
    RC_ASSERT(done.has_value() == allowed);
    if (!allowed) RC_ASSERT(picture(ledger) == before);
    if (!allowed) RC_ASSERT(!done.error().message.empty());
  };
  const auto n = naive.nodes.empty() ? 0 : dice(naive.nodes.size() + (dice.rarely() ? 1 : 0));
  const bool known = n < naive.nodes.size();
  const GpuIndex g = dice(5);
  const bool there = known && g < naive.nodes[n].gpus.size();
  const JobId job(dice(12));
  switch (naive.nodes.empty() ? 10 : dice(16)) {
    default: {
      const Use use = some_use(dice, naive);
      const bool allowed = !naive.grants.contains(job) && naive.allows(use);
      agree(ledger.grant(job, use), allowed);
      if (allowed) naive.grants.emplace(job, use);
      return;
    }
    case 5:
    case 6:
      agree(forget_value(ledger.release(job)), naive.grants.contains(job));
      naive.grants.erase(job);
      return;
    case 7:
    case 8: {
      const Use use = some_use(dice, naive);
      Naive without = naive;
      const bool held = without.grants.erase(job) > 0;
      const bool allowed = held && without.allows(use);
      agree(ledger.resize(job, use), allowed);
      if (allowed) naive.grants[job] = use;
      return;
    }
    case 9: {
      const auto health = dice.one_of({Health::ok, Health::draining, Health::lost});
      agree(cluster.set_health(n, g, health), there);
      if (there) naive.nodes[n].gpus[g].health = health;
      return;
    }
    case 10:
    case 11: {
      Node made = some_node(dice, naive.nodes.size());
      if (dice.rarely() && !naive.nodes.empty()) made.id = naive.nodes[0].id;
      if (dice.rarely()) made.gpus.push_back(gpu("GPU-0", Bytes(1), "never seen"));
      if (dice.rarely()) made.compute_limit = Compute(0);
      bool allowed = made.compute_limit >= kWholeGpu && made.gpus.size() <= kMaxGpusPerNode;
      for (const Node& other : naive.nodes) allowed = allowed && other.id != made.id;
      for (std::size_t i = 0; i < made.gpus.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) {
          allowed = allowed && made.gpus[i].id != made.gpus[j].id;
        }
      }
      const auto added = cluster.add_node(made);
      RC_ASSERT(added.has_value() == allowed);
      if (!allowed) RC_ASSERT(picture(ledger) == before);
      if (!allowed) return;
      RC_ASSERT(*added == naive.nodes.size());
      naive.samples.emplace_back(made.gpus.size());
      naive.nodes.push_back(made);
      return;
    }
    case 12: {
      const Gpu made = some_gpu(dice, dice(8));
      const bool allowed =
          known && std::ranges::none_of(naive.nodes[n].gpus,
                                        [&](const Gpu& other) { return other.id == made.id; });
      agree(cluster.add_gpu(n, made), allowed);
      if (!allowed) return;
      naive.nodes[n].gpus.push_back(made);
      naive.samples[n].emplace_back();
      return;
    }
    case 13: {
      const GpuSample sample{dice.one_of<Compute>({Compute(0), Compute(5'000), Compute(-1)}),
                             dice.one_of<Bytes>({Bytes(0), gib(3), Bytes(kMax), Bytes(-1)}),
                             MonoTime(now)};
      const bool sane = sample.utilisation >= Compute(0) && sample.foreign_memory >= Bytes(0);
      agree(cluster.observe(n, g, sample), there && sane);
      if (there && sane) naive.samples[n][g] = {true, false, sample};
      return;
    }
    case 14: {
      const Millis age(dice(20));
      cluster.expire_samples(MonoTime(now), age);
      for (auto& gpus : naive.samples) {
        for (Naive::Seen& seen : gpus) {
          if (seen.sampled && MonoTime(now) - seen.sample.taken > age) seen.stale = true;
        }
      }
      return;
    }
    case 15: {
      // A snapshot is independent of what it was taken of.
      Ledger snapshot = ledger;
      for (const JobId held : snapshot.jobs()) RC_ASSERT(snapshot.release(held).has_value());
      RC_ASSERT(snapshot.cluster().compute_free() == snapshot.cluster().compute_total());
      RC_ASSERT(picture(ledger) == before);
      return;
    }
  }
}

// What somebody who looks at the log now and then believes of every node.
struct Watcher {
  std::size_t every = 1;
  std::uint64_t version = 0;
  std::vector<std::string> believed;

  void look(const Cluster& cluster) {
    believed.resize(cluster.size());
    const auto read = [&](NodeIndex node) {
      RC_ASSERT(node < cluster.size());
      believed[node] = picture(cluster, node);
    };
    if (!cluster.visit_changes(version, read)) {
      for (NodeIndex node = 0; node < cluster.size(); ++node) read(node);
    }
    version = cluster.version();
    for (NodeIndex node = 0; node < cluster.size(); ++node) {
      RC_ASSERT(believed[node] == picture(cluster, node));
    }
  }
};

struct Played {
  Ledger ledger;
  Naive naive;
};

Played play(const std::vector<Step>& history) {
  Played game{ledger_of({}), {}};
  std::vector<Watcher> watchers = {{.every = 1, .believed = {}}, {.every = 7, .believed = {}}};
  for (std::size_t i = 0; i < history.size(); ++i) {
    apply(history[i], game.ledger, game.naive, static_cast<std::int64_t>(i));
    check(game.ledger, game.naive);
    for (Watcher& watcher : watchers) {
      if (i % watcher.every == 0) watcher.look(game.ledger.cluster());
    }
  }
  return game;
}

RC_GTEST_PROP(LedgerProperty, AgreesWithTheNaiveOneAfterEveryStep, ()) { play(*histories(120)); }

}  // namespace
}  // namespace aliquot::core
