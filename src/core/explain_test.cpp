#include "core/explain.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "core/request_words.hpp"

namespace aliquot::core {
namespace {

using ::testing::ElementsAre;

Gpu gpu(std::string id, Bytes memory = gib(24), std::string model = "titanrtx",
        std::string profile = "") {
  return {.id = GpuId(std::move(id)),
          .model = std::move(model),
          .memory = memory,
          .mig_profile = std::move(profile)};
}

Node node(std::string name, std::vector<Gpu> gpus) {
  return {.id = NodeId(std::move(name)),
          .cpus = kOneCpu * 16,
          .memory = gib(64),
          .gpus = std::move(gpus)};
}

Ledger ledger_with(std::vector<Node> nodes) {
  return Ledger(Cluster::create(std::move(nodes)).value());
}

Ledger two_gpus() { return ledger_with({node("n1", {gpu("GPU-0"), gpu("GPU-1")})}); }

void take(Ledger& ledger, std::int64_t job, const std::string& words, NodeIndex on,
          std::vector<GpuIndex> gpus) {
  const auto shape = ledger.cluster().shape(parse_request(words).value()).value();
  const auto granted = ledger.grant(JobId(job), use_of(ledger.cluster(), shape, on, gpus));
  ASSERT_TRUE(granted.has_value()) << granted.error().message;
}

Explanation why(const Ledger& ledger, const std::string& words) {
  const auto request = parse_request(words).value();
  const auto shape = ledger.cluster().shape(request).value();
  return explain(ledger, request, explain_refusal(ledger.cluster(), shape));
}

TEST(Explain, NamesTheJobsThatHoldMemory) {
  auto ledger = two_gpus();
  take(ledger, 4, "--gpu-mem=12G --gpu-share=10%", 0, {0});
  take(ledger, 7, "--gpu-mem=7G --gpu-share=10%", 0, {0});
  take(ledger, 9, "gpu:1", 0, {1});
  const auto told = why(ledger, "--gpu-mem=8G");
  EXPECT_EQ(told.summary, "No GPU has 8 GiB of memory free; this can start when jobs end");
  EXPECT_THAT(
      told.sentences,
      ElementsAre("No GPU has 8 GiB of memory free.",
                  "gpu0 on n1 lacks 3 GiB of memory: jobs 4 and 7 hold 19 GiB of its 24 GiB.",
                  "gpu1 on n1 is held whole by job 9.", "This can start when jobs end."));
}

TEST(Explain, TellsComputeAndSharing) {
  auto ledger = two_gpus();
  take(ledger, 1, "--gpu-mem=1G --gpu-share=85%", 0, {0});
  take(ledger, 2, "--gpu-mem=1G --gpu-share=95%", 0, {1});
  const auto share = why(ledger, "--gpu-mem=2G --gpu-share=25%");
  EXPECT_EQ(share.summary,
            "No GPU has 2 GiB of memory and 25% of its compute free; this can start when jobs end");
  EXPECT_EQ(share.sentences[1], "gpu0 on n1 lacks 10% of compute: job 1 holds all but 15%.");
  const auto whole = why(ledger, "gpu:titanrtx:2");
  EXPECT_EQ(whole.summary, "No node has 2 titanrtx GPUs free; this can start when jobs end");
  EXPECT_EQ(whole.sentences[2], "gpu1 on n1 is shared by job 2.");
  EXPECT_EQ(why(ledger, "--gpu-share=25%").sentences[0],
            "No GPU has 25% of its compute and memory free.");
  EXPECT_EQ(why(ledger, "mps:30 --gpus=2").sentences[0],
            "No node has 2 GPUs with mps:30 free on each.");
}

TEST(Explain, TellsHealthAndForeignProcesses) {
  auto ledger = two_gpus();
  ASSERT_TRUE(ledger.cluster().set_health(0, 0, Health::draining).has_value());
  ASSERT_TRUE(ledger.cluster().set_health(0, 1, Health::lost).has_value());
  EXPECT_THAT(why(ledger, "gpu:1").sentences,
              ElementsAre("No GPU is free.", "gpu0 on n1 is draining and takes no new jobs.",
                          "gpu1 on n1 is lost: the driver reports it broken.",
                          "This can start when a GPU is back in service: ask the administrator."));

  ASSERT_TRUE(ledger.cluster().set_health(0, 1, Health::ok).has_value());
  ASSERT_TRUE(
      ledger.cluster().observe(0, 1, {Compute(100), gib(20), MonoTime(seconds(1))}).has_value());
  EXPECT_THAT(
      why(ledger, "--gpu-mem=8G").sentences,
      ElementsAre("No GPU has 8 GiB of memory free.",
                  "gpu0 on n1 is draining and takes no new jobs.",
                  "gpu1 on n1 has processes outside every job, which hold 20 GiB of its 24 GiB.",
                  "This can start when the processes outside every job leave the GPU."));

  ledger.cluster().expire_samples(MonoTime(seconds(100)), seconds(10));
  EXPECT_EQ(why(ledger, "gpu:1").sentences[2],
            "gpu1 on n1 has processes outside every job, which hold 20 GiB of its 24 GiB (its last "
            "sample is too old to trust: it counts as busy).");
}

TEST(Explain, TellsCpusAndHostMemory) {
  auto ledger = two_gpus();
  take(ledger, 1, "-c 12 --mem=60G", 0, {});
  const auto told = why(ledger, "gpu:1 -c 5 --mem=8G");
  EXPECT_EQ(told.summary,
            "No node with a GPU for this has 5 CPUs and 8 GiB of memory free; this can start when "
            "jobs end");
  EXPECT_EQ(told.sentences[3],
            "n1 lacks 1 CPU (it has 16 CPUs) and 4 GiB of host memory (it has 64 GiB).");
  EXPECT_EQ(why(ledger, "-c 4.5").summary,
            "No node has 4.5 CPUs free; this can start when jobs end");
}

TEST(Explain, TellsWhatCanNeverBe) {
  auto ledger = ledger_with({node("n1", {gpu("GPU-0"), gpu("GPU-1", gib(11), "gtx1080")}),
                             node("n2", {gpu("MIG-0", gib(10), "a100", "1g.10gb")})});
  EXPECT_EQ(why(ledger, "--gpu-mem=32G").summary,
            "Never on this cluster: no GPU has more than 24 GiB of memory");
  EXPECT_EQ(why(ledger, "--gpu-mem=12G -G gtx1080:1").summary,
            "Never on this cluster: no gtx1080 GPU has more than 11 GiB of memory");
  EXPECT_EQ(why(ledger, "mps:150").summary,
            "Never on this cluster: no GPU counts more than mps:100");
  EXPECT_EQ(why(ledger, "gpu:4").summary,
            "Never on this cluster: no node has 4 GPUs; the most are 2, on n1");
  EXPECT_EQ(why(ledger, "--gpu-mem=12G -G 2").summary,
            "Never on this cluster: no node has 2 large enough GPUs; the most are 1, on n1");
  EXPECT_EQ(why(ledger, "-c 17 --mem=65G").summary,
            "Never on this cluster: no node has more than 16 CPUs; no node has more than 64 GiB of "
            "host memory");
  EXPECT_THAT(why(ledger, "--gpu-mem=32G").sentences,
              ElementsAre("Never on this cluster: no GPU has more than 24 GiB of memory.",
                          "Waiting does not help."));

  const auto slices = ledger_with({node("n2", {gpu("MIG-0", gib(10), "a100", "1g.10gb")})});
  EXPECT_EQ(why(slices, "gpu:1").summary,
            "Never on this cluster: every GPU is a MIG slice, which has to be asked for by its "
            "profile");
  EXPECT_EQ(why(ledger_with({node("n1", {})}), "gpu:1").summary,
            "Never on this cluster: it has no GPU");
  EXPECT_EQ(why(ledger_with({}), "-c 1").summary, "Never on this cluster: it has no nodes");

  auto mixed = ledger_with({node("n1", {gpu("GPU-0")}), node("n2", {})});
  const auto big =
      mixed.cluster().add_node({.id = NodeId("big"), .cpus = kOneCpu * 64, .memory = gib(512)});
  ASSERT_TRUE(big.has_value());
  EXPECT_EQ(why(mixed, "gpu:1 -c 32").summary,
            "Never on this cluster: no node has such a GPU together with 32 CPUs");
}

TEST(Explain, TellsOtherModelsAndSlices) {
  auto ledger = ledger_with({node("n1", {gpu("GPU-0"), gpu("MIG-0", gib(10), "a100", "1g.10gb"),
                                         gpu("GPU-2", gib(11), "gtx1080")})});
  take(ledger, 3, "gpu:titanrtx:1", 0, {0});
  EXPECT_THAT(
      why(ledger, "gpu:titanrtx:1").sentences,
      ElementsAre("No titanrtx GPU is free.", "gpu0 on n1 is held whole by job 3.",
                  "gpu1 on n1 is a MIG slice 1g.10gb, not titanrtx.",
                  "gpu2 on n1 is a gtx1080, not titanrtx.", "This can start when jobs end."));
  EXPECT_THAT(
      why(ledger, "--gpu-mem=12G").sentences,
      ElementsAre("No GPU has 12 GiB of memory free.", "gpu0 on n1 is held whole by job 3.",
                  "gpu1 on n1 is a MIG slice 1g.10gb, which has to be asked for by that name.",
                  "gpu2 on n1 is too small: it has 11 GiB of memory.",
                  "This can start when jobs end."));
}

std::vector<Node> many_nodes(std::size_t count) {
  std::vector<Node> nodes;
  for (std::size_t i = 0; i < count; ++i) {
    nodes.push_back(node(fmt::format("n{}", i),
                         {gpu(fmt::format("GPU-{}a", i)), gpu(fmt::format("GPU-{}b", i))}));
  }
  return nodes;
}

TEST(Explain, GroupsManyGpus) {
  auto ledger = ledger_with(many_nodes(100));
  for (NodeIndex i = 0; i < 100; ++i) {
    take(ledger, 1000 + i, "gpu:1", i, {0});
    take(ledger, 2000 + i, i == 40 ? "--gpu-mem=17G" : "--gpu-mem=20G", i, {1});
  }
  ASSERT_TRUE(ledger.cluster().set_health(7, 1, Health::lost).has_value());
  EXPECT_THAT(
      why(ledger, "--gpu-mem=8G").sentences,
      ElementsAre(
          "No GPU has 8 GiB of memory free.",
          "Of 200 GPUs 100 are held whole by jobs, 99 lack memory and 1 is out of service.",
          "Closest: gpu1 on n40 lacks 1 GiB of memory: job 2040 holds 17 GiB of its 24 GiB.",
          "This can start when jobs end."));
  ASSERT_TRUE(ledger.release(JobId(1003)).has_value());
  EXPECT_EQ(why(ledger, "gpu:2").sentences[2], "n3 comes closest with 1 of the 2 GPUs.");
}

TEST(Explain, GroupsManyNodesAndWhatDoesNotMatter) {
  auto nodes = many_nodes(20);
  nodes.push_back(node("special", {gpu("GPU-x", gib(80), "a100")}));
  auto ledger = ledger_with(std::move(nodes));
  take(ledger, 5, "gpu:a100:1", 20, {0});
  EXPECT_THAT(why(ledger, "gpu:a100:1").sentences,
              ElementsAre("No a100 GPU is free.", "gpu0 on special is held whole by job 5.",
                          "The others do not matter here: 40 are of another model.",
                          "This can start when jobs end."));
  for (NodeIndex i = 0; i < 21; ++i) take(ledger, 100 + i, "-c 10", i, {});
  EXPECT_EQ(why(ledger, "gpu:titanrtx:1 -c 8").sentences.at(2),
            "Of 20 nodes with the GPUs 20 have too few CPUs free.");
}

TEST(Explain, NamesOnlyTheFirstOfManyJobs) {
  auto ledger = ledger_with({node("n1", {gpu("GPU-0")})});
  for (std::int64_t job = 1; job <= 9; ++job)
    take(ledger, job, "--gpu-mem=2500M --gpu-share=5%", 0, {0});
  EXPECT_EQ(why(ledger, "gpu:1").sentences[1],
            "gpu0 on n1 is shared by jobs 1, 2, 3, 4, 5 and 4 more.");
  EXPECT_EQ(
      why(ledger, "--gpu-mem=3G").sentences[1],
      "gpu0 on n1 lacks 996 MiB of memory: jobs 1, 2, 3, 4, 5 and 4 more hold 21.9 GiB of its 24 "
      "GiB.");
}

RC_GTEST_PROP(ExplainProperty, EveryRefusalIsToldInFullSentences, ()) {
  auto ledger = ledger_with(many_nodes(*rc::gen::inRange<std::size_t>(0, 12)));
  const auto words = [] {
    return *rc::gen::element<std::string>("gpu:1", "gpu:2", "gpu:3", "mps:60", "shard:9",
                                          "--gpu-mem=9G", "--gpu-share=70% --gpus=2", "-c 9",
                                          "--gpu-mem=30G", "gpu:1 -c 3 --mem=30G", "gpu:1 -c 99");
  };
  for (std::int64_t job = 1; job < 40; ++job) {
    const auto request = parse_request(words()).value();
    const auto shape = ledger.cluster().shape(request).value();
    auto policy = make_policy("best-fit", {}).value();
    if (const auto place = place_by_scan(ledger.cluster(), shape, *policy)) {
      RC_ASSERT(ledger.grant(JobId(job), *place).has_value());
      continue;
    }
    const auto told = explain(ledger, request, explain_refusal(ledger.cluster(), shape));
    RC_ASSERT(told.summary.starts_with("Never") == !ever_fits(ledger.cluster(), shape));
    RC_ASSERT(told.sentences.size() >= 2U && told.sentences.size() <= 20U);
    for (const auto& sentence : told.sentences) {
      RC_ASSERT(sentence.ends_with('.') && sentence.find('\n') == sentence.npos);
      RC_ASSERT(sentence.find("  ") == sentence.npos && sentence.find(" .") == sentence.npos);
    }
  }
}

}  // namespace
}  // namespace aliquot::core
