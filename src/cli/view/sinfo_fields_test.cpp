#include "cli/view/sinfo_fields.hpp"

#include <gtest/gtest.h>

#include "cli/view/samples.hpp"

namespace aliquot::cli {
namespace {

using namespace samples;

std::string show(const api::ClusterInfo& cluster, const std::string& format, bool by_name,
                 const SinfoRows& rows) {
  const auto listing = Listing<NodeRow>::of(sinfo_fields(), format, by_name);
  if (!listing) return listing.error().message;
  std::vector<const api::PartitionInfo*> partitions;
  for (const auto& partition : cluster.partitions) partitions.push_back(&partition);
  return format_sinfo(*listing, cluster, partitions, rows, {kNow});
}

std::string format_of(SinfoView which, const api::ClusterInfo& cluster) {
  std::vector<const api::PartitionInfo*> partitions;
  for (const auto& partition : cluster.partitions) partitions.push_back(&partition);
  return sinfo_format(which, cluster, partitions);
}

std::string view(SinfoView which, const SinfoRows& rows = {}) {
  return show(cluster(), format_of(which, cluster()), false, rows);
}

TEST(Sinfo, PrintsPartitions) {
  EXPECT_EQ(view(SinfoView::usual), R"(PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST
gpu*         up   infinite      1    mix localhost
debug        up      30:00      1    mix localhost
)");
  EXPECT_EQ(
      view(SinfoView::longer),
      R"(PARTITION AVAIL  TIMELIMIT   JOB_SIZE ROOT OVERSUBS     GROUPS  NODES       STATE NODELIST
gpu*         up   infinite 1-infinite   no       NO        all      1       mixed localhost
debug        up      30:00 1-infinite   no       NO        all      1       mixed localhost
)");
  EXPECT_EQ(view(SinfoView::summary), R"(PARTITION AVAIL  TIMELIMIT   NODES(A/I/O/T) NODELIST
gpu*         up   infinite          1/0/0/1 localhost
debug        up      30:00          1/0/0/1 localhost
)");
}

TEST(Sinfo, PrintsNodes) {
  EXPECT_EQ(view(SinfoView::by_node, {.by_node = true}), R"(NODELIST   NODES PARTITION STATE 
localhost      1      gpu* mix   
localhost      1     debug mix   
)");
  EXPECT_EQ(
      view(SinfoView::by_node_longer, {.by_node = true}),
      R"(NODELIST   NODES PARTITION       STATE CPUS    S:C:T MEMORY TMP_DISK WEIGHT AVAIL_FE REASON              
localhost      1      gpu*       mixed 16     1:16:1  20000        0      1   (null) none                
localhost      1     debug       mixed 16     1:16:1  20000        0      1   (null) none                
)");
}

TEST(Sinfo, PrintsReasons) {
  auto drained = cluster();
  drained.node.state = "draining";
  drained.node.reason = "bad gpu 2";
  EXPECT_EQ(show(drained, format_of(SinfoView::reasons, drained), false, {}),
            "REASON               USER      TIMESTAMP           NODELIST\n"
            "bad gpu 2            Unknown   Unknown             localhost\n");
  EXPECT_EQ(show(drained, "%P %t", false, {.header = false}), "gpu* drng\ndebug drng\n");
}

// As Open OnDemand and snakemake call it.
TEST(Sinfo, PrintsWhatClientsAskFor) {
  auto info = cluster();
  info.node.cpus_allocated = 3;
  EXPECT_EQ(show(info, "%F/%C", false, {.header = false}), "1/0/0/1/3/13/0/16\n");
  EXPECT_EQ(show(info, "nodehost:10,gres:12,gresused:22,statelong", true,
                 {.by_node = true, .header = false}),
            "localhost gpu:h100:4  gpu:h100:2(IDX:0-1)   mixed               \n"
            "localhost gpu:h100:4  gpu:h100:2(IDX:0-1)   mixed               \n");
  EXPECT_EQ(show(info, "%l %P", false, {.header = false}), "infinite gpu*\n30:00 debug\n");
  EXPECT_EQ(show(info, "%P %G %t %N", false, {}),
            "PARTITION GRES STATE NODELIST\ngpu* gpu:h100:4 mix localhost\n"
            "debug gpu:h100:4 mix localhost\n");
}

TEST(Sinfo, TellsWhyAGpuTakesNoJobs) {
  auto info = cluster();
  info.node.gpus[2].reason = "bad fan";
  info.node.gpus[2].reason_user = "root";
  EXPECT_EQ(show(info, format_of(SinfoView::reasons, info), false, {.reasons = true}),
            "REASON               USER      TIMESTAMP           NODELIST\n"
            "gpu 2: bad fan       root      Unknown             localhost\n");
}

TEST(Sinfo, PrintsWhoMayUseAPartitionAndWhoIsFirst) {
  auto info = cluster();
  info.partitions[1].groups = {"staff", "ml"};
  info.partitions[1].tier = 10;
  EXPECT_EQ(show(info, "%P %g %p", false, {.header = false}), "gpu* all 1\ndebug staff,ml 10\n");
}

// Columns that cannot tell partitions apart put them together.
TEST(Sinfo, PutsEqualRowsTogether) {
  EXPECT_EQ(
      show(cluster(), "nodelist,gres:30,gresused:40,statelong", true, {}),
      "NODELIST            GRES                          GRES_USED                            "
      "   STATE               \n"
      "localhost           gpu:h100:4                    gpu:h100:2(IDX:0-1)                  "
      "   mixed               \n");
}

TEST(Sinfo, PrintsAMachineWithoutGpus) {
  auto bare = cluster();
  bare.node.gpus.clear();
  bare.node.cpus_allocated = 0;
  bare.node.state = "idle";
  EXPECT_EQ(show(bare, "%G %F %t", false, {.header = false}), "(null) 0/1/0/1 idle\n");
}

// As Slurm shows what -t, -n and -d leave no node.
TEST(Sinfo, ShowsPartitionsWithoutNodes) {
  EXPECT_EQ(show(cluster(), "%P %D|%t|%N|%F|%A|%C", false, {.header = false, .no_node = true}),
            "gpu* 0|n/a||0/0/0/0|0/0|0/0/0/0\n"
            "debug 0|n/a||0/0/0/0|0/0|0/0/0/0\n");
}

}  // namespace
}  // namespace aliquot::cli
