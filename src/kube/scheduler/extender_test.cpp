#include "kube/scheduler/extender.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/json.hpp>

#include "kube/api/fake_api.hpp"
#include "kube/model/testing.hpp"
#include "kube/scheduler/extender_json.hpp"

namespace aliquot::kube {
namespace {

namespace json = boost::json;
using test::share;
using test::whole;
using testing::HasSubstr;

class ExtenderTest : public testing::Test {
 protected:
  ExtenderTest() { clock_.set_wall(WallTime(1'700'000'000'000)); }

  void node(const std::string& name, const std::vector<Bytes>& memories) {
    const json::object object = test::node_object(name, test::node_gpus(name, memories));
    state_->see_node(read_node(json::value(object), Names()).value());
  }
  // At the API server, and seen.
  json::object pod(const std::string& name, const std::vector<test::ContainerSpec>& containers) {
    json::object made = api_.put(path(name), test::pod_object(name, containers));
    see(name);
    return made;
  }
  static std::string path(const std::string& name) {
    return object_path("api/v1", "ns", "pods", name);
  }
  [[nodiscard]] Pod now(const std::string& name) const {
    return read_pod(json::value(*api_.find(path(name))), Names()).value();
  }
  void see(const std::string& name) { state_->see_pod(now(name)); }

  json::object filter(const json::object& pod, std::vector<std::string> nodes) {
    json::array names(nodes.begin(), nodes.end());
    return json::parse(extender_->filter(json::serialize(
                           json::object{{"Pod", pod}, {"NodeNames", std::move(names)}})))
        .as_object();
  }
  std::map<std::string, std::int64_t> prioritize(const json::object& pod,
                                                 std::vector<std::string> nodes) {
    json::array names(nodes.begin(), nodes.end());
    std::map<std::string, std::int64_t> scores;
    const json::value answer = json::parse(extender_->prioritize(
        json::serialize(json::object{{"Pod", pod}, {"NodeNames", std::move(names)}})));
    for (const json::value& one : answer.as_array()) {
      scores[std::string(one.at("Host").as_string())] = one.at("Score").as_int64();
    }
    return scores;
  }
  // Its answer, once all that is ready has been done.
  std::optional<std::string> bind(const std::string& name, const std::string& node,
                                  std::string uid = {}) {
    if (uid.empty()) uid = now(name).id.uid;
    auto answer = std::make_shared<std::optional<std::string>>();
    extender_->bind(
        json::serialize(json::object{
            {"PodName", name}, {"PodNamespace", "ns"}, {"PodUID", uid}, {"Node", node}}),
        [answer](const std::string& text) {
          *answer = std::string(json::parse(text).at("Error").as_string());
        });
    run();
    return *answer;
  }
  void run() {
    context_.restart();
    context_.poll();
  }
  Bytes free(const std::string& node, int gpu) {
    return state_->picture().at(node).at(test::gpu_id(node, gpu)).memory_free;
  }

  ManualClock clock_;
  boost::asio::io_context context_;
  FakeApi api_{context_};
  const SealKey key_ = test::key();
  std::unique_ptr<ClusterState> state_ = ClusterState::create({}, key_, clock_).value();
  std::string not_ready_;
  std::string not_leading_;
  std::vector<std::string> told_;
  std::unique_ptr<Extender> extender_ = std::make_unique<Extender>(
      *state_, api_, key_, clock_,
      ExtenderHooks{.not_ready = [this] { return not_ready_; },
                    .not_leading = [this] { return not_leading_; },
                    .tell =
                        [this](const PodName& pod, bool, std::string reason, std::string message) {
                          told_.push_back(pod.name + " " + reason + ": " + message);
                        }});
};

TEST_F(ExtenderTest, FilterSaysOfEveryNodeWhyNot) {
  node("a", {gib(80), gib(6)});
  node("b", {gib(6), gib(6)});
  node("small", {gib(6)});
  pod("other", {share(2, "c"), share(2, "d")});
  ASSERT_EQ(bind("other", "b"), "");
  const auto result = filter(pod("p", {share(6, "x"), share(5, "y")}), {"a", "b", "small", "none"});
  EXPECT_EQ(result.at("NodeNames"), json::value({"a"}));
  const auto& failed = result.at("FailedNodes").as_object();
  EXPECT_EQ(failed.size(), 3U);
  const auto one = filter(pod("q", {share(7)}), {"a", "b", "none"});
  EXPECT_EQ(one.at("FailedNodes").at("b"), "the largest GPU has 6 GiB, asked 7 GiB");
  // Where others would have to go first is not hopeless.
  const auto again = filter(pod("r", {whole(2)}), {"a", "b", "small"});
  EXPECT_EQ(again.at("FailedNodes").as_object().size(), 2U);
  EXPECT_EQ(again.at("FailedAndUnresolvableNodes").as_object().size(), 1U);
  EXPECT_TRUE(again.at("FailedAndUnresolvableNodes").as_object().contains("small"));
}

TEST_F(ExtenderTest, TheReasonOfTheIssue) {
  node("n", {gib(8)});
  pod("other", {share(2)});
  ASSERT_EQ(bind("other", "n"), "");
  const auto result = filter(pod("p", {share(8)}), {"n"});
  EXPECT_EQ(result.at("FailedNodes").at("n"), "largest free on one GPU: 6 GiB, asked 8 GiB");
  EXPECT_TRUE(result.at("NodeNames").as_array().empty());
}

TEST_F(ExtenderTest, WholeNodesComeBackWhereTheyCame) {
  node("a", {gib(8)});
  node("b", {gib(4)});
  const json::object wanted = pod("p", {share(8)});
  const auto answer = extender_->filter(json::serialize(
      json::object{{"pod", wanted},
                   {"nodes", json::object{{"items", json::array{test::node_object("a", {}),
                                                                test::node_object("b", {})}}}}}));
  const auto result = json::parse(answer).as_object();
  ASSERT_EQ(result.at("Nodes").at("items").as_array().size(), 1U);
  EXPECT_EQ(result.at("Nodes").at("items").at(0).at("metadata").at("name"), "a");
  EXPECT_FALSE(result.contains("NodeNames"));
}

TEST_F(ExtenderTest, WhatCannotBeIsSaidForEveryNode) {
  node("a", {gib(8)});
  const auto result =
      filter(pod("p", {{"c", Role::app, {{"aliquot.dev/gpu-share", "20"}}}}), {"a"});
  EXPECT_THAT(std::string(result.at("FailedAndUnresolvableNodes").at("a").as_string()),
              HasSubstr("aliquot.dev/gpu-mem"));
  EXPECT_THAT(extender_->filter("{"), HasSubstr("Error"));
  EXPECT_THAT(extender_->filter("{\"Pod\":{}}"), HasSubstr("Error"));
  EXPECT_EQ(extender_->prioritize("nonsense"), "[]");
  not_ready_ = "pods are not listed yet";
  EXPECT_EQ(filter(*api_.find(path("p")), {"a"}).at("Error"), "pods are not listed yet");
}

TEST_F(ExtenderTest, TheBestNodeAloneHasTheMostPoints) {
  node("empty1", {gib(80)});
  node("empty2", {gib(80)});
  node("used", {gib(80)});
  pod("other", {share(60)});
  ASSERT_EQ(bind("other", "used"), "");
  const auto scores = prioritize(pod("p", {share(20)}), {"empty1", "used", "empty2", "none"});
  EXPECT_EQ(scores.at("used"), 10);
  EXPECT_LT(scores.at("empty1"), 10);
  EXPECT_EQ(scores.at("empty1"), scores.at("empty2"));
  EXPECT_EQ(scores.at("none"), 0);
}

TEST_F(ExtenderTest, PodsWithoutGpusAreBestWhereThereAreNoneOrTheyAreUsedUp) {
  node("full", {gib(80)});
  node("free", {gib(80)});
  pod("other", {whole(1)});
  ASSERT_EQ(bind("other", "full"), "");
  const json::object plain = pod("p", {{"c"}});
  const auto scores = prioritize(plain, {"full", "free", "none"});
  EXPECT_EQ(scores.at("none"), 10);
  EXPECT_EQ(scores.at("full"), 9);
  EXPECT_LT(scores.at("free"), 9);
  EXPECT_EQ(prioritize(plain, {"full", "free"}).at("full"), 10);
}

TEST_F(ExtenderTest, BindsWithAGrantOnThePod) {
  node("n", {gib(80), gib(80)});
  pod("p", {share(8, "a"), whole(1, "b")});
  EXPECT_EQ(bind("p", "n"), "");
  const Pod bound = now("p");
  EXPECT_EQ(bound.node, "n");
  const PodGrant grant = granted(bound, Names(), key_).value();
  EXPECT_EQ(grant.node, "n");
  EXPECT_EQ(grant.assumed, clock_.wall());
  EXPECT_NE(grant.containers.at("a").at(0).gpu, grant.containers.at("b").at(0).gpu);
  // Written before it was bound.
  ASSERT_EQ(api_.seen().size(), 2U);
  EXPECT_EQ(api_.seen()[0].method, "PATCH");
  EXPECT_EQ(api_.seen()[1].method, "POST");
  EXPECT_THAT(api_.seen()[0].body, HasSubstr("resourceVersion"));
  ASSERT_EQ(told_.size(), 1U);
  EXPECT_THAT(told_[0], HasSubstr("p GpuAssigned: on node n: a has 8 GiB and 10% of GPU"));
  const auto before = state_->picture();
  see("p");
  EXPECT_EQ(state_->picture(), before);
  EXPECT_EQ(state_->counts().assumed, 0U);
  // Asked again, it has been done.
  EXPECT_EQ(bind("p", "n"), "");
  EXPECT_THAT(*bind("p", "m"), HasSubstr("bound it to node n"));
}

TEST_F(ExtenderTest, WhatIsBeingBoundCounts) {
  node("n", {gib(10)});
  pod("p", {share(8)});
  pod("q", {share(8)});
  api_.plan({.fault = FakeApi::Fault::late, .method = "PATCH"});
  EXPECT_EQ(bind("p", "n"), std::nullopt);
  EXPECT_THAT(*bind("q", "n"), HasSubstr("largest free on one GPU: 2 GiB"));
  EXPECT_THAT(*bind("p", "n"), HasSubstr("being bound already"));
  EXPECT_EQ(filter(*api_.find(path("p")), {"n"}).at("Error"), "it is being bound already");
  EXPECT_EQ(extender_->counts().binding, 1U);
  api_.release();
  run();
  EXPECT_EQ(now("p").node, "n");
  EXPECT_EQ(extender_->counts().binding, 0U);
}

TEST_F(ExtenderTest, APodThatSomebodyWroteToIsLookedAtAgain) {
  node("n", {gib(10)});
  pod("p", {share(8)});
  ASSERT_TRUE(api_.patch(path("p"), {{"metadata", {{"labels", {{"x", "y"}}}}}}));
  EXPECT_EQ(bind("p", "n"), "");
  EXPECT_EQ(extender_->counts().conflicts, 1U);
  EXPECT_EQ(now("p").node, "n");
}

TEST_F(ExtenderTest, APodThatWasBoundByOthersIsTheirs) {
  node("n", {gib(10)});
  pod("p", {share(8)});
  ASSERT_TRUE(api_.patch(path("p"), {{"spec", {{"nodeName", "m"}}}}));
  EXPECT_THAT(*bind("p", "n"), HasSubstr("somebody else bound it to node m"));
  EXPECT_EQ(free("n", 0), gib(10));
  EXPECT_FALSE(now("p").annotation("aliquot.dev/grant"));
}

TEST_F(ExtenderTest, APodThatVanishedOrIsAnotherOneIsSaidToBe) {
  node("n", {gib(10)});
  const std::string uid(pod("p", {share(8)}).at("metadata").at("uid").as_string());
  ASSERT_TRUE(api_.remove(path("p")));
  EXPECT_THAT(*bind("p", "n", uid), HasSubstr("gone"));
  json::object other = test::pod_object("p", {share(8)});
  other["metadata"].as_object()["uid"] = "another uid";
  api_.put(path("p"), other);
  ASSERT_NE(now("p").id.uid, uid);
  EXPECT_THAT(*bind("p", "n", uid), HasSubstr("another one"));
  EXPECT_EQ(free("n", 0), gib(10));
  // Of the new one nothing was heard yet: it is asked for.
  EXPECT_EQ(bind("p", "n"), "");
}

TEST_F(ExtenderTest, APodThatAsksForSomethingElseIsNotBound) {
  node("n", {gib(10)});
  pod("p", {share(8)});
  json::object other = test::pod_object("p", {share(9)});
  ASSERT_TRUE(api_.patch(path("p"), {{"spec", other.at("spec")}}));
  EXPECT_THAT(*bind("p", "n"), HasSubstr("something else"));
  EXPECT_EQ(free("n", 0), gib(10));
}

TEST_F(ExtenderTest, WhatFailsIsUndone) {
  node("n", {gib(10)});
  struct Case {
    FakeApi::Fault fault;
    int status;
    const char* method;
  };
  for (const Case& one :
       {Case{FakeApi::Fault::status, 403, "PATCH"}, Case{FakeApi::Fault::status, 500, "PATCH"},
        Case{FakeApi::Fault::cut, 0, "PATCH"}, Case{FakeApi::Fault::lost_answer, 0, "PATCH"},
        Case{FakeApi::Fault::status, 403, "POST"}, Case{FakeApi::Fault::status, 500, "POST"},
        Case{FakeApi::Fault::status, 409, "POST"}, Case{FakeApi::Fault::cut, 0, "POST"}}) {
    pod("p", {share(8)});
    api_.plan({.fault = one.fault, .status = one.status, .method = one.method});
    const auto answer = bind("p", "n");
    ASSERT_TRUE(answer);
    EXPECT_NE(*answer, "") << one.method << one.status;
    EXPECT_EQ(now("p").node, "");
    EXPECT_FALSE(now("p").annotation("aliquot.dev/grant")) << one.method << one.status;
    EXPECT_EQ(free("n", 0), gib(10));
    see("p");
    EXPECT_EQ(free("n", 0), gib(10));
    EXPECT_EQ(bind("p", "n"), "");
    state_->lose_pod(now("p").id.uid);
    api_.remove(path("p"));
  }
}

TEST_F(ExtenderTest, AnAnswerThatWasLostIsFoundOut) {
  node("n", {gib(10)});
  pod("p", {share(8)});
  api_.plan({.fault = FakeApi::Fault::lost_answer, .method = "POST"});
  EXPECT_EQ(bind("p", "n"), "");
  EXPECT_EQ(now("p").node, "n");
}

TEST_F(ExtenderTest, WhatNobodyCanTellCountsUntilItIsSeen) {
  node("n", {gib(10)});
  pod("p", {share(8)});
  pod("q", {share(8)});
  api_.plan({.fault = FakeApi::Fault::lost_answer, .method = "POST"});
  api_.plan({.fault = FakeApi::Fault::cut, .method = "GET"});
  EXPECT_THAT(*bind("p", "n"), HasSubstr("cannot tell"));
  EXPECT_THAT(*bind("q", "n"), HasSubstr("largest free"));
  see("p");
  EXPECT_EQ(free("n", 0), gib(2));
  EXPECT_EQ(state_->counts().assumed, 0U);
  // The same, but it was not bound: what is on the pod counts until it is placed anew.
  pod("r", {share(1)});
  api_.plan({.fault = FakeApi::Fault::cut, .method = "POST"});
  api_.plan({.fault = FakeApi::Fault::cut, .method = "GET"});
  EXPECT_THAT(*bind("r", "n"), HasSubstr("cannot tell"));
  EXPECT_EQ(free("n", 0), gib(1));
  see("r");
  EXPECT_EQ(free("n", 0), gib(1));
  EXPECT_EQ(bind("r", "n"), "");
  EXPECT_EQ(free("n", 0), gib(1));
}

TEST_F(ExtenderTest, OnlyTheLeaderBinds) {
  node("n", {gib(10)});
  pod("p", {share(8)});
  not_leading_ = "not the leader: try again";
  EXPECT_EQ(bind("p", "n"), not_leading_);
  // Lost between the two steps: the grant is taken off again.
  not_leading_.clear();
  api_.plan({.fault = FakeApi::Fault::slow, .method = "PATCH"});
  EXPECT_EQ(bind("p", "n"), std::nullopt);
  not_leading_ = "not the leader: try again";
  api_.release();
  run();
  EXPECT_EQ(now("p").node, "");
  EXPECT_FALSE(now("p").annotation("aliquot.dev/grant"));
  EXPECT_EQ(free("n", 0), gib(10));
}

TEST_F(ExtenderTest, AnswersAfterItsEndAreDropped) {
  node("n", {gib(10)});
  pod("p", {share(8)});
  api_.plan({.fault = FakeApi::Fault::late, .method = "PATCH"});
  EXPECT_EQ(bind("p", "n"), std::nullopt);
  extender_.reset();
  api_.release();
  run();
}

TEST_F(ExtenderTest, PodsOfGpushareGetItsAnnotations) {
  node("n", {gib(10)});
  pod("p", {{"c", Role::app, {{"aliyun.com/gpu-mem", "8"}}}});
  EXPECT_EQ(bind("p", "n"), "");
  EXPECT_EQ(*now("p").annotation("ALIYUN_COM_GPU_MEM_IDX"), "0");
  EXPECT_EQ(*now("p").annotation("ALIYUN_COM_GPU_MEM_POD"), "8");
}

TEST_F(ExtenderTest, ReadsBothSpellings) {
  EXPECT_TRUE(read_bind_args(R"({"PodName":"p","PodNamespace":"n","PodUID":"u","Node":"x"})"));
  EXPECT_TRUE(read_bind_args(R"({"podName":"p","podNamespace":"n","podUID":"u","node":"x"})"));
  EXPECT_FALSE(read_bind_args(R"({"podName":"p","podNamespace":"n","podUID":"u"})"));
  EXPECT_FALSE(read_bind_args("[]"));
  EXPECT_EQ(write_bind_result("a \"b\"\n\\"), "{\"Error\":\"a \\\"b\\\"\\u000a\\\\\"}");
}

}  // namespace
}  // namespace aliquot::kube
