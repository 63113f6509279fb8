#include "kube/scheduler/service.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/json.hpp>

#include "kube/api/fake_api.hpp"
#include "kube/api/testing.hpp"
#include "kube/model/testing.hpp"

namespace aliquot::kube {
namespace {

namespace json = boost::json;
using test::share;
using testing::HasSubstr;

class SchedulerServiceTest : public testing::Test {
 protected:
  SchedulerServiceTest() { clock_.set_wall(WallTime(1'700'000'000'000)); }

  std::unique_ptr<SchedulerService> serve(const std::string& identity = {}) {
    ServiceSettings settings;
    if (!identity.empty()) {
      LeaseOptions lease;
      lease.name_space = "ns";
      lease.name = "scheduler";
      lease.identity = identity;
      lease.retry = Millis(20);
      settings.lease = lease;
    }
    auto service = SchedulerService::create(context_, api_, clock_, test::key(), settings).value();
    service->start();
    return service;
  }
  bool until(const std::function<bool()>& condition) {
    return aliquot::test::run_until(context_, condition);
  }
  net::Response ask(SchedulerService& service, const std::string& method, const std::string& path,
                    const std::string& body = {}) {
    std::optional<net::Response> answer;
    service.handle({.method = method, .path = path, .query = {}, .body = body},
                   [&](net::Response response) { answer = std::move(response); });
    EXPECT_TRUE(until([&] { return answer.has_value(); }));
    return *answer;
  }
  std::string bind(SchedulerService& service, const std::string& name) {
    const auto answer = ask(
        service, "POST", "/bind",
        json::serialize(json::object{
            {"PodName", name}, {"PodNamespace", "ns"}, {"PodUID", "uid-" + name}, {"Node", "n"}}));
    return std::string(json::parse(answer.body).at("Error").as_string());
  }
  void put_pod(const std::string& name, int units) {
    api_.put(path(name), test::pod_object(name, {share(units)}));
  }
  static std::string path(const std::string& name) {
    return object_path("api/v1", "ns", "pods", name);
  }
  void put_node() {
    api_.put("/api/v1/nodes/n", test::node_object("n", test::node_gpus("n", {gib(10)})));
  }

  ManualClock clock_;
  boost::asio::io_context context_;
  FakeApi api_{context_};
};

TEST_F(SchedulerServiceTest, FollowsPodsAndNodesAndBinds) {
  put_node();
  put_pod("p", 8);
  const auto service = serve();
  EXPECT_EQ(ask(*service, "GET", "/healthz").status, 200);
  ASSERT_TRUE(until([&] { return service->not_ready().empty(); }));
  EXPECT_EQ(ask(*service, "GET", "/readyz").status, 200);
  EXPECT_EQ(ask(*service, "GET", "/leadz").status, 200);
  const std::string args = json::serialize(
      json::object{{"Pod", *api_.find(path("p"))}, {"NodeNames", json::array{"n", "m"}}});
  EXPECT_THAT(ask(*service, "POST", "/filter", args).body, HasSubstr(R"("NodeNames":["n"])"));
  EXPECT_EQ(ask(*service, "POST", "/prioritize", args).body,
            R"([{"Host":"n","Score":10},{"Host":"m","Score":0}])");
  EXPECT_EQ(bind(*service, "p"), "");
  // What is bound is seen, and told of.
  ASSERT_TRUE(until([&] { return service->state().counts().assumed == 0; }));
  EXPECT_EQ(service->state().counts().holders, 1U);
  ASSERT_TRUE(until([&] { return !api_.list("/api/v1/events").empty(); }));
  put_pod("q", 8);
  ASSERT_TRUE(until([&] { return service->state().counts().pods == 2; }));
  EXPECT_THAT(bind(*service, "q"), HasSubstr("largest free on one GPU: 2 GiB, asked 8 GiB"));
  api_.remove(path("p"));
  ASSERT_TRUE(until([&] { return service->state().counts().holders == 0; }));
  EXPECT_EQ(bind(*service, "q"), "");
  const std::string metrics = ask(*service, "GET", "/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("aliquot_kube_binds_total 2\n"));
  EXPECT_THAT(metrics, HasSubstr("aliquot_kube_gpus 1\n"));
  EXPECT_THAT(metrics, HasSubstr("duration_seconds_count{handler=\"bind\"} 3\n"));
  EXPECT_EQ(ask(*service, "GET", "/bind").status, 404);
  EXPECT_EQ(ask(*service, "POST", "/else").status, 404);
}

TEST_F(SchedulerServiceTest, DecidesNothingBeforeItKnowsAll) {
  put_node();
  put_pod("p", 8);
  api_.plan({.fault = FakeApi::Fault::late, .method = "GET", .path = "pods"});
  const auto service = serve();
  ASSERT_TRUE(until([&] { return api_.waiting() == 1; }));
  EXPECT_THAT(bind(*service, "p"), HasSubstr("has not listed all"));
  EXPECT_EQ(ask(*service, "GET", "/readyz").status, 503);
  EXPECT_THAT(ask(*service, "POST", "/filter", "{}").body, HasSubstr("has not listed all"));
  api_.release();
  ASSERT_TRUE(until([&] { return service->not_ready().empty(); }));
  EXPECT_EQ(bind(*service, "p"), "");
}

TEST_F(SchedulerServiceTest, AForgedGrantIsTold) {
  put_node();
  const auto service = serve();
  ASSERT_TRUE(until([&] { return service->not_ready().empty(); }));
  json::object pod = test::pod_object("p", {share(8)});
  pod["metadata"].as_object()["annotations"] = json::object{{"aliquot.dev/grant", "{}"}};
  api_.put(path("p"), pod);
  ASSERT_TRUE(until([&] { return !api_.list("/api/v1/events").empty(); }));
  const auto events = api_.list("/api/v1/events");
  EXPECT_EQ(find_text(events.begin()->second, "reason"), "GrantNotOurs");
  EXPECT_EQ(find_text(events.begin()->second, "type"), "Warning");
}

TEST_F(SchedulerServiceTest, OfTwoOnlyTheLeaderBindsAndTheNextOneKnowsWhatItDid) {
  put_node();
  put_pod("p", 8);
  put_pod("q", 8);
  auto first = serve("one");
  ASSERT_TRUE(until([&] { return first->not_ready().empty() && first->not_leading().empty(); }));
  const auto second = serve("two");
  ASSERT_TRUE(until([&] { return second->not_ready().empty(); }));
  EXPECT_THAT(bind(*second, "p"), HasSubstr("not the leader"));
  EXPECT_EQ(ask(*second, "GET", "/readyz").status, 200);
  EXPECT_EQ(ask(*second, "GET", "/leadz").status, 503);
  EXPECT_EQ(bind(*first, "p"), "");
  bool stopped = false;
  first->stop([&] { stopped = true; });
  ASSERT_TRUE(until([&] { return stopped; }));
  EXPECT_THAT(bind(*first, "q"), HasSubstr("not the leader"));
  first.reset();
  ASSERT_TRUE(until([&] { return second->not_leading().empty(); }));
  EXPECT_THAT(bind(*second, "q"), HasSubstr("largest free on one GPU: 2 GiB"));
}

}  // namespace
}  // namespace aliquot::kube
