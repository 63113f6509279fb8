#include "slurm/plugins/spank/handed_words.hpp"

#include <gtest/gtest.h>

#include <map>

namespace aliquot::spank {
namespace {

using GivenOptions = std::map<std::string, std::string>;

class FakeCommand final : public CommandOptions {
 public:
  explicit FakeCommand(GivenOptions given) : given_(std::move(given)) {}
  [[nodiscard]] bool has(const char* name) const override { return given_.contains(name); }
  [[nodiscard]] std::string get(const char* name) const override {
    return has(name) ? given_.at(name) : "";
  }

 private:
  GivenOptions given_;
};

struct HandedCase {
  GivenOptions given;
  bool old_slurm;  // books shards where Slurm mixes whole GPUs with shards
  bool new_slurm;  // and where it does not
};

TEST(HandedWords, AreThoseThatBecomeShards) {
  const std::vector<HandedCase> cases{
      {{}, false, false},
      {{{"gres", "fpga:1"}}, false, false},
      {{{"gres", "mps:25"}}, true, true},
      {{{"gres", "gres:shard:2,fpga:1"}}, true, true},
      {{{"gres", "MPS=10"}}, true, true},
      {{{"gres", "mpsx:10"}}, false, false},
      {{{"gres", "gpu"}}, true, false},
      {{{"gres", "gres/gpu:h200:1"}}, true, false},
      {{{"gres", "gpu:h200"}}, true, false},
      {{{"gres", "gpu:2"}}, false, false},
      {{{"gres", "gpu:a100:1,gpu:h200:1"}}, false, false},
      {{{"gpus", "1"}}, true, false},
      {{{"gpus", "h200:2"}}, false, false},
      {{{"gpus", "1"}, {"gres", "mps:25"}}, true, true},
      {{{"gpus-per-node", "1"}, {"cpus-per-gpu", "8"}}, true, false},
      {{{"gpus-per-task", "1"}, {"ntasks", "1"}}, true, false},
      {{{"gpus-per-task", "1"}, {"ntasks", "3"}}, false, false},
      {{{"gpus", "2"}, {"nodes", "2"}}, true, false},
      {{{"gpus", "h200:2"}, {"nodes", "2-4"}}, true, false},
      {{{"gpus", "1"}, {"nodes", "2"}}, false, false},
      {{{"gres", "gpu:1"}, {"nodes", "2"}}, true, false},
      {{{"gpus-per-node", "2"}, {"nodes", "2"}}, false, false},
      {{{"gpus-per-task", "1"}, {"nodes", "2"}}, true, false},
      {{{"gpus-per-task", "1"}, {"ntasks", "2"}, {"nodes", "2"}}, true, false},
      {{{"gpus-per-task", "1"}, {"ntasks", "4"}, {"nodes", "2"}}, false, false},
      {{{"gres", "mps:25"}, {"exclusive", ""}}, false, false},
      {{{"gres", "mps:25"}, {"ntasks-per-gpu", "2"}}, false, false},
      {{{"gpus", "1"}, {"cpus-per-gpu", "8"}, {"cpus-per-task", "2"}}, false, false},
      {{{"gres", "mps:25"}, {"partition", "theirs"}}, false, false},
      {{{"gres", "mps:25"}, {"partition", "theirs,main"}}, true, true},
      {{{"gpus", "1"}, {"partition", "alone"}}, false, false},
  };
  const PluginOptions plugin{.whole = "alone", .foreign = "theirs"};
  for (const auto& [given, old_slurm, new_slurm] : cases) {
    std::string shown;
    for (const auto& [name, value] : given) shown += "--" + name + "=" + value + " ";
    EXPECT_EQ(books_shards(FakeCommand(given), plugin, false, true), old_slurm) << shown;
    EXPECT_EQ(books_shards(FakeCommand(given), plugin, false, false), new_slurm) << shown;
  }
  EXPECT_TRUE(books_shards(FakeCommand(GivenOptions{{"gpus", "2"}}), plugin, true, false));
  EXPECT_FALSE(books_shards(FakeCommand(GivenOptions{{"exclusive", ""}}), plugin, true, false));
}

TEST(HandedWords, SeveralWholeGpusBecomeShardsWhereEachIsAType) {
  const PluginOptions plugin{.several = true};
  const auto handed = [&](const GivenOptions& given) {
    return books_shards(FakeCommand(given), plugin, false, true);
  };
  EXPECT_TRUE(handed({{"gres", "gpu:2"}}));
  EXPECT_TRUE(handed({{"gpus", "4"}, {"nodes", "2"}}));
  EXPECT_FALSE(handed({{"gpus", "3"}, {"nodes", "2"}})) << "only Slurm can spread them";
  EXPECT_FALSE(handed({{"gres", "gpu:a100:1,gpu:h200:1"}}));
  EXPECT_FALSE(handed({{"gpus-per-task", "1"}, {"ntasks", "2"}}));
}

TEST(HandedWords, NoPartitionIsTheDefaultOne) {
  for (const char* partitions : {"", "b", "a,b"}) EXPECT_TRUE(all_in("a,b*", partitions));
  EXPECT_FALSE(all_in("a,b*", "a,c"));
  for (const char* list : {"a,b", "", "*x"}) EXPECT_FALSE(all_in(list, "")) << list;
  EXPECT_FALSE(all_in("*", "x"));
}

}  // namespace
}  // namespace aliquot::spank
