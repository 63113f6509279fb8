#include "core/request_parse.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <vector>

namespace aliquot::core {
namespace {

using Parsed = Result<std::optional<GpuRequest>>;

Parsed gres(const std::string& text) { return parse_gpu_options({.gres = text}); }

GpuRequest whole(std::int64_t count, std::vector<std::string> models = {}) {
  return {count, WholeGpu{}, std::move(models)};
}
GpuRequest mps(std::int64_t tickets, std::vector<std::string> models = {}) {
  return {1, Tickets{Tickets::Kind::mps, tickets}, std::move(models)};
}
GpuRequest shard(std::int64_t tickets, std::vector<std::string> models = {}) {
  return {1, Tickets{Tickets::Kind::shard, tickets}, std::move(models)};
}
GpuRequest part(std::optional<Bytes> memory, std::optional<Compute> compute, std::int64_t count = 1,
                std::vector<std::string> models = {}) {
  return {count, Amounts{memory, compute}, std::move(models)};
}

std::string message(const Parsed& parsed) {
  return parsed ? "accepted: " + format_gpu_request(*parsed) : parsed.error().message;
}

TEST(RequestParse, ReadsWholeGpusInGres) {
  EXPECT_EQ(gres("gpu"), whole(1));
  EXPECT_EQ(gres("gpu:2"), whole(2));
  EXPECT_EQ(gres("gpu:titanrtx"), whole(1, {"titanrtx"}));
  EXPECT_EQ(gres("gpu:TitanRTX:1"), whole(1, {"titanrtx"}));
  EXPECT_EQ(gres("gres/gpu:1"), whole(1));
  EXPECT_EQ(gres("gres:gpu:a100:4"), whole(4, {"a100"}));
  EXPECT_EQ(gres("gpu=2"), whole(2));
  EXPECT_EQ(gres("gres/gpu:a100=2"), whole(2, {"a100"}));
  EXPECT_EQ(gres("gpu:3090:1"), whole(1, {"3090"}));
}

TEST(RequestParse, ReadsMigProfilesAsModels) {
  EXPECT_EQ(gres("gpu:1g.10gb"), whole(1, {"1g.10gb"}));
  EXPECT_EQ(gres("gpu:1g.10gb:2"), whole(2, {"1g.10gb"}));
  EXPECT_EQ(gres("gpu:1g.10gb+me:1"), whole(1, {"1g.10gb+me"}));
  EXPECT_EQ(gres("gpu:a100_1g.10gb:1"), whole(1, {"a100_1g.10gb"}));
  EXPECT_EQ(parse_gpu_options({.gpus = "1g.10gb"}), whole(1, {"1g.10gb"}));
}

TEST(RequestParse, ReadsTickets) {
  EXPECT_EQ(gres("mps:25"), mps(25));
  EXPECT_EQ(gres("mps:titanrtx:25"), mps(25, {"titanrtx"}));
  EXPECT_EQ(gres("gres/mps:150"), mps(150));
  EXPECT_EQ(gres("shard"), shard(1));
  EXPECT_EQ(gres("shard:4"), shard(4));
  EXPECT_EQ(gres("shard:8K"), shard(8192));
  EXPECT_EQ(gres("shard:titanrtx:4"), shard(4, {"titanrtx"}));
  EXPECT_EQ(gres("gpu:0,mps:25"), mps(25));
}

TEST(RequestParse, ReadsNoGpu) {
  EXPECT_EQ(parse_gpu_options({}), std::nullopt);
  EXPECT_EQ(gres("none"), std::nullopt);
  EXPECT_EQ(gres("NONE"), std::nullopt);
  EXPECT_EQ(gres("gpu:0"), std::nullopt);
  EXPECT_EQ(gres("gpu:a100:0"), std::nullopt);
  EXPECT_EQ(parse_gpu_options({.gpus = "0"}), std::nullopt);
  EXPECT_EQ(parse_gpu_options({.gres = "none", .gpus_per_node = "0"}), std::nullopt);
  EXPECT_EQ(parse_gpu_options({.constraint = "skylake&ib"}), std::nullopt);
}

TEST(RequestParse, CountsGpusOfNodesTasksAndJobs) {
  EXPECT_EQ(parse_gpu_options({.gpus = "2"}), whole(2));
  EXPECT_EQ(parse_gpu_options({.gpus = "titanrtx:2"}), whole(2, {"titanrtx"}));
  EXPECT_EQ(parse_gpu_options({.gpus_per_node = "2"}), whole(2));
  EXPECT_EQ(parse_gpu_options({.gpus_per_task = "2", .tasks = 3}), whole(6));
  EXPECT_EQ(parse_gpu_options({.gpus_per_task = "a100:1", .tasks = 4, .nodes = 2}),
            whole(2, {"a100"}));
  EXPECT_EQ(parse_gpu_options({.gpus = "8", .nodes = 4}), whole(2));
  EXPECT_EQ(parse_gpu_options({.gres = "gpu:2", .nodes = 4}), whole(2));
  EXPECT_EQ(parse_gpu_options({.gres = "gpu:2", .gpus = "4", .gpus_per_node = "2", .nodes = 2}),
            whole(2));
  EXPECT_EQ(parse_gpu_options({.gres = "gpu:a100:2", .gpus = "2"}), whole(2, {"a100"}));
  EXPECT_EQ(parse_gpu_options({.gres = "none", .gpus = "2"}), whole(2));
}

TEST(RequestParse, ReadsSharesByAmount) {
  EXPECT_EQ(parse_gpu_options({.gpu_mem = "8G"}), part(gib(8), std::nullopt));
  EXPECT_EQ(parse_gpu_options({.gpu_mem = "8192"}), part(gib(8), std::nullopt));
  EXPECT_EQ(parse_gpu_options({.gpu_share = "25%"}), part(std::nullopt, Compute(2500)));
  EXPECT_EQ(parse_gpu_options({.gpu_share = "25"}), part(std::nullopt, Compute(2500)));
  EXPECT_EQ(parse_gpu_options({.gpu_share = "0.5%"}), part(std::nullopt, Compute(50)));
  EXPECT_EQ(parse_gpu_options({.gpu_mem = "8G", .gpu_share = "50%"}), part(gib(8), Compute(5000)));
}

TEST(RequestParse, SeveralGpusWithAShareAreSeveralShares) {
  EXPECT_EQ(parse_gpu_options({.gpus = "2", .gpu_share = "25%"}),
            part(std::nullopt, Compute(2500), 2));
  EXPECT_EQ(parse_gpu_options({.gpus_per_task = "1", .gpu_mem = "4G", .tasks = 4}),
            part(gib(4), std::nullopt, 4));
  EXPECT_EQ(parse_gpu_options({.gpus = "a100:1", .gpu_mem = "4G"}),
            part(gib(4), std::nullopt, 1, {"a100"}));
  auto two = mps(25, {"a100"});
  two.count = 2;
  EXPECT_EQ(parse_gpu_options({.gres = "mps:25", .gpus = "a100:2"}), two);
}

TEST(RequestParse, ConstraintNarrowsTheModels) {
  EXPECT_EQ(parse_gpu_options({.gres = "gpu:1", .constraint = "A100|h100|a100"}),
            whole(1, {"a100", "h100"}));
  EXPECT_EQ(parse_gpu_options({.gres = "gpu:1", .constraint = "[a100|h100]"}),
            whole(1, {"a100", "h100"}));
  EXPECT_EQ(parse_gpu_options({.gres = "gpu:h100:1", .constraint = "a100|h100"}),
            whole(1, {"h100"}));
  EXPECT_EQ(parse_gpu_options({.gpu_mem = "8G", .constraint = "titanrtx"}),
            part(gib(8), std::nullopt, 1, {"titanrtx"}));
}

TEST(RequestParse, RefusesNonsenseInGresAndSaysWhatToWrite) {
  const std::vector<std::pair<std::string, std::string>> refusals{
      {"", "--gres is empty: write gpu:1, mps:25, shard:4 or none"},
      {"gpu::", "--gres='gpu::' does not read as [model:]count: write gpu:2 or gpu:titanrtx:1"},
      {"gpu:-1", "--gres='gpu:-1' is negative: write gpu:2 or gpu:titanrtx:1"},
      {"gpu:0.5",
       "--gres='gpu:0.5' is not a whole number of GPUs: for a part of one write --gpu-share=50%"},
      {"gpu:2:titanrtx",
       "--gres='gpu:2:titanrtx': 'titanrtx' is not a count: write gpu:2 or gpu:titanrtx:1"},
      {"gpu:99999999999999999999",
       "--gres='gpu:99999999999999999999': '99999999999999999999' is more than we can count: "
       "write gpu:2 or gpu:titanrtx:1"},
      {"gpu:3090",
       "--gres='gpu:3090' asks for 3090 GPUs of one node: write at most 64; if 3090 is a "
       "model, write gpu:3090:1"},
      {"mps:0",
       "--gres='mps:0' asks for none of a GPU: write mps:25 or mps:titanrtx:25, or "
       "--gres=none for no GPU"},
      {"mps", "--gres='mps' does not say how much: write mps:25 or mps:titanrtx:25"},
      {"mps:-5", "--gres='mps:-5' is negative: write mps:25 or mps:titanrtx:25"},
      {"mps:50%",
       "--gres='mps:50%' does not read as mps[:model]:count: write mps:25 or mps:titanrtx:25"},
      {"shard:9223372036854775807P",
       "--gres='shard:9223372036854775807P' is more than we can count: write shard:4 or "
       "shard:titanrtx:4"},
      {"fpga:1", "--gres='fpga:1': 'fpga' is no resource: write gpu:1, mps:25, shard:4 or none"},
      {"gpu:1,", "--gres='gpu:1,' has an empty entry: write gpu:2 or gpu:titanrtx:1"},
      {"gpu:1,mps:25",
       "--gres='gpu:1,mps:25' asks for a whole GPU and for a part of one: write either gpu:1 "
       "or mps:25"},
      {"mps:25,shard:4",
       "--gres='mps:25,shard:4' asks for two parts of a GPU: write one of them, such as "
       "shard:4 or shard:titanrtx:4"},
      {"gpu:a:1,gpu:b:1",
       "--gres='gpu:a:1,gpu:b:1' asks for GPUs of two models: write --gres=gpu:1 "
       "--constraint='a|b' for either"}};
  for (const auto& [text, refusal] : refusals) EXPECT_EQ(message(gres(text)), refusal);
  for (const auto* junk :
       {":", ",", "gpu:a b", "gpu:(S:0)", "gpu:1:1:1", "gpu:+1", "0", "gpu:1,gpu:1", "mps:a100",
        "mps:1.5", "shard:", "shard:0", "gpu:a100:1.5", "none,none"}) {
    EXPECT_FALSE(gres(junk).has_value()) << junk;
  }
}

TEST(RequestParse, RefusesNonsenseInAmounts) {
  const std::vector<std::pair<GpuOptions, std::string>> refusals{
      {{.gpu_mem = "0"},
       "--gpu-mem='0' asks for no memory: write --gpu-mem=8G, or --gpus=1 for a whole GPU"},
      {{.gpu_mem = "-1G"},
       "--gpu-mem: '-1G' is not a memory size: write a number with K, M, G or T, such as 8G "
       "or 512M"},
      {{.gpu_mem = "50%"},
       "--gpu-mem='50%' is no size: write --gpu-mem=8G, or --gpu-share for a percentage"},
      {{.gpu_share = "150%"},
       "--gpu-share: '150%' is more than one GPU: write at most 100%, or ask for several GPUs"},
      {{.gpu_share = "0.25"},
       "--gpu-share='0.25' may mean a fraction or a percentage: write it as 25% or 0.25%"}};
  for (const auto& [options, refusal] : refusals) {
    EXPECT_EQ(message(parse_gpu_options(options)), refusal);
  }
  for (const auto* junk : {"", "0", "-5%", "abc", "0%"}) {
    EXPECT_FALSE(parse_gpu_options({.gpu_share = junk}).has_value()) << junk;
  }
  EXPECT_EQ(parse_gpu_options({.gpu_mem = "99999999999T"}).error().code, Error::Code::out_of_range);
}

TEST(RequestParse, RefusesContradictions) {
  const std::vector<std::pair<GpuOptions, std::string>> refusals{
      {{.gres = "mps:25", .gpu_mem = "8G"},
       "--gres='mps:25' and --gpu-mem both say which part of a GPU: write only one of them"},
      {{.gres = "gpu:a100:2", .gpu_share = "25%"},
       "--gres='gpu:a100:2' asks for whole GPUs and --gpu-share for a part of one: drop "
       "--gpu-share, or write --gpus=a100:2 for shares"},
      {{.gres = "gpu:2", .gpus = "3"},
       "--gres='gpu:2' and --gpus='3' disagree: 2 and 3 GPUs for the job; write only one of them"},
      {{.gres = "gpu:a100:2", .gpus = "h100:2"},
       "--gres='gpu:a100:2' and --gpus='h100:2' name different models: write only one of them"},
      {{.gres = "mps:a100:2", .gpus = "h100:2"},
       "--gres='mps:a100:2' and --gpus='h100:2' name different models: write only one of them"},
      {{.gres = "gpu:0", .gpu_mem = "8G"},
       "--gres='gpu:0' asks for no GPU, another option for a part of one: write only one of them"},
      {{.gpus = "0", .gpu_mem = "8G"},
       "--gpus='0' asks for no GPU, another option for a part of one: write only one of them"},
      {{.gpus = "a:1,b:1"},
       "--gpus='a:1,b:1' asks for GPUs of several models: write --gpus=1 --constraint='a|b' "
       "for either"},
      {{.gres = "gpu:a100:1", .constraint = "h100"},
       "--constraint='h100' leaves out 'a100', the model asked for: write only one of them"},
      {{.gpus = "3", .nodes = 2},
       "--gpus='3' is 3 GPUs, which do not spread evenly over 2 nodes: write a multiple of 2, "
       "or --gpus-per-node"},
      {{.gres = "gpu:1", .constraint = "a100&ib"},
       "--constraint='a100&ib': a GPU has one model: write a100|h100 for either of two"},
      {{.gpus_per_task = "1", .tasks = 0}, "--ntasks=0 is no number of tasks: write at least 1"},
      {{.gpus = ""}, "--gpus is empty: write a number such as 2, or a model and a number"},
      {{.gpus_per_task = "titanrtx", .tasks = 100},
       "--gpus-per-task='titanrtx' asks for 100 GPUs of one node: write at most 64"}};
  for (const auto& [options, refusal] : refusals) {
    EXPECT_EQ(message(parse_gpu_options(options)), refusal);
  }
  constexpr auto kMany = std::numeric_limits<std::int64_t>::max();
  EXPECT_FALSE(parse_gpu_options({.gpus_per_task = "4", .tasks = kMany}).has_value());
  EXPECT_FALSE(parse_gpu_options({.gres = "gpu:4", .nodes = kMany}).has_value());
}

TEST(RequestParse, PrintsCanonicalWords) {
  EXPECT_EQ(format_gpu_request(std::nullopt), "none");
  EXPECT_EQ(format_gpu_request(whole(1)), "gpu:1");
  EXPECT_EQ(format_gpu_request(whole(2, {"titanrtx"})), "gpu:titanrtx:2");
  EXPECT_EQ(format_gpu_request(whole(1, {"a100", "h100"})), "gpu:1 --constraint=a100|h100");
  EXPECT_EQ(format_gpu_request(mps(25)), "mps:25");
  EXPECT_EQ(format_gpu_request(shard(4, {"titanrtx"})), "shard:titanrtx:4");
  EXPECT_EQ(format_gpu_request(part(gib(8), Compute(5000))), "--gpu-mem=8G --gpu-share=50%");
  EXPECT_EQ(format_gpu_request(part(std::nullopt, Compute(2500), 2, {"a100"})),
            "--gpu-share=25% --gpus=a100:2");
}

GpuRequest any_request() {
  GpuRequest request;
  request.count = *rc::gen::inRange<std::int64_t>(1, 65);
  request.models = *rc::gen::unique<std::vector<std::string>>(rc::gen::resize(
      4, rc::gen::element<std::string>("titanrtx", "3090", "1g.10gb", "a100-sxm4-80gb", "none",
                                       "8k", "gpu", "1g.10gb+me", "a100_1g.10gb")));
  const auto amount = [] { return *rc::gen::inRange<std::int64_t>(1, 1'000'000'000'000); };
  switch (*rc::gen::inRange(0, 3)) {
    case 0:
      request.what = WholeGpu{};
      break;
    case 1: {
      Amounts amounts;
      const auto said = *rc::gen::inRange(1, 4);
      if ((said & 1) != 0) amounts.memory = Bytes(amount());
      if ((said & 2) != 0) amounts.compute = Compute(*rc::gen::inRange<std::int64_t>(1, 10'001));
      request.what = amounts;
      break;
    }
    default:
      request.what = Tickets{*rc::gen::element(Tickets::Kind::mps, Tickets::Kind::shard), amount()};
  }
  return request;
}

RC_GTEST_PROP(RequestParseProperty, WhatIsPrintedReadsBack, ()) {
  const auto request = any_request();
  const auto parsed = parse_gpu_options(options_of(request));
  RC_LOG() << format_gpu_request(request) << '\n';
  RC_ASSERT(parsed.has_value());
  RC_ASSERT((*parsed == request));
}

RC_GTEST_PROP(RequestParseProperty, EveryNodeGetsTheSame, ()) {
  const auto each = *rc::gen::inRange<std::int64_t>(0, 65);
  const auto nodes = *rc::gen::inRange<std::int64_t>(1, 1000);
  const auto expected = each == 0 ? std::nullopt : std::optional(whole(each));
  const auto text = std::to_string(each);
  RC_ASSERT(parse_gpu_options({.gpus = std::to_string(each * nodes), .nodes = nodes}).value() ==
            expected);
  RC_ASSERT(parse_gpu_options({.gpus_per_node = text, .nodes = nodes}).value() == expected);
  RC_ASSERT(parse_gpu_options({.gpus_per_task = text, .tasks = nodes, .nodes = nodes}).value() ==
            expected);
}

RC_GTEST_PROP(RequestParseProperty, AnyTextIsARequestOrOneLine,
              (const std::string& junk, const std::string& mem, const std::string& share)) {
  const auto prefix = *rc::gen::element<std::string>("", "gpu:", "mps:", "gres/shard:a100:");
  for (const auto& parsed :
       {gres(prefix + junk), parse_gpu_options({.gpus = junk}),
        parse_gpu_options({.gpus = "1", .gpu_mem = mem, .gpu_share = share, .constraint = junk})}) {
    if (parsed) {
      RC_ASSERT((parse_gpu_options(options_of(*parsed)) == parsed));
    } else {
      RC_ASSERT(!parsed.error().message.empty());
      RC_ASSERT(parsed.error().message.find('\n') == std::string::npos);
    }
  }
}

}  // namespace
}  // namespace aliquot::core
