#include "kube/model/pod.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "kube/model/node.hpp"
#include "kube/model/testing.hpp"

namespace aliquot::kube {
namespace {

namespace json = boost::json;
using testing::HasSubstr;

Result<Pod> read(std::string_view text) {
  return read_pod(json::parse({text.data(), text.size()}), Names());
}

TEST(PodValue, KeepsWhatMattersToGpus) {
  const Pod pod = read(R"({
    "metadata": {"namespace": "ns", "name": "p", "uid": "u", "resourceVersion": "7",
      "deletionTimestamp": "2026-01-01T00:00:00Z",
      "annotations": {"aliquot.dev/grant": "g", "other/thing": "x",
                      "ALIYUN_COM_GPU_MEM_IDX": "1", "aliquot.dev/number": 3}},
    "spec": {"nodeName": "n", "overhead": {"cpu": "250m", "memory": "1Mi"},
      "initContainers": [
        {"name": "i", "resources": {"requests": {"cpu": "2"}}},
        {"name": "s", "restartPolicy": "Always", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
      "containers": [
        {"name": "a", "resources": {"limits": {"aliquot.dev/gpu-mem": 8, "cpu": "4", "x.y/z": "1"},
                                    "requests": {"cpu": "500m", "memory": "1Gi"}}},
        {"name": "b", "resources": {"limits": {"aliyun.com/gpu-mem": "0"}}}]},
    "status": {"phase": "Running"}})")
                      .value();
  EXPECT_EQ(pod.id, (PodName{"ns", "p", "u"}));
  EXPECT_EQ(pod.resource_version, "7");
  EXPECT_EQ(pod.node, "n");
  EXPECT_TRUE(pod.terminating);
  EXPECT_FALSE(pod.over());
  EXPECT_EQ(pod.overhead_cpus, CpuMilli(250));
  EXPECT_EQ(pod.overhead_memory, mib(1));
  EXPECT_EQ(pod.annotations, (std::map<std::string, std::string>{{"ALIYUN_COM_GPU_MEM_IDX", "1"},
                                                                 {"aliquot.dev/grant", "g"}}));
  ASSERT_EQ(pod.containers.size(), 4U);
  EXPECT_EQ(pod.containers[0].role, Role::init);
  EXPECT_EQ(pod.containers[0].cpus, kOneCpu * 2);
  EXPECT_EQ(pod.containers[1].role, Role::sidecar);
  EXPECT_EQ(pod.containers[1].gpu_limits.at("nvidia.com/gpu"), 1);
  EXPECT_EQ(pod.containers[2].role, Role::app);
  EXPECT_EQ(pod.containers[2].memory, gib(1));
  EXPECT_EQ(pod.containers[2].gpu_limits,
            (std::map<std::string, std::int64_t>{{"aliquot.dev/gpu-mem", 8}}));
  EXPECT_TRUE(pod.containers[3].gpu_limits.empty());
}

TEST(PodValue, SaysWhatIsWrong) {
  EXPECT_THAT(read("3").error().message, HasSubstr("no object"));
  EXPECT_THAT(read("{}").error().message, HasSubstr("metadata"));
  EXPECT_THAT(read(R"({"metadata":{"name":"p"}})").error().message, HasSubstr("uid"));
  EXPECT_THAT(read(R"({"metadata":{"name":"p","uid":"u"}})").error().message, HasSubstr("spec"));
  EXPECT_THAT(read(R"({"metadata":{"name":"p","uid":"u","namespace":"n"},"spec":{"containers":[
                  {"name":"c","resources":{"limits":{"aliquot.dev/gpu-mem":"lots"}}}]}})")
                  .error()
                  .message,
              testing::AllOf(HasSubstr("n/p"), HasSubstr("'lots'")));
}

TEST(NodeValue, SaysWhatItHas) {
  const NodeGpus gpus = test::node_gpus("n", {gib(80), gib(24)});
  const auto node = read_node(json::value(test::node_object("n", gpus, "7500m")), Names()).value();
  EXPECT_EQ(node.name, "n");
  EXPECT_EQ(node.cpus, CpuMilli(7'500));
  EXPECT_EQ(node.gpus, gpus);
  EXPECT_EQ(node.trouble, "");
}

TEST(NodeValue, IsANodeWithoutGpusWhereItsWordsAreNone) {
  json::object object = test::node_object("n", {});
  object["metadata"].as_object()["annotations"] = json::object{{"aliquot.dev/gpus", "{"}};
  const auto broken = read_node(json::value(object), Names()).value();
  EXPECT_FALSE(broken.gpus);
  EXPECT_THAT(broken.trouble, HasSubstr("aliquot.dev/gpus"));
  object["metadata"].as_object().erase("annotations");
  const auto none = read_node(json::value(object), Names()).value();
  EXPECT_FALSE(none.gpus);
  EXPECT_EQ(none.trouble, "");
  EXPECT_FALSE(read_node(json::value(json::object()), Names()));
}

}  // namespace
}  // namespace aliquot::kube
