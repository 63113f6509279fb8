#include "sim/trace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace aliquot::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string nodes_error(std::string_view text) { return parse_nodes(text, "f").error().message; }
std::string pods_error(std::string_view text) { return parse_pods(text, "f").error().message; }

TEST(Trace, ReadsNodesByTheNamesOfTheColumns) {
  const auto nodes =
      parse_nodes("gpu,model,rack,sn,memory_mib,cpu_milli\n2,T4,r1,n1,1024,500\n", "f");
  ASSERT_TRUE(nodes.has_value()) << nodes.error().message;
  EXPECT_THAT(*nodes, ElementsAre(TraceNode{"n1", CpuMilli(500), gib(1), 2, "T4"}));
}

TEST(Trace, TakesWhatSpreadsheetsWrite) {
  const auto nodes = parse_nodes(
      "\xef\xbb\xbfsn, cpu_milli ,memory_mib,gpu,model\r\n\r\n \"n1\" ,1,1,1,\"A\"\"1,0\"\r\n\n",
      "f");
  ASSERT_TRUE(nodes.has_value()) << nodes.error().message;
  EXPECT_EQ(nodes->front().name, "n1");
  EXPECT_EQ(nodes->front().model, "A\"1,0");
}

TEST(Trace, ReadsPodsWithAndWithoutModels) {
  const auto pods = parse_pods(
      "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
      "a,1,1,1,460,\nb,1,1,8,1000,A|B|A\nc,1,1,0,0,A\n",
      "f");
  ASSERT_TRUE(pods.has_value()) << pods.error().message;
  EXPECT_THAT((*pods)[1].models, ElementsAre("A", "B", "A"));
  EXPECT_TRUE((*pods)[2].models.empty());
  EXPECT_EQ(requested_milli((*pods)[0]), 460);
  EXPECT_EQ(requested_milli((*pods)[1]), 8000);
  EXPECT_EQ(requested_milli((*pods)[2]), 0);
  EXPECT_TRUE(parse_pods("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,1,460\n", "f"));
}

TEST(Trace, NamesFileLineAndColumn) {
  const std::string head = "sn,cpu_milli,memory_mib,gpu,model\n";
  EXPECT_EQ(nodes_error(head + "a,1,1,1,T4\n\nb,x,1,1,T4\n"),
            "f:4: column cpu_milli: 'x' is not a whole number");
  EXPECT_EQ(nodes_error(head + "a,1,1,1\n"), "f:2: 4 fields where the first line names 5");
  EXPECT_EQ(nodes_error("sn,cpu_milli\n"), "f:1: no column 'memory_mib' in the first line");
  EXPECT_EQ(nodes_error("sn,sn\n"), "f:1: there are two columns 'sn'");
  EXPECT_EQ(nodes_error("\n \n"), "f: the file is empty: its first line must name the columns");
  EXPECT_EQ(nodes_error(head), "f: no nodes in it");
  EXPECT_THAT(pods_error("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,1,0\n"),
              HasSubstr("f:2: column gpu_milli: '0'"));
  EXPECT_THAT(nodes_error(head + "a\x01,1,1,1,T4\n"), HasSubstr("is not a name"));
}

RC_GTEST_PROP(Trace, WhatIsWrittenIsReadBack, ()) {
  const auto count = *rc::gen::inRange(1, 20);
  std::vector<TraceNode> nodes;
  std::vector<TracePod> pods;
  for (int i = 0; i < count; ++i) {
    TraceNode node;
    node.name = fmt::format("n{}", i);
    node.cpus = CpuMilli(*rc::gen::inRange(0, 200'000));
    node.memory = mib(*rc::gen::inRange(0, 1'000'000));
    node.gpus = *rc::gen::inRange(0, 9);
    if (node.gpus > 0) node.model = *rc::gen::element<std::string>("T4", "V100");
    nodes.push_back(node);
    TracePod pod;
    pod.name = fmt::format("p{}", i);
    pod.cpus = CpuMilli(*rc::gen::inRange(0, 200'000));
    pod.memory = mib(*rc::gen::inRange(0, 1'000'000));
    pod.gpus = *rc::gen::inRange(0, 9);
    if (pod.gpus > 0) {
      pod.gpu_milli = pod.gpus == 1 ? *rc::gen::inRange(1, 1001) : 1000;
      if (*rc::gen::arbitrary<bool>()) pod.models = {"T4", "V100"};
    }
    pods.push_back(pod);
  }
  RC_ASSERT(parse_nodes(format_nodes(nodes), "f").value() == nodes);
  RC_ASSERT(parse_pods(format_pods(pods), "f").value() == pods);
}

}  // namespace
}  // namespace aliquot::sim
