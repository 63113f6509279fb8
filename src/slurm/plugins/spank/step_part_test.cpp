#include "slurm/plugins/spank/step_part.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "core/request_parse.hpp"

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

TEST(StepPart, WhatIsRefusedInAJobIsRefusedInAStep) {
  const JobShare half{"--gpu-share=50%", 60};
  for (const char* share : {"0.25", "25G", "0x10", "1e1", "inf", "12.345%", "-5%", "5.%", "%"}) {
    EXPECT_THAT(step_part(half, {.gpu_share = share}).refusal, HasSubstr("is no amount")) << share;
  }
  EXPECT_EQ(step_part(half, {.gpu_share = "0.25%"}).shards, 1);
  for (const char* size : {"0x10G", "1e1", "8%", "8X", "1.5B", ".5G", "8 G", "nan"}) {
    EXPECT_THAT(step_part(kTwenty, {.gpu_mem = size}).refusal, HasSubstr("is no amount")) << size;
  }
  EXPECT_EQ(step_part(kTwenty, {.gpu_mem = "8589934592b"}).shards, 8);
}

// The third reader of these words: it takes what core takes, and nothing else.
RC_GTEST_PROP(StepPartProperty, ReadsAmountsAsCoreDoes, ()) {
  const auto some = [] { return *rc::gen::inRange(0, 140); };
  const auto number = fmt::format(
      "{}{}", some(),
      *rc::gen::element<std::string>("", "", ".5", ".25", ".", ".1234", ".1234567891", "e1", ".."));
  const auto text =
      *rc::gen::element<std::string>("", "", "", "0", "0.", "-", " ", "00000000000000000000") +
      number +
      *rc::gen::element<std::string>("", "%", "%%", "k", "M", "g", "T", "P", "GB", "GiB", "gib",
                                     "Gb", "Gi", "B", "b", "bb", "GG", "x", " ");
  const StepPart memory = step_part({"--gpu-mem=8388607T", 1000}, {.gpu_mem = text});
  RC_ASSERT(memory.refusal.empty() == core::parse_gpu_options({.gpu_mem = text}).has_value());
  const StepPart share = step_part({"--gpu-share=100%", 1000}, {.gpu_share = text});
  RC_ASSERT(share.refusal.empty() == core::parse_gpu_options({.gpu_share = text}).has_value());
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
