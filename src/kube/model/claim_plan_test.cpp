#include "kube/model/claim_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <boost/json.hpp>
#include <set>

#include "kube/model/claim.hpp"
#include "kube/model/testing.hpp"

namespace aliquot::kube {
namespace {

namespace json = boost::json;
using test::ContainerSpec;
using test::share;
using test::whole;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What the API server does with a patch, as far as ours go.
void apply(const json::array& patch, json::value& object) {
  for (const json::value& one : patch) {
    const std::string path(one.at("path").as_string().c_str());
    const auto slash = path.rfind('/');
    auto& parent = object.at_pointer(path.substr(0, slash)).as_object();
    std::string key = path.substr(slash + 1);
    if (const auto escape = key.find("~1"); escape != std::string::npos)
      key.replace(escape, 2, "/");
    if (one.at("op").as_string() == "remove") {
      ASSERT_EQ(parent.erase(key), 1U) << path;
    } else {
      parent[key] = one.at("value");
    }
  }
}

ClaimPlan plan(const std::vector<ContainerSpec>& containers) {
  return plan_claims(test::pod_object("p", containers), {}, gib(1)).value().value();
}
TEST(ClaimPlan, LimitsBecomeClaims) {
  ContainerSpec main = share(8, "main");
  main.limits["aliquot.dev/gpu-share"] = "25";
  json::value pod =
      test::pod_object("p", {main, share(3, "side"), whole(2, "all"), {.name = "none"}});
  const auto made = plan_claims(pod.as_object(), {}, gib(1));
  ASSERT_TRUE(made && *made);
  EXPECT_THAT(
      (*made)->templates,
      ElementsAre(
          ClaimTemplate{"aliquot-gpu-mem-8192mi-share-25", "gpu-share.aliquot.dev", 1, gib(8), 25},
          ClaimTemplate{"aliquot-gpu-mem-3072mi", "gpu-share.aliquot.dev", 1, gib(3), 0},
          ClaimTemplate{"aliquot-gpu-2", "gpu.aliquot.dev", 2, std::nullopt, 0}));
  apply((*made)->patch, pod);
  // Nothing of limits is left, and every container names its own.
  EXPECT_THAT(json::serialize(pod), testing::Not(HasSubstr("aliquot.dev/gpu")));
  EXPECT_EQ(pod.at_pointer("/spec/containers/1/resources/claims/0/name").as_string(), "aliquot-1");
  EXPECT_EQ(pod.at_pointer("/spec/resourceClaims/1/resourceClaimTemplateName").as_string(),
            "aliquot-gpu-mem-3072mi");
  EXPECT_EQ(pod.at_pointer("/spec/containers/0/resources/requests/cpu").as_string(), "1");
  EXPECT_FALSE(pod.at_pointer("/spec/containers/3/resources").as_object().contains("claims"));
  // Once more: as it is.
  EXPECT_FALSE(*plan_claims(pod.as_object(), {}, gib(1)));
}

TEST(ClaimPlan, EqualContainersHaveOneTemplateAndAClaimEach) {
  const auto two = plan({share(8, "a"), share(8, "b")});
  EXPECT_EQ(two.templates.size(), 1U);
  EXPECT_EQ(two.patch.front().at("value").as_array().size(), 2U);
}

TEST(ClaimPlan, WhatIsOverBeforeTheOthersStartHasTheirs) {
  const auto one = plan({share(8, "i", Role::init), share(8, "j", Role::init), share(8, "a")});
  EXPECT_EQ(one.patch.front().at("value").as_array().size(), 1U);
  // A sidecar stays, and one of another size is another.
  const auto more = plan({share(8, "s", Role::sidecar), share(8, "i", Role::init), share(4, "a")});
  EXPECT_EQ(more.patch.front().at("value").as_array().size(), 3U);
}

TEST(ClaimPlan, OthersStayAsTheyAre) {
  const auto untouched = [](const json::object& pod) {
    const auto made = plan_claims(pod, {}, gib(1));
    return made && !*made;
  };
  EXPECT_TRUE(untouched(test::pod_object("p", {{.name = "c"}})));
  EXPECT_TRUE(
      untouched(test::pod_object("p", {{.name = "c", .limits = {{"nvidia.com/gpu", "1"}}}})));
  EXPECT_TRUE(
      untouched(test::pod_object("p", {{.name = "c", .limits = {{"aliyun.com/gpu-mem", "1"}}}})));
  json::object own = test::pod_object("p", {share(8)});
  own["spec"].as_object()["resourceClaims"] = json::array{json::object{{"name", "mine"}}};
  EXPECT_TRUE(untouched(own));
  EXPECT_TRUE(untouched({}));
}

TEST(ClaimPlan, APodNeedNotHaveAName) {
  json::object pod = test::pod_object("p", {share(8)});
  pod["metadata"] = json::object{{"generateName", "p-"}};
  EXPECT_TRUE(*plan_claims(pod, {}, gib(1)));
}

TEST(ClaimPlan, WhatCannotBeIsSaid) {
  ContainerSpec both = share(8);
  both.limits["aliquot.dev/gpu"] = "1";
  const auto refused = plan_claims(test::pod_object("p", {both}), {}, gib(1));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("one of them, please"));
}

TEST(ClaimTemplate, IsKnownAgainAsTheApiServerWritesIt) {
  const ClaimTemplate wanted{"n", "gpu-share.aliquot.dev", 1, gib(8), 25};
  json::value object = write_template(wanted, "ns");
  EXPECT_TRUE(is_template(object.as_object(), wanted));
  auto& exactly = object.at_pointer("/spec/spec/devices/requests/0/exactly").as_object();
  exactly["capacity"].as_object()["requests"].as_object()["memory"] = "8Gi";
  EXPECT_TRUE(is_template(object.as_object(), wanted));
  exactly["capacity"].as_object()["requests"].as_object()["memory"] = "80Gi";
  EXPECT_FALSE(is_template(object.as_object(), wanted));
  exactly["capacity"].as_object()["requests"].as_object()["memory"] = "8Gi";
  exactly["selectors"] = json::array{1};
  EXPECT_FALSE(is_template(object.as_object(), wanted));
  EXPECT_FALSE(is_template({}, wanted));
}

RC_GTEST_PROP(ClaimTemplate, ComesBackAsItWasAndNoOther, ()) {
  const auto any = [] {
    const bool share = *rc::gen::arbitrary<bool>();
    ClaimTemplate one{"n", share ? "gpu-share.aliquot.dev" : "gpu.aliquot.dev", 1, std::nullopt, 0};
    if (share) {
      one.memory = mib(*rc::gen::inRange<std::int64_t>(1, 100'000));
      one.compute = *rc::gen::inRange<std::int64_t>(0, 3);
    } else {
      one.count = *rc::gen::inRange<std::int64_t>(1, 4);
    }
    return one;
  };
  const ClaimTemplate one = any();
  const ClaimTemplate other = any();
  RC_ASSERT(is_template(write_template(one, "ns"), other) == (one == other));
}

RC_GTEST_PROP(ClaimPlan, EveryContainerThatAskedHasAClaim, ()) {
  std::vector<ContainerSpec> containers;
  const int count = *rc::gen::inRange(1, 6);
  for (int i = 0; i < count; ++i) {
    const Role role = *rc::gen::element(Role::app, Role::init, Role::sidecar);
    const std::string name = fmt::format("c{}", i);
    containers.push_back(*rc::gen::arbitrary<bool>() ? share(*rc::gen::inRange(1, 4), name, role)
                                                     : ContainerSpec{.name = name, .role = role});
  }
  json::value pod = test::pod_object("p", containers);
  const auto made = plan_claims(pod.as_object(), {}, gib(1));
  RC_ASSERT(made.has_value());
  if (!*made) return;
  apply((*made)->patch, pod);
  auto& object = pod.as_object();
  // As the claims' controller does.
  json::array statuses;
  for (const json::value& claim : object["spec"].at("resourceClaims").as_array()) {
    statuses.push_back(
        json::object{{"name", claim.at("name")}, {"resourceClaimName", claim.at("name")}});
  }
  object["status"].as_object()["resourceClaimStatuses"] = std::move(statuses);
  const auto claims = claims_of(object);
  std::set<std::string> apps;
  for (const ContainerSpec& one : containers) {
    RC_ASSERT(claims.contains(one.name) == !one.limits.empty());
    // Those that run at one time have each their own.
    if (one.role != Role::init && !one.limits.empty()) {
      RC_ASSERT(apps.insert(claims.at(one.name).front().claim).second);
    }
  }
}

}  // namespace
}  // namespace aliquot::kube
