#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>
#include <boost/asio/io_context.hpp>
#include <boost/json.hpp>

#include "kube/api/fake_api.hpp"
#include "kube/model/testing.hpp"
#include "kube/view/figures.hpp"
#include "kube/view/overview.hpp"
#include "kube/view/questions.hpp"
#include "kube/view/why.hpp"

namespace aliquot::kube {
namespace {

namespace json = boost::json;
using test::gpu_id;
using test::share;
using test::whole;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class ViewTest : public testing::Test {
 protected:
  ViewTest() {
    clock_.set_wall(WallTime(1'700'000'000'000));
    node("n1", {gib(80), gib(80)});
  }

  void node(const std::string& name, const std::vector<Bytes>& memories) {
    put_node(name, test::node_gpus(name, memories));
  }
  void put_node(const std::string& name, const NodeGpus& gpus) {
    api_.put("/api/v1/nodes/" + name, test::node_object(name, gpus));
  }
  json::object pod_object(const std::string& name,
                          const std::vector<test::ContainerSpec>& containers) {
    json::object pod = test::pod_object(name, containers);
    pod["metadata"].as_object()["creationTimestamp"] = "2023-11-14T22:00:00Z";
    return pod;
  }
  void put(const json::object& pod) {
    const std::string path =
        object_path("api/v1", meta_text(pod, "namespace"), "pods", meta_text(pod, "name"));
    api_.put(path, pod);
  }
  // Bound and running, with a grant that nobody sealed: who looks has no key.
  void runs(json::object pod, const std::string& node, const ContainerGrants& containers) {
    pod["spec"].as_object()["nodeName"] = node;
    pod["status"] = json::object{{"phase", "Running"}, {"startTime", "2023-11-14T22:12:20Z"}};
    pod["metadata"].as_object()["annotations"] =
        json::object{{"aliquot.dev/grant", write_grant({node, clock_.wall(), containers})}};
    put(pod);
  }
  static core::GrantedGpu part(int gpu, int gibs, const std::string& node = "n1") {
    return {gpu_id(node, gpu), {gib(gibs), Compute(gibs * 125)}, false};
  }
  ClusterLook look(Wanted wanted = {.name_space = "ns"}) {
    auto look = Questions(context_, api_).look(wanted);
    EXPECT_TRUE(look) << look.error().message;
    return look ? std::move(*look) : ClusterLook();
  }
  api::Overview overview(const Wanted& wanted = {.name_space = "ns"}) {
    return overview_of(look(wanted), clock_).value();
  }
  std::vector<std::string> why(const std::string& name) {
    const auto seen = look();
    for (const SeenPod& pod : seen.pods) {
      if (pod.pod.id.name != name) continue;
      const auto events = Questions(context_, api_).events_of(pod.pod.id).value();
      return why_of(seen, pod, events, clock_).value().sentences;
    }
    ADD_FAILURE() << "no pod " << name;
    return {};
  }
  void forbid(const std::string& path, const std::string& method = "GET") {
    api_.plan({.fault = FakeApi::Fault::status,
               .status = 403,
               .times = 1'000,
               .method = method,
               .path = path});
  }

  boost::asio::io_context context_;
  FakeApi api_{context_};
  ManualClock clock_;
};

TEST_F(ViewTest, ShowsGpusAndWhoHoldsThem) {
  runs(pod_object("a", {share(60, "main")}), "n1", {{"main", {part(0, 60)}}});
  runs(pod_object("b", {whole(1)}), "n1", {{"c", {{gpu_id("n1", 1), {gib(80), kWholeGpu}, true}}}});
  put(pod_object("waits", {share(50)}));
  put(pod_object("plain", {{"c", Role::app, {}}}));
  const auto all = overview();
  EXPECT_EQ(all.cluster.engine, "kubernetes");
  EXPECT_EQ(all.cluster.config.at("Namespace"), "ns");
  EXPECT_FALSE(all.cluster.config.contains("NotSeen"));
  ASSERT_EQ(all.cluster.nodes.size(), 1U);
  const auto& gpus = all.cluster.nodes[0].gpus;
  ASSERT_EQ(gpus.size(), 2U);
  EXPECT_EQ(gpus[0].memory_granted, gib(60).value());
  EXPECT_FALSE(gpus[0].whole);
  EXPECT_TRUE(gpus[0].stale);
  EXPECT_TRUE(gpus[1].whole);
  EXPECT_EQ(all.cluster.nodes[0].state, "mixed");
  ASSERT_EQ(all.jobs.size(), 3U);  // not the one that has nothing to do with GPUs
  EXPECT_EQ(all.jobs[0].pod, "ns/a");
  EXPECT_EQ(all.jobs[0].state, "RUNNING");
  ASSERT_EQ(all.jobs[0].gpus.size(), 1U);
  EXPECT_EQ(all.jobs[0].gpus[0].container, "main");
  EXPECT_EQ(all.jobs[0].gpus[0].node, "n1");
  EXPECT_THAT(gpus[0].jobs, ElementsAre(all.jobs[0].id));
  EXPECT_THAT(gpus[1].jobs, ElementsAre(all.jobs[1].id));
  EXPECT_EQ(all.jobs[2].state, "PENDING");
  EXPECT_EQ(all.jobs[2].gres, "50G");
}

TEST_F(ViewTest, SaysWhyGpuByGpu) {
  node("n2", {gib(40)});
  runs(pod_object("a", {share(60)}), "n1", {{"c", {part(0, 60)}}});
  runs(pod_object("b", {share(44)}), "n1", {{"c", {part(1, 44)}}});
  json::object waits = pod_object("waits", {share(50)});
  waits["status"] =
      json::parse(R"({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
    "reason": "Unschedulable", "message": "0/2 nodes are available"}]})");
  put(waits);
  EXPECT_THAT(
      why("waits"),
      ElementsAre(
          "It asks for 50 GiB of one GPU for c.", "n2: the largest GPU has 40 GiB, asked 50 GiB",
          "  GPU 0 (h100): 40 GiB of 40 GiB and 100% of the compute free",
          "n1: largest free on one GPU: 36 GiB, asked 50 GiB",
          "  GPU 0 (h100): 20 GiB of 80 GiB and 25% of the compute free; ns/a has 60 GiB, 75%",
          "  GPU 1 (h100): 36 GiB of 80 GiB and 45% of the compute free; ns/b has 44 GiB, 55%",
          "default-scheduler says: 0/2 nodes are available"));
}

TEST_F(ViewTest, SaysWhatARunningPodHas) {
  runs(pod_object("two", {share(8, "a"), whole(1, "b")}), "n1",
       {{"a", {part(0, 8)}}, {"b", {{gpu_id("n1", 1), {gib(80), kWholeGpu}, true}}}});
  EXPECT_THAT(why("two"),
              ElementsAre("a has 8 GiB, 10% of GPU 0 on n1.", "b has GPU 1, whole on n1."));
}

TEST_F(ViewTest, SaysWhatKeepsABoundPod) {
  json::object pod = pod_object("p", {share(8)});
  pod["spec"].as_object()["nodeName"] = "n1";
  pod["status"] = json::parse(R"({"phase": "Pending", "containerStatuses": [{"name": "c", "state":
    {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]})");
  put(pod);
  const std::string uid(meta_text(*api_.find("/api/v1/namespaces/ns/pods/p"), "uid"));
  api_.put("/api/v1/namespaces/ns/events/e",
           json::object{{"metadata", json::object{{"name", "e"}, {"namespace", "ns"}}},
                        {"type", "Warning"},
                        {"reason", "GpuLimitExceeded"},
                        {"message", "too much"},
                        {"involvedObject", json::object{{"uid", uid}}}});
  api_.put("/api/v1/namespaces/ns/events/before",
           json::object{{"metadata", json::object{{"name", "before"}, {"namespace", "ns"}}},
                        {"type", "Warning"},
                        {"reason", "FailedScheduling"},
                        {"message", "once"},
                        {"involvedObject", json::object{{"uid", uid}}}});
  const auto sentences = why("p");
  EXPECT_THAT(sentences, Not(Contains(HasSubstr("once"))));  // it does not wait any more
  EXPECT_THAT(sentences, Contains(HasSubstr("has not said yet which GPU it has")));
  EXPECT_THAT(sentences, Contains("c: ImagePullBackOff: no such image"));
  EXPECT_THAT(sentences, Contains("GpuLimitExceeded: too much"));
}

TEST_F(ViewTest, SaysWhatNobodyCanGet) {
  put(pod_object("odd",
                 {{"c", Role::app, {{"aliquot.dev/gpu-mem", "8"}, {"aliquot.dev/gpu", "1"}}}}));
  put(pod_object("plain", {{"c", Role::app, {}}}));
  EXPECT_THAT(why("odd"),
              Contains(HasSubstr("asks for aliquot.dev/gpu-mem and for aliquot.dev/gpu")));
  EXPECT_THAT(why("plain"), Contains("It asks for no GPU that Aliquot shares."));
}

TEST_F(ViewTest, NodesThatTakeNoPodsSaySo) {
  NodeGpus gpus = test::node_gpus("n1", {gib(80), gib(80)});
  gpus.gpus[0].health = core::Health::lost;
  gpus.gpus[1].foreign = gib(3);
  json::object object = test::node_object("n1", gpus);
  object["spec"] = json::object{{"unschedulable", true}};
  api_.put("/api/v1/nodes/n1", object);
  json::object away = test::node_object("n2", test::node_gpus("n2", {gib(80)}));
  away["status"].as_object()["conditions"] =
      json::parse(R"([{"type": "Ready", "status": "Unknown"}])");
  api_.put("/api/v1/nodes/n2", away);
  const auto all = overview();
  EXPECT_EQ(all.cluster.nodes[0].state, "drained");
  EXPECT_EQ(all.cluster.nodes[0].reason, "cordoned");
  EXPECT_EQ(all.cluster.nodes[0].gpus[0].health, "lost");
  ASSERT_EQ(all.cluster.nodes[0].gpus[1].processes.size(), 1U);
  EXPECT_EQ(all.cluster.nodes[0].gpus[1].processes[0].memory, gib(3).value());
  EXPECT_EQ(all.cluster.nodes[1].state, "down");
  put(pod_object("waits", {share(8)}));
  const auto sentences = why("waits");
  EXPECT_THAT(sentences, Contains(HasSubstr("it is cordoned and takes no pods")));
  EXPECT_THAT(sentences, Contains("n2: its kubelet is not ready"));
  EXPECT_THAT(sentences, Contains("  GPU 0 (h100): takes no pods now"));
  EXPECT_THAT(
      sentences,
      Contains(HasSubstr(
          "77 GiB of 80 GiB and 100% of the compute free; processes of no pod hold 3 GiB")));
}

// A pod by claims: the template's, and one that it shares with another pod.
TEST_F(ViewTest, ClaimsCountOnce) {
  const auto claiming = [&](const std::string& name) {
    json::object pod = pod_object(name, {{"c", Role::app, {}}, {"d", Role::app, {}}});
    pod["spec"].as_object()["resourceClaims"] =
        json::parse(R"([{"name": "g", "resourceClaimName": "both"}])");
    for (auto& container : pod["spec"].at("containers").as_array()) {
      container.as_object()["resources"].as_object()["claims"] = json::parse(R"([{"name": "g"}])");
    }
    return pod;
  };
  api_.put("/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/both", json::parse(R"({"metadata":
    {"name": "both", "namespace": "ns"}, "spec": {"devices": {"requests": [{"name": "gpu", "exactly":
    {"deviceClassName": "gpu-share.aliquot.dev", "capacity": {"requests": {"memory": "30Gi", "compute": "25"}}}}]}}})")
                                                                             .as_object());
  const ContainerGrants grants{{"c", {part(0, 30)}}, {"d", {part(0, 30)}}};
  runs(claiming("a"), "n1", grants);
  runs(claiming("b"), "n1", grants);
  put(claiming("waits"));
  const auto all = overview();
  EXPECT_EQ(all.cluster.nodes[0].gpus[0].memory_granted, gib(30).value());
  ASSERT_EQ(all.jobs.size(), 3U);
  EXPECT_EQ(all.jobs[2].gres, "30G,25%");
  EXPECT_THAT(why("waits"),
              Contains("It asks for 30 GiB and 25% of the compute of one GPU for c."));
}

TEST_F(ViewTest, WhoMaySeeLessIsToldSo) {
  runs(pod_object("a", {share(60)}), "n1", {{"c", {part(0, 60)}}});
  forbid("/api/v1/nodes");
  auto all = overview();
  EXPECT_TRUE(all.cluster.nodes.empty());
  EXPECT_THAT(all.cluster.config.at("NotSeen"), HasSubstr("You may not list nodes"));
  ASSERT_EQ(all.jobs.size(), 1U);
  EXPECT_EQ(all.jobs[0].gpus.size(), 1U);
  api_.clear_plans();
  forbid("/api/v1/pods");
  all = overview();
  EXPECT_THAT(all.cluster.config.at("NotSeen"), HasSubstr("pods outside of ns"));
  EXPECT_EQ(all.jobs.size(), 1U);
  // Who asks for all and may not, gets an error.
  EXPECT_FALSE(Questions(context_, api_).look({.all_spaces = true}));
  api_.clear_plans();
  api_.plan({.fault = FakeApi::Fault::cut, .times = 1});
  EXPECT_FALSE(Questions(context_, api_).look({.name_space = "ns"}));
}

TEST_F(ViewTest, QuotaIsOfTheNamespace) {
  EXPECT_FALSE(
      overview({.name_space = "ns", .quota = true}).cluster.config.contains("PartialGpuLimit"));
  api_.put("/api/v1/namespaces/ns/resourcequotas/q",
           json::parse(R"({"metadata": {"name": "q", "namespace": "ns"},
    "status": {"hard": {"requests.aliquot.dev/gpu-mem": "64", "pods": "9"}, "used": {"requests.aliquot.dev/gpu-mem": "24", "pods": "1"}}})")
               .as_object());
  EXPECT_EQ(overview({.name_space = "ns", .quota = true}).cluster.config.at("PartialGpuLimit"),
            "quota: 24 of 64 aliquot.dev/gpu-mem");
}

TEST_F(ViewTest, ReadsWordsForPods) {
  EXPECT_EQ(parse_pod_word("train"), (PodWord{"", "train"}));
  EXPECT_EQ(parse_pod_word("pod/train"), (PodWord{"", "train"}));
  EXPECT_EQ(parse_pod_word("team/train-0.x"), (PodWord{"team", "train-0.x"}));
  for (const char* wrong : {"", "/", "a/", "/a", "A", "a/b/c", "a b", "pod/", "../x"}) {
    EXPECT_EQ(parse_pod_word(wrong), std::nullopt) << wrong;
  }
}

TEST(Figures, AreWhatAgentsWrite) {
  const auto figures = read_figures(
      "# HELP x y\n"
      "aliquot_gpu_memory_used_bytes{uuid=\"GPU-1\"} 1073741824\n"
      "aliquot_gpu_utilization_ratio{uuid=\"GPU-1\"} 0.35\n"
      "aliquot_share_memory_used_bytes{namespace=\"n\",pod=\"p\",container=\"a\\\"b\",gpu="
      "\"GPU-1\"} 5\n"
      "aliquot_share_gpu_seconds_total{namespace=\"n\",pod=\"p\",container=\"a\\\"b\",gpu="
      "\"GPU-1\"} 1.5\n"
      "aliquot_gpu_memory_used_bytes{uuid=\"GPU-2\"} nan\n"
      "aliquot_gpu_memory_used_bytes{uuid=\"GPU-3\" 7\n");
  ASSERT_EQ(figures.gpus.size(), 1U);
  EXPECT_EQ(figures.gpus.at(GpuId("GPU-1")), (GpuFigures{gib(1), Compute(3'500)}));
  EXPECT_EQ(figures.containers.at({"n", "p", "a\"b"}), (ContainerFigures{Bytes(5), Millis(1'500)}));
}

RC_GTEST_PROP(Figures, AnyTextIsRead, (const std::string& text)) {
  const auto figures = read_figures("aliquot_gpu_memory_used_bytes{uuid=\"" + text + "\n" + text);
  for (const auto& [gpu, one] : figures.gpus) RC_ASSERT(!one.used || *one.used >= Bytes(0));
}

// Agents are asked by the API server's proxy, and those that do not answer are a gap.
TEST_F(ViewTest, AgentsTellWhatIsInUse) {
  runs(pod_object("a", {share(60)}), "n1", {{"c", {part(0, 60)}}});
  api_.put("/api/v1/namespaces/aliquot/pods/agent",
           json::parse(R"({"metadata": {"name": "agent", "namespace": "aliquot",
    "labels": {"app.kubernetes.io/name": "aliquot-kube-node"}}, "spec": {"nodeName": "n1", "containers": [{"name": "node",
    "ports": [{"name": "metrics", "containerPort": 9735}]}]}, "status": {"phase": "Running"}})")
               .as_object());
  const auto all = overview();
  EXPECT_THAT(all.cluster.config.at("NotSeen"), HasSubstr("What is in use is not known of 1 node"));
  const auto& seen = api_.seen();
  EXPECT_TRUE(std::ranges::any_of(seen, [](const auto& one) {
    return one.target == "/api/v1/namespaces/aliquot/pods/agent%3A9735/proxy/metrics";
  }));
}

TEST_F(ViewTest, FiguresAreShownWithWhatTheyAreOf) {
  runs(pod_object("a", {share(60)}), "n1", {{"c", {part(0, 60)}}});
  auto seen = look();
  seen.figures["n1"] =
      read_figures("aliquot_gpu_memory_used_bytes{uuid=\"" + gpu_id("n1", 0).value() +
                   "\"} 1073741824\n"
                   "aliquot_gpu_utilization_ratio{uuid=\"" +
                   gpu_id("n1", 0).value() +
                   "\"} 0.5\n"
                   "aliquot_share_memory_used_bytes{namespace=\"ns\",pod=\"a\",container=\"c\","
                   "gpu=\"x\"} 2147483648\n"
                   "aliquot_share_gpu_seconds_total{namespace=\"ns\",pod=\"a\",container=\"c\","
                   "gpu=\"x\"} 30\n");
  const auto all = overview_of(seen, clock_).value();
  const auto& gpu = all.cluster.nodes[0].gpus[0];
  EXPECT_FALSE(gpu.stale);
  EXPECT_TRUE(all.cluster.nodes[0].gpus[1].stale);
  EXPECT_EQ(gpu.utilisation, 5'000);
  EXPECT_EQ(gpu.memory_used, gib(1).value());
  ASSERT_EQ(gpu.processes.size(), 1U);
  EXPECT_EQ(gpu.processes[0].memory, gib(2).value());
  EXPECT_EQ(gpu.processes[0].job_id, all.jobs[0].id);
  // 30 s of the 60 since it started.
  EXPECT_EQ(all.jobs[0].gpu_utilisation, 5'000);
}

}  // namespace
}  // namespace aliquot::kube
