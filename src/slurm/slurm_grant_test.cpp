#include "slurm/slurm_grant.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "gpu/fake_devices.hpp"

namespace aliquot::slurm {
namespace {

using testing::HasSubstr;

NodeGpus node(Bytes memory = gib(120)) {
  return {"n1", gpu::fake_gpus(4, "a100", memory), ShareSettings{}};
}

SlurmJob job(const std::string& gres, const std::string& comment = "") {
  SlurmJob job;
  job.id = 7;
  job.uid = 1000;
  job.state = "RUNNING";
  job.admin_comment = comment;
  job.details = {{"n0", "shard:a100:1(IDX:0)"}, {"n1", gres}};
  return job;
}

TEST(SlurmGrant, AShareIsWhatWasAskedFor) {
  const auto grant =
      slurm_grant(job("shard:a100:60(IDX:2)", "aliquot: --gpu-mem=8G --gpu-share=50%"), node());
  ASSERT_TRUE(grant);
  ASSERT_EQ(grant->gpus.size(), 1U);
  EXPECT_EQ(grant->gpus[0].gpu, GpuId("GPU-2"));
  EXPECT_EQ(grant->gpus[0].portion.memory, gib(8));
  EXPECT_EQ(grant->gpus[0].portion.compute, Compute(5000));
  EXPECT_FALSE(grant->gpus[0].whole);
}

TEST(SlurmGrant, MemoryIsNeverMoreThanBooked) {
  const auto grant = slurm_grant(job("shard:a100:4(IDX:2)", "aliquot: --gpu-mem=64G"), node());
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->gpus[0].portion.memory, gib(4));
}

TEST(SlurmGrant, WithoutWordsItIsWhatWasBooked) {
  const auto grant = slurm_grant(job("shard:a100:30(IDX:1)"), node());
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->gpus[0].portion.memory, gib(30));
  EXPECT_EQ(grant->gpus[0].portion.compute, Compute(2500));
}

TEST(SlurmGrant, WholeGpusAreWhole) {
  for (const char* gres : {"gpu:a100:1(IDX:3)", "shard:a100:120(IDX:3)"}) {
    const auto grant = slurm_grant(job(gres, "site: x; aliquot: gpu:1; more"), node());
    ASSERT_TRUE(grant);
    EXPECT_TRUE(grant->gpus[0].whole) << gres;
    EXPECT_EQ(grant->gpus[0].gpu, GpuId("GPU-3"));
  }
  // Fewer shards than the GPU has are no whole GPU, whatever the words.
  EXPECT_FALSE(slurm_grant(job("shard:a100:119(IDX:3)", "aliquot: gpu:1"), node())->gpus[0].whole);
}

TEST(SlurmGrant, OfAnotherNodeNothing) {
  SlurmJob other = job("shard:a100:1(IDX:0)");
  other.details.pop_back();
  EXPECT_TRUE(slurm_grant(other, node())->gpus.empty());
}

TEST(SlurmGrant, AGpuThatIsNotThereIsAnError) {
  const auto grant = slurm_grant(job("gpu:a100:1(IDX:9)"), node());
  ASSERT_FALSE(grant);
  EXPECT_THAT(grant.error().message, HasSubstr("gres.conf"));
}

TEST(SlurmGrant, WordsThatAreNotOursDoNotHarm) {
  EXPECT_TRUE(slurm_grant(job("shard:a100:1(IDX:0)", "aliquot: --what=7 ???"), node()));
}

// Whatever the words say, never more memory than was booked, and never a whole GPU unless it was.
RC_GTEST_PROP(SlurmGrant, NeverMoreThanBooked, ()) {
  const auto shards = *rc::gen::inRange<std::int64_t>(1, 121);
  const auto memory = *rc::gen::inRange<std::int64_t>(1, 200);
  const auto share = *rc::gen::inRange<std::int64_t>(1, 101);
  const auto words = *rc::gen::element<std::string>(
      fmt::format("aliquot: --gpu-mem={}G", memory), fmt::format("aliquot: --gpu-share={}%", share),
      fmt::format("aliquot: --gpu-mem={}G --gpu-share={}%", memory, share),
      fmt::format("aliquot: mps:{}", share), "aliquot: gpu:1", "aliquot: shard:8", "aliquot:", "");
  const auto grant = slurm_grant(job(fmt::format("shard:a100:{}(IDX:0)", shards), words), node());
  RC_ASSERT(grant.has_value());
  const core::GrantedGpu& held = grant->gpus.at(0);
  RC_ASSERT(held.portion.memory > Bytes(0) && held.portion.memory <= gib(shards));
  RC_ASSERT(held.portion.compute > Compute(0) && held.portion.compute <= kWholeGpu);
  RC_ASSERT(!held.whole || shards == 120);
}

TEST(StepFacts, ReadsThePluginsLines) {
  const auto facts = parse_step_facts(
      "job=7\nstep=0\nuid=1000\ngid=100\ntasks=2\nrestarts=1\njob_gpus=1,3\nstep_gpus=3\nshards="
      "\n");
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->job, 7);
  EXPECT_EQ(facts->restarts, 1);
  EXPECT_EQ(facts->job_gpus, (std::vector<std::int64_t>{1, 3}));
  EXPECT_EQ(facts->step_gpus, (std::vector<std::int64_t>{3}));
  EXPECT_FALSE(parse_step_facts("job=x\n"));
  EXPECT_FALSE(parse_step_facts("job=7\nuid=5\njob_gpus=0\nuid=0\n"));
  EXPECT_FALSE(parse_step_facts(""));
}

TEST(BookedGrant, IsInProportion) {
  StepFacts step{.job = 7, .uid = 1, .step_gpus = {2}, .shards = 30};
  const auto grant = booked_grant(step, node());
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->gpus.at(0).portion.memory, gib(30));
  EXPECT_EQ(grant->gpus.at(0).portion.compute, Compute(2500));
}

}  // namespace
}  // namespace aliquot::slurm
