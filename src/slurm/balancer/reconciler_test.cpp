#include "slurm/balancer/reconciler.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <fstream>

#include "slurm/balancer/state_file.hpp"
#include "slurm/fake_client.hpp"

namespace aliquot::slurm {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Folder {
 public:
  Folder() {
    std::string name = fs::temp_directory_path() / "aliquot-balancer.XXXXXX";
    path_ = ::mkdtemp(name.data());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path_); }
  [[nodiscard]] fs::path state() const { return path_ / "lib" / "balancer.json"; }

 private:
  fs::path path_;
};

// A cluster of GPU nodes n1, n2, … with the weight of slurm.conf.
struct Bench {
  explicit Bench(std::size_t nodes = 3) {
    for (std::size_t i = 1; i <= nodes; ++i) {
      slurm.known_nodes.push_back(
          {.name = fmt::format("n{}", i), .gres = "gpu:h200:4,shard:h200:560", .weight = 1});
    }
  }
  void say(const std::string& node, std::int64_t utilisation) {
    heard[node] = {{NodeId(node), {{0, Compute(utilisation), mib(100), gib(140)}}}, now, 0};
  }
  Reconciler::Outcome round(Reconciler& reconciler, bool look = true, bool patient = false) {
    return reconciler.round(heard, {look, patient, now}).value();
  }
  [[nodiscard]] std::vector<std::uint32_t> weights() const {
    std::vector<std::uint32_t> all;
    for (const auto& node : slurm.known_nodes) all.push_back(node.weight);
    return all;
  }
  void reconfigure() {
    for (auto& node : slurm.known_nodes) node.weight = 1;
  }

  Folder folder;
  FakeSlurm slurm;
  Heard heard;
  MonoTime now = MonoTime(1'000'000);
};

using Weights = std::vector<std::uint32_t>;

TEST(Reconciler, MemoryThatIsNotFreeAndBrokenGpusCountAsBusy) {
  NodeSample sample{NodeId("n1"), {{0, Compute(1'000), gib(100), gib(140)}}};
  EXPECT_EQ(mean_load(sample), Compute(1'000));
  sample.gpus[0].foreign = {{7, "eve", gib(60)}, {8, "bob", gib(10)}};
  EXPECT_EQ(mean_load(sample), Compute(5'000));
  sample.gpus[0].utilisation = Compute(9'000);
  EXPECT_EQ(mean_load(sample), Compute(9'000));
  sample.gpus.push_back({.index = 1, .trouble = "xid79"});
  EXPECT_EQ(mean_load(sample), Compute(9'500));
  EXPECT_EQ(mean_load({NodeId("n1"), {}}), std::nullopt);
}

TEST(Reconciler, SetsWhatMustChangeInOneCallForEachWeight) {
  Bench bench(4);
  Reconciler reconciler(bench.slurm, BalanceMode::spread, bench.folder.state());
  ASSERT_TRUE(reconciler.recall());
  bench.say("n1", 3'000);
  bench.say("n2", 0);
  bench.say("n3", 0);
  const auto first = bench.round(reconciler);
  EXPECT_EQ(bench.weights(), (Weights{1030, 1000, 1000, 1101}));
  EXPECT_EQ(first.weights, 4U);
  EXPECT_EQ(first.calls, 3U + 3U);  // weights, and three texts
  EXPECT_EQ(bench.slurm.known_nodes[0].extra, "aliquot:0=30%/100M/143360M");
  EXPECT_EQ(bench.slurm.known_nodes[3].extra, "");

  bench.slurm.updates = 0;
  EXPECT_EQ(bench.round(reconciler, false).calls, 0U);
  bench.say("n2", 5'000);
  bench.now += seconds(1);
  EXPECT_EQ(bench.round(reconciler, false).weights, 1U);
  EXPECT_EQ(bench.slurm.updates, 1);  // the text of n2 must wait
  EXPECT_EQ(bench.weights(), (Weights{1030, 1050, 1000, 1101}));
}

TEST(Reconciler, MakesGoodWhatAReconfigureForgot) {
  Bench bench;
  Reconciler reconciler(bench.slurm, BalanceMode::spread, bench.folder.state());
  ASSERT_TRUE(reconciler.recall());
  for (const auto* node : {"n1", "n2", "n3"}) bench.say(node, 2'000);
  bench.round(reconciler);
  bench.reconfigure();
  EXPECT_EQ(bench.round(reconciler).resets, 3U);
  EXPECT_EQ(bench.weights(), (Weights{1020, 1020, 1020}));
  // The site gives n2 another weight.
  bench.slurm.known_nodes[1].weight = 7;
  bench.round(reconciler);
  EXPECT_EQ(bench.weights(), (Weights{1020, 7020, 1020}));
}

TEST(Reconciler, ARestartDoesNotCompound) {
  Bench bench;
  for (int i = 0; i < 3; ++i) {
    Reconciler reconciler(bench.slurm, BalanceMode::spread, bench.folder.state());
    ASSERT_TRUE(reconciler.recall());
    bench.round(reconciler, true, true);
    EXPECT_EQ(bench.weights(), (Weights{1101, 1101, 1101}));
  }
}

TEST(Reconciler, PutsTheWeightsBack) {
  Bench bench;
  Reconciler reconciler(bench.slurm, BalanceMode::pack, bench.folder.state());
  ASSERT_TRUE(reconciler.recall());
  bench.say("n1", 2'000);
  bench.slurm.known_nodes[2].extra = "rack 7";
  bench.round(reconciler);
  EXPECT_EQ(bench.weights(), (Weights{1080, 1101, 1101}));
  ASSERT_TRUE(reconciler.restore());
  EXPECT_EQ(bench.weights(), (Weights{1, 1, 1}));
  EXPECT_EQ(bench.slurm.known_nodes[0].extra, "");
  EXPECT_EQ(bench.slurm.known_nodes[2].extra, "rack 7");
}

TEST(Reconciler, OffOnlyTellsThePeople) {
  Bench bench;
  {
    Reconciler before(bench.slurm, BalanceMode::spread, bench.folder.state());
    ASSERT_TRUE(before.recall());
    bench.round(before);
  }
  Reconciler reconciler(bench.slurm, BalanceMode::off, bench.folder.state());
  ASSERT_TRUE(reconciler.recall());
  bench.say("n1", 2'000);
  bench.round(reconciler);
  EXPECT_EQ(bench.weights(), (Weights{1, 1, 1}));
  EXPECT_EQ(bench.slurm.known_nodes[0].extra, "aliquot:0=20%/100M/143360M");
}

TEST(Reconciler, SilenceIsBusyAndSaidSo) {
  Bench bench(1);
  Reconciler reconciler(bench.slurm, BalanceMode::spread, bench.folder.state());
  ASSERT_TRUE(reconciler.recall());
  bench.say("n1", 0);
  bench.round(reconciler);
  bench.now += seconds(3);
  bench.round(reconciler);
  EXPECT_EQ(bench.weights(), (Weights{1000}));
  bench.now += Millis(1);
  bench.round(reconciler);
  EXPECT_EQ(bench.weights(), (Weights{1101}));
  bench.now += seconds(5);
  bench.round(reconciler);
  EXPECT_EQ(bench.slurm.known_nodes[0].extra, "aliquot:?");
}

TEST(Reconciler, AnAgentWithoutGpusIsBusy) {
  Bench bench(1);
  Reconciler reconciler(bench.slurm, BalanceMode::spread, bench.folder.state());
  bench.heard["n1"] = {{NodeId("n1"), {}}, bench.now, 0};
  bench.round(reconciler);
  EXPECT_EQ(bench.weights(), (Weights{1101}));
}

TEST(Reconciler, SlurmctldMayBeAway) {
  Bench bench;
  Reconciler reconciler(bench.slurm, BalanceMode::spread, bench.folder.state());
  ASSERT_TRUE(reconciler.recall());
  bench.slurm.away = true;
  EXPECT_FALSE(reconciler.round(bench.heard, {true, false, bench.now}));
  bench.slurm.away = false;
  bench.round(reconciler, false);  // looks all the same
  EXPECT_EQ(bench.weights(), (Weights{1101, 1101, 1101}));
}

TEST(StateFile, IsTolerantOfWhatItHolds) {
  EXPECT_EQ(parse_bases(format_bases({{"n1", 1}, {"n2", 4'294'967'295U}})).value(),
            (Bases{{"n1", 1}, {"n2", 4'294'967'295U}}));
  EXPECT_EQ(parse_bases(R"({"v":9,"weights":{"n1":1,"n2":-1,"n3":"x"},"more":[]})").value(),
            (Bases{{"n1", 1}}));
  EXPECT_FALSE(parse_bases(""));
  EXPECT_FALSE(parse_bases("[1]"));
  const Folder folder;
  EXPECT_TRUE(load_bases(folder.state()).value().empty());
  ASSERT_TRUE(store_bases(folder.state(), {{"n1", 3}}));
  EXPECT_EQ(load_bases(folder.state()).value(), (Bases{{"n1", 3}}));
  std::ofstream(folder.state()) << "{\"weig";
  EXPECT_THAT(load_bases(folder.state()).error().message, HasSubstr("balancer.json"));
}

// Killed between any two calls and started again, with slurmctld forgetting in between: the site's
// weights are never lost.
class Flaky final : public SlurmClient {
 public:
  explicit Flaky(FakeSlurm& real) : real_(real) {}
  int calls_left = 0;

  [[nodiscard]] std::string version() const override { return real_.version(); }
  Result<SlurmJob> job(JobId id) override { return real_.job(id); }
  Result<std::vector<SlurmJob>> jobs() override { return real_.jobs(); }
  Result<std::vector<SlurmNode>> nodes() override { return real_.nodes(); }
  Result<SlurmNode> node(const std::string& name) override { return real_.node(name); }
  Result<std::vector<SlurmPartition>> partitions() override { return real_.partitions(); }
  Result<void> update_nodes(const std::vector<std::string>& names,
                            std::optional<std::uint32_t> weight,
                            const std::optional<std::string>& extra) override {
    if (calls_left-- <= 0) return fail(Error::Code::unavailable, "killed");
    return real_.update_nodes(names, weight, extra);
  }
  Result<void> undrain_node(const std::string& name) override { return real_.undrain_node(name); }
  Result<void> drain_node(const std::string& name, const std::string& reason) override {
    return real_.drain_node(name, reason);
  }
  Result<void> set_admin_comment(JobId id, const std::string& text) override {
    return real_.set_admin_comment(id, text);
  }

 private:
  FakeSlurm& real_;
};

RC_GTEST_PROP(ReconcilerProperty, KilledAnywhereItNeverCompounds, ()) {
  Bench bench(4);
  for (auto lives = *rc::gen::inRange(1, 8); lives > 0; --lives) {
    Flaky flaky(bench.slurm);
    Reconciler reconciler(flaky, BalanceMode::spread, bench.folder.state());
    RC_ASSERT(reconciler.recall().has_value());
    for (auto rounds = *rc::gen::inRange(1, 4); rounds > 0; --rounds) {
      bench.now += seconds(2);
      for (const auto* node : {"n1", "n2", "n3", "n4"}) {
        if (*rc::gen::inRange(0, 3) > 0)
          bench.say(node, *rc::gen::inRange<std::int64_t>(0, 10'001));
      }
      if (*rc::gen::inRange(0, 4) == 0) bench.reconfigure();
      flaky.calls_left = *rc::gen::inRange(0, 8);
      static_cast<void>(
          reconciler.round(bench.heard, {*rc::gen::arbitrary<bool>(), false, bench.now}));
    }
  }
  Reconciler last(bench.slurm, BalanceMode::spread, bench.folder.state());
  RC_ASSERT(last.recall().has_value());
  RC_ASSERT(last.restore().has_value());
  RC_ASSERT(bench.weights() == (Weights{1, 1, 1, 1}));
}

}  // namespace
}  // namespace aliquot::slurm
