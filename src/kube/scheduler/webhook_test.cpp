#include "kube/scheduler/webhook.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/json.hpp>

#include "kube/api/base64.hpp"
#include "kube/api/fake_api.hpp"
#include "kube/api/testing.hpp"
#include "kube/model/testing.hpp"

namespace aliquot::kube {
namespace {

namespace json = boost::json;
using test::share;
using ::testing::HasSubstr;

constexpr const char* kTemplates = "/apis/resource.k8s.io/v1/resourceclaimtemplates";

class WebhookTest : public testing::Test {
 protected:
  json::value review(const json::object& request) {
    std::optional<std::string> answer;
    webhook_.admit(json::serialize(json::object{{"kind", "AdmissionReview"}, {"request", request}}),
                   [&](std::string body) { answer = std::move(body); });
    EXPECT_TRUE(aliquot::test::run_until(context_, [&] { return answer.has_value(); }));
    const json::value all = json::parse(*answer);
    EXPECT_EQ(all.at("kind").as_string(), "AdmissionReview");
    return all.at("response");
  }
  json::value admit(const std::vector<test::ContainerSpec>& containers, bool dry = false) {
    return review({{"uid", "r1"},
                   {"operation", "CREATE"},
                   {"namespace", "ns"},
                   {"dryRun", dry},
                   {"object", test::pod_object("p", containers)}});
  }
  static std::string patch_of(const json::value& response) {
    return decode_base64(std::string_view(response.at("patch").as_string())).value();
  }

  boost::asio::io_context context_;
  FakeApi api_{context_};
  Webhook webhook_{api_, {}, gib(1)};
};

TEST_F(WebhookTest, MakesTheTemplatesAndNamesThem) {
  for (int i = 0; i < 2; ++i) {  // the second time they are there
    const auto response = admit({share(8, "a"), share(4, "b")});
    EXPECT_TRUE(response.at("allowed").as_bool());
    EXPECT_EQ(response.at("uid").as_string(), "r1");
    EXPECT_EQ(response.at("patchType").as_string(), "JSONPatch");
    EXPECT_THAT(patch_of(response), HasSubstr("aliquot-gpu-mem-8192mi"));
    EXPECT_EQ(api_.list(kTemplates).size(), 2U);
  }
}

TEST_F(WebhookTest, ADryRunMakesNone) {
  const auto response = admit({share(8)}, true);
  EXPECT_THAT(patch_of(response), HasSubstr("resourceClaimTemplateName"));
  EXPECT_TRUE(api_.seen().empty());
}

TEST_F(WebhookTest, OthersAreLetAlone) {
  EXPECT_FALSE(admit({{.name = "c"}}).as_object().contains("patch"));
  const json::object update{
      {"uid", "r"}, {"operation", "UPDATE"}, {"object", test::pod_object("p", {share(8)})}};
  EXPECT_FALSE(review(update).as_object().contains("patch"));
  EXPECT_TRUE(review({{"uid", "r"}, {"operation", "DELETE"}}).at("allowed").as_bool());
  EXPECT_TRUE(api_.seen().empty());
}

TEST_F(WebhookTest, WhatCannotBeIsRefusedInWords) {
  auto both = share(8);
  both.limits["aliquot.dev/gpu"] = "1";
  const auto response = admit({both});
  EXPECT_FALSE(response.at("allowed").as_bool());
  EXPECT_THAT(std::string(response.at("status").at("message").as_string().c_str()),
              HasSubstr("one of them, please"));
}

TEST_F(WebhookTest, ATemplateThatLiesIsNotUsed) {
  api_.put("/apis/resource.k8s.io/v1/namespaces/ns/resourceclaimtemplates/aliquot-gpu-mem-8192mi",
           {{"spec", {{"spec", {{"devices", {{"requests", json::array{}}}}}}}}});
  const auto response = admit({share(8)});
  EXPECT_FALSE(response.at("allowed").as_bool());
  EXPECT_THAT(std::string(response.at("status").at("message").as_string().c_str()),
              HasSubstr("asks for something else than its name says"));
}

TEST_F(WebhookTest, AnApiServerThatFailsIsTriedAgain) {
  api_.plan({.fault = FakeApi::Fault::status, .status = 500, .path = "resourceclaimtemplates"});
  const auto response = admit({share(8)});
  EXPECT_FALSE(response.at("allowed").as_bool());
  EXPECT_EQ(response.at("status").at("code").as_int64(), 503);
  // An answer that was lost: the template is there.
  api_.plan({.fault = FakeApi::Fault::lost_answer, .path = "resourceclaimtemplates"});
  EXPECT_FALSE(admit({share(8)}).at("allowed").as_bool());
  EXPECT_TRUE(admit({share(8)}).at("allowed").as_bool());
}

TEST_F(WebhookTest, WhateverItIsAskedItAnswers) {
  for (const char* body : {"", "[]", "{}", "{\"request\":1}"}) {
    std::string answer;
    webhook_.admit(body, [&](std::string text) { answer = std::move(text); });
    EXPECT_THAT(answer, HasSubstr("\"allowed\":false")) << body;
  }
}

}  // namespace
}  // namespace aliquot::kube
