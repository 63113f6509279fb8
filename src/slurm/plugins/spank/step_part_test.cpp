#include "slurm/plugins/spank/step_part.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace aliquot::spank {
namespace {

using testing::HasSubstr;

const JobShare kTwenty{"--gpu-mem=20G", 18};

TEST(StepPart, IsInProportionToItsJobs) {
  EXPECT_EQ(step_part(kTwenty, {.gpu_mem = "8G"}).shards, 8);
  EXPECT_EQ(step_part(kTwenty, {.gpu_mem = "10240M"}).shards, 9);
  EXPECT_EQ(step_part(kTwenty, {.gpu_mem = "1M"}).shards, 1);
  EXPECT_EQ(step_part({"mps:25", 30}, {.gres = "mps:5"}).shards, 6);
  EXPECT_EQ(step_part({"shard:4", 60}, {.gres = "gres:shard:a100:1"}).shards, 15);
  EXPECT_EQ(step_part({"--gpu-share=30%", 36}, {.gpu_share = "10%"}).shards, 12);
  EXPECT_EQ(
      step_part({"--gpu-mem=8G --gpu-share=50%", 60}, {.gpu_mem = "1G", .gpu_share = "25%"}).shards,
      30);
}

TEST(StepPart, WhatItsJobHasIsAllOfIt) {
  for (const StepWords& step : {StepWords{}, StepWords{.gpu_mem = "20G"},
                                StepWords{.gpu_mem = "20480MiB"}, StepWords{.gres = "license:1"}}) {
    const StepPart part = step_part(kTwenty, step);
    EXPECT_EQ(part.shards, 0);
    EXPECT_EQ(part.refusal, "");
  }
  EXPECT_EQ(step_part({"gpu:1", 120}, {.gres = "gpu"}).refusal, "");
  EXPECT_EQ(step_part({"gpu:1", 120}, {.gres = "gpu:h200:1"}).shards, 0);
}

TEST(StepPart, MoreThanItsJobHasIsRefused) {
  EXPECT_THAT(step_part(kTwenty, {.gpu_mem = "64G"}).refusal,
              HasSubstr("--gpu-mem=64G is more than its job has (--gpu-mem=20G)"));
  EXPECT_THAT(step_part(kTwenty, {.gres = "gpu:1"}).refusal, HasSubstr("gpu:1 is more than"));
  EXPECT_THAT(step_part({"gpu:1", 120}, {.gres = "gpu:2"}).refusal,
              HasSubstr("more than its job has"));
}

TEST(StepPart, OtherWordsThanItsJobsAreRefused) {
  EXPECT_THAT(step_part(kTwenty, {.gres = "shard:2"}).refusal, HasSubstr("in the same words"));
  EXPECT_THAT(step_part(kTwenty, {.gpu_mem = "lots"}).refusal, HasSubstr("is no amount"));
  EXPECT_THAT(step_part(kTwenty, {.gpu_mem = "0"}).refusal, HasSubstr("--gres=none"));
}

TEST(StepPart, OfWholeGpusOrNoneThereIsNoPart) {
  const JobShare whole{"gpu:2", 0};
  EXPECT_THAT(step_part(whole, {.gpu_mem = "8G", .gres = "gpu:2"}).refusal,
              HasSubstr("--gpu-mem=8G: the job has gpu:2, and its steps say"));
  EXPECT_THAT(step_part(whole, {.gpu_share = "25%"}).refusal, HasSubstr("the job has gpu:2"));
  EXPECT_EQ(step_part(whole, {.gres = "gpu:3"}).refusal, "") << "Slurm says it";
  EXPECT_THAT(step_part({"", 0}, {.gpu_mem = "8G"}).refusal, HasSubstr("no part of a GPU"));
  EXPECT_EQ(step_part({"", 0}, {.gres = "gpu:1"}).refusal, "");
  EXPECT_EQ(step_part({"", 30}, {.gpu_mem = "8G"}).refusal, "") << "booked by hand";
}

TEST(StepPart, ReadsWhatSlurmctldHas) {
  const JobShare share = read_share("aliquot: --gpu-mem=20G; escape on n1", "gres:shard:18");
  EXPECT_EQ(share.words, "--gpu-mem=20G");
  EXPECT_EQ(share.shards, 18);
  EXPECT_EQ(read_share("aliquot: gpu:2", "gres/gpu:2").shards, 0);
  EXPECT_EQ(read_share("aliquot: mps:25", "gres/shard:h200:30,license:2").shards, 30);
  EXPECT_EQ(read_share("theirs", "gres:shard:3").words, "");
  EXPECT_EQ(read_share("paid by x; aliquot: mps:25; escape on n1", "gres:shard:30").words,
            "mps:25");
  EXPECT_EQ(read_share("aliquot: gpu:2", "gres:shard:h200.0:120,gres:shard:h200.1:120").shards,
            240);
}

}  // namespace
}  // namespace aliquot::spank
