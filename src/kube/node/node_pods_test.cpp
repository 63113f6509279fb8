#include "kube/node/node_pods.hpp"

#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace aliquot::kube {
namespace {

namespace json = boost::json;

const PodName kName{"default", "p", "0f1e"};

json::object pod_of(const std::string& grant, const std::string& seal) {
  return json::object{
      {"metadata",
       {{"name", "p"},
        {"namespace", "default"},
        {"uid", "0f1e"},
        {"resourceVersion", "7"},
        {"annotations", {{"aliquot.dev/grant", grant}, {"aliquot.dev/grant-seal", seal}}}}},
      {"spec",
       {{"nodeName", "n1"},
        {"securityContext", {{"runAsUser", 1001}}},
        {"initContainers", {{{"name", "i"}}}},
        {"containers",
         {{{"name", "c"},
           {"securityContext", {{"runAsUser", 7}}},
           {"resources", {{"limits", {{"aliquot.dev/gpu-mem", "2"}}}}}},
          {{"name", "d"}}}}}},
      {"status",
       {{"phase", "Running"},
        {"initContainerStatuses",
         {{{"name", "i"}, {"state", {{"terminated", {{"exitCode", 0}}}}}}}},
        {"containerStatuses",
         {{{"name", "c"},
           {"containerID", "containerd://4f0c"},
           {"state", {{"running", {{"x", 1}}}}}},
          {{"name", "d"}, {"containerID", ""}}}}}}};
}

class NodePodsTest : public testing::Test {
 protected:
  const SealKey key_ = *SealKey::parse("0123456789abcdef0123456789abcdef");
  const PodReader reader_{.names = {}, .node = "n1", .unit = gib(1), .nvidia = false, .key = key_};
  const PodGrant grant_{
      "n1", WallTime(5), {{"c", {{GpuId("GPU-a"), {gib(2), Compute(1000)}, false}}}}};
};

TEST_F(NodePodsTest, ReadsWhatTheNodeWantsToKnow) {
  const std::string text = write_grant(grant_);
  const auto pod = reader_.read(pod_of(text, key_.seal(kName, text)));
  ASSERT_TRUE(pod) << pod.error().message;
  EXPECT_EQ(pod->grant, grant_);
  ASSERT_NE(pod->need("c"), nullptr);
  EXPECT_EQ(pod->need("c")->units, 2);
  EXPECT_EQ(pod->containers.at("c").user, Uid(7));
  EXPECT_EQ(pod->containers.at("d").user, Uid(1001));
  EXPECT_EQ(pod->containers.at("c").id, "4f0c");
  EXPECT_EQ(pod->containers.at("d").id, "");
  EXPECT_TRUE(pod->containers.at("i").finished);
  EXPECT_FALSE(pod->containers.at("c").finished);
}

TEST_F(NodePodsTest, AGrantThatWeDidNotWriteIsNone) {
  const std::string text = write_grant(grant_);
  EXPECT_FALSE(reader_.read(pod_of(text, "00"))->grant);
  const std::string other = key_.seal({"default", "p", "another"}, text);
  EXPECT_FALSE(reader_.read(pod_of(text, other))->grant);
  PodGrant elsewhere = grant_;
  elsewhere.node = "n2";
  const std::string there = write_grant(elsewhere);
  EXPECT_FALSE(reader_.read(pod_of(there, key_.seal(kName, there)))->grant);
}

TEST_F(NodePodsTest, OneOfTheSameNameIsAnotherPod) {
  NodePods pods;
  NodePod pod;
  pod.pod.id = kName;
  pods.put(pod);
  PodName next = kName;
  next.uid = "2222";
  pod.pod.id = next;
  pods.put(pod);
  pods.remove(kName);  // told late
  ASSERT_NE(pods.find("default", "p"), nullptr);
  EXPECT_EQ(pods.find("default", "p")->pod.id, next);
  pods.remove(next);
  EXPECT_EQ(pods.find("default", "p"), nullptr);
}

}  // namespace
}  // namespace aliquot::kube
