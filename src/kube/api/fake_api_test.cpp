#include "kube/api/fake_api.hpp"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/json/serialize.hpp>
#include <optional>

#include "kube/api/testing.hpp"

namespace aliquot::kube {
namespace {

namespace json = boost::json;

class FakeApiTest : public testing::Test {
 protected:
  Result<json::object> ask(const std::string& method, const std::string& target,
                           const std::string& body = {}) {
    std::optional<Result<ApiResponse>> answer;
    api_.send({.method = method,
               .target = target,
               .body = body,
               .content_type = std::string(method == "PATCH" ? kMergePatch : kJson)},
              [&](Result<ApiResponse> got) { answer = std::move(got); });
    EXPECT_FALSE(answer) << "not from within";
    EXPECT_TRUE(test::run_until(context_, [&] { return answer.has_value(); }));
    return object_of(*answer);
  }

  boost::asio::io_context context_;
  FakeApi api_{context_};
};

TEST_F(FakeApiTest, KeepsObjects) {
  const std::string pods = "/api/v1/namespaces/n/pods";
  const auto made = ask("POST", pods, R"({"metadata":{"name":"p"},"spec":{"a":1,"b":2}})");
  ASSERT_TRUE(made) << made.error().message;
  const std::string uid(meta_text(*made, "uid"));
  const std::string version(meta_text(*made, "resourceVersion"));
  EXPECT_FALSE(uid.empty());
  EXPECT_EQ(ask("POST", pods, R"({"metadata":{"name":"p"}})").error().code,
            Error::Code::already_exists);
  EXPECT_EQ(ask("GET", pods + "/p")->at("spec"), made->at("spec"));
  EXPECT_EQ(ask("GET", pods + "/q").error().code, Error::Code::not_found);

  const auto patched =
      ask("PATCH", pods + "/p",
          R"({"metadata":{"uid":")" + uid + R"("},"spec":{"b":null,"c":{"d":3}}})");
  ASSERT_TRUE(patched) << patched.error().message;
  EXPECT_EQ(json::serialize(patched->at("spec")), R"({"a":1,"c":{"d":3}})");
  EXPECT_NE(meta_text(*patched, "resourceVersion"), version);
  EXPECT_EQ(ask("PATCH", pods + "/p", R"({"metadata":{"uid":"other"}})").error().code,
            Error::Code::failed_state);
  EXPECT_EQ(ask("PUT", pods + "/p", R"({"metadata":{"resourceVersion":")" + version + R"("}})")
                .error()
                .code,
            Error::Code::failed_state);
  // A patch that changes nothing is no change.
  EXPECT_EQ(meta_text(*ask("PATCH", pods + "/p", R"({"spec":{"a":1}})"), "resourceVersion"),
            meta_text(*patched, "resourceVersion"));

  EXPECT_EQ(ask("POST", pods + "/p/binding", R"({"target":{}})").error().code,
            Error::Code::invalid_argument);
  EXPECT_EQ(
      ask("POST", pods + "/p/binding", R"({"metadata":{"uid":"other"},"target":{"name":"n1"}})")
          .error()
          .code,
      Error::Code::failed_state);
  EXPECT_TRUE(ask("POST", pods + "/p/binding",
                  R"({"metadata":{"annotations":{"x":"y"}},"target":{"name":"n1"}})"));
  const auto bound = ask("GET", pods + "/p");
  EXPECT_EQ(find_text(*find_object(*bound, "spec"), "nodeName"), "n1");
  EXPECT_EQ(json::serialize(find_object(*bound, "metadata")->at("annotations")), R"({"x":"y"})");
  EXPECT_EQ(ask("POST", pods + "/p/binding", R"({"target":{"name":"n2"}})").error().code,
            Error::Code::failed_state);

  EXPECT_EQ(ask("DELETE", pods + "/p", R"({"preconditions":{"uid":"other"}})").error().code,
            Error::Code::failed_state);
  EXPECT_TRUE(ask("DELETE", pods + "/p"));
  EXPECT_EQ(ask("DELETE", pods + "/p").error().code, Error::Code::not_found);
  EXPECT_EQ(ask("POST", pods, "nonsense").error().code, Error::Code::invalid_argument);
  EXPECT_EQ(ask("GET", "/nowhere").error().code, Error::Code::not_found);
  EXPECT_EQ(ask("POST", pods, R"({"metadata":{"generateName":"g-"}})")
                .map([](const json::object& object) {
                  return meta_text(object, "name").starts_with("g-");
                }),
            true);
}

TEST_F(FakeApiTest, FailsAsItIsTold) {
  api_.put("/api/v1/nodes/n", {});
  using Fault = FakeApi::Fault;
  api_.plan(
      {.fault = Fault::status, .status = 409, .times = 2, .method = "PATCH", .path = "/nodes/"});
  EXPECT_TRUE(ask("GET", "/api/v1/nodes/n"));
  EXPECT_EQ(ask("PATCH", "/api/v1/nodes/n", "{}").error().code, Error::Code::failed_state);
  EXPECT_EQ(ask("PATCH", "/api/v1/nodes/n", "{}").error().code, Error::Code::failed_state);
  EXPECT_TRUE(ask("PATCH", "/api/v1/nodes/n", "{}"));
  api_.plan({.fault = Fault::cut});
  EXPECT_FALSE(ask("DELETE", "/api/v1/nodes/n"));
  EXPECT_NE(api_.find("/api/v1/nodes/n"), nullptr);
  api_.plan({.fault = Fault::lost_answer});
  EXPECT_FALSE(ask("DELETE", "/api/v1/nodes/n"));
  EXPECT_EQ(api_.find("/api/v1/nodes/n"), nullptr);
  api_.plan({.fault = Fault::garbage});
  EXPECT_FALSE(ask("GET", "/api/v1/nodes"));
  for (const auto fault : {Fault::slow, Fault::late}) {
    api_.put("/api/v1/nodes/n", {});
    api_.plan({.fault = fault});
    bool answered = false;
    api_.send({.method = "DELETE", .target = "/api/v1/nodes/n"},
              [&](const Result<ApiResponse>&) { answered = true; });
    test::run_ready(context_);
    EXPECT_FALSE(answered);
    EXPECT_EQ(api_.waiting(), 1U);
    EXPECT_EQ(api_.find("/api/v1/nodes/n") == nullptr, fault == Fault::slow);
    api_.release();
    test::run_ready(context_);
    EXPECT_TRUE(answered);
    EXPECT_EQ(api_.find("/api/v1/nodes/n"), nullptr);
  }
}

}  // namespace
}  // namespace aliquot::kube
