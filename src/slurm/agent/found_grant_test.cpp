#include "slurm/agent/found_grant.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "core/request_parse.hpp"
#include "gpu/fake_devices.hpp"

namespace aliquot::slurm {
namespace {

using testing::HasSubstr;

NodeGpus node(Bytes memory = gib(80)) {
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

TEST(FoundGrant, AShareIsWhatWasAskedFor) {
  const auto info =
      found_grant(job("shard:a100:40(IDX:2)", "aliquot: --gpu-mem=8G --gpu-share=50%"), node());
  ASSERT_TRUE(info);
  ASSERT_EQ(info->gpus.size(), 1U);
  EXPECT_EQ(info->gpus[0].index, 2);
  EXPECT_EQ(info->gpus[0].uuid, "GPU-2");
  EXPECT_EQ(info->gpus[0].memory, gib(8).value());
  EXPECT_EQ(info->gpus[0].compute, 5000);
  EXPECT_FALSE(info->gpus[0].whole);
}

TEST(FoundGrant, MemoryIsNeverMoreThanBooked) {
  const auto info = found_grant(job("shard:a100:4(IDX:2)", "aliquot: --gpu-mem=64G"), node());
  ASSERT_TRUE(info);
  EXPECT_EQ(info->gpus[0].memory, gib(4).value());
}

TEST(FoundGrant, WithoutWordsItIsWhatWasBooked) {
  const auto info = found_grant(job("shard:a100:20(IDX:1)"), node());
  ASSERT_TRUE(info);
  EXPECT_EQ(info->gpus[0].memory, gib(20).value());
  EXPECT_EQ(info->gpus[0].compute, 2500);
}

TEST(FoundGrant, WholeGpusAreWhole) {
  for (const char* gres : {"gpu:a100:1(IDX:3)", "shard:a100:80(IDX:3)"}) {
    const auto info = found_grant(job(gres, "site: x; aliquot: gpu:1; more"), node());
    ASSERT_TRUE(info);
    EXPECT_TRUE(info->gpus[0].whole) << gres;
    EXPECT_EQ(info->gpus[0].uuid, "GPU-3");
  }
  // Fewer shards than the GPU has are no whole GPU, whatever the words.
  EXPECT_FALSE(found_grant(job("shard:a100:79(IDX:3)", "aliquot: gpu:1"), node())->gpus[0].whole);
}

TEST(FoundGrant, OfAnotherNodeNothing) {
  SlurmJob other = job("shard:a100:1(IDX:0)");
  other.details.pop_back();
  EXPECT_TRUE(found_grant(other, node())->gpus.empty());
}

TEST(FoundGrant, AGpuThatIsNotThereIsAnError) {
  const auto info = found_grant(job("gpu:a100:1(IDX:9)"), node());
  ASSERT_FALSE(info);
  EXPECT_THAT(info.error().message, HasSubstr("gres.conf"));
}

TEST(FoundGrant, WordsThatAreNotOursDoNotHarm) {
  EXPECT_TRUE(found_grant(job("shard:a100:1(IDX:0)", "aliquot: --what=7 ???"), node()));
}

// Whatever the words say, never more memory than was booked, and never a whole GPU unless it was.
RC_GTEST_PROP(FoundGrant, NeverMoreThanBooked, ()) {
  const auto shards = *rc::gen::inRange<std::int64_t>(1, 81);
  const auto memory = *rc::gen::inRange<std::int64_t>(1, 200);
  const auto share = *rc::gen::inRange<std::int64_t>(1, 101);
  const auto words = *rc::gen::element<std::string>(
      fmt::format("aliquot: --gpu-mem={}G", memory), fmt::format("aliquot: --gpu-share={}%", share),
      fmt::format("aliquot: --gpu-mem={}G --gpu-share={}%", memory, share),
      fmt::format("aliquot: mps:{}", share), "aliquot: gpu:1", "aliquot: shard:8", "aliquot:", "");
  const auto info = found_grant(job(fmt::format("shard:a100:{}(IDX:0)", shards), words), node());
  RC_ASSERT(info.has_value());
  const api::GpuHold& hold = info->gpus.at(0);
  RC_ASSERT(hold.memory > 0 && hold.memory <= (shards == 80 ? gib(80) : gib(shards)).value());
  RC_ASSERT(hold.compute > 0 && hold.compute <= 10'000);
  RC_ASSERT(!hold.whole || shards == 80);
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
  EXPECT_FALSE(parse_step_facts(""));
}

TEST(BookedGrant, IsInProportion) {
  StepFacts step{.job = 7, .uid = 1, .job_gpus = {2}, .shards = 20};
  const auto info = booked_grant(step, node());
  ASSERT_TRUE(info);
  EXPECT_EQ(info->gpus.at(0).memory, gib(20).value());
  EXPECT_EQ(info->gpus.at(0).compute, 2500);
}

}  // namespace
}  // namespace aliquot::slurm
