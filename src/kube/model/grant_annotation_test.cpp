#include "kube/model/grant_annotation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <boost/json.hpp>

#include "kube/model/testing.hpp"

namespace aliquot::kube {
namespace {

PodGrant some_grant() {
  return {.node = "n1",
          .assumed = WallTime(1'700'000'000'123),
          .containers = {{"c", {{GpuId("GPU-a"), {gib(8), Compute(2'500)}, false}}},
                         {"d", {{GpuId("GPU-b"), {gib(80), kWholeGpu}, true}}}}};
}

TEST(GrantAnnotation, IsWrittenAsAgreed) {
  EXPECT_EQ(write_grant(some_grant()),
            R"({"v":1,"node":"n1","assumed":1700000000123,"containers":{)"
            R"("c":[{"gpu":"GPU-a","memory":8589934592,"compute":2500,"whole":false}],)"
            R"("d":[{"gpu":"GPU-b","memory":85899345920,"compute":10000,"whole":true}]}})");
  EXPECT_EQ(read_grant(write_grant(some_grant())).value(), some_grant());
}

TEST(GrantAnnotation, RefusesWhatIsNone) {
  for (const char* text :
       {"", "[]", "{}", R"({"v":2})", R"({"v":1,"node":"n"})",
        R"({"v":1,"node":"","containers":{}})", R"({"v":1,"node":"n","containers":{"c":3}})",
        R"({"v":1,"node":"n","containers":{"c":[{"gpu":"g","memory":-1,"compute":1}]}})",
        R"({"v":1,"node":"n","containers":{"c":[{"gpu":"","memory":1,"compute":1}]}})",
        R"({"v":1,"node":"n","containers":{"c":[{"gpu":"g","memory":1,"compute":9999999}]}})",
        R"({"v":1,"node":"n","containers":{"c":[{"gpu":"g","memory":1e30,"compute":1}]}})"}) {
    EXPECT_FALSE(read_grant(text)) << text;
  }
}

TEST(GrantAnnotation, TheSealIsAnHmacOverNamesAndText) {
  // printf 'ns/p\nu\n{}' | openssl dgst -sha256 -hmac 'a key of the tests, long enough'
  EXPECT_EQ(test::key().seal({"ns", "p", "u"}, "{}"),
            "d0da73fe76577997a37c8c70ef043acd1bb779a5de23ff08e8fae5091a919869");
  const PodName pod{"ns", "p", "u"};
  const std::string seal = test::key().seal(pod, "text");
  EXPECT_TRUE(test::key().verify(pod, "text", seal));
  EXPECT_FALSE(test::key().verify(pod, "texT", seal));
  EXPECT_FALSE(test::key().verify({"ns", "p", "v"}, "text", seal));
  EXPECT_FALSE(test::key().verify({"ns", "q", "u"}, "text", seal));
  EXPECT_FALSE(test::key().verify({"nt", "p", "u"}, "text", seal));
  EXPECT_FALSE(test::key().verify(pod, "text", seal.substr(1)));
  EXPECT_FALSE(test::key().verify(pod, "text", ""));
  EXPECT_FALSE(SealKey::parse("another key of the tests")->verify(pod, "text", seal));
}

TEST(GrantAnnotation, AKeyCanBeChanged) {
  const PodName pod{"ns", "p", "u"};
  const auto older = SealKey::parse("the older key of them").value();
  const auto both =
      SealKey::parse("# newest first\nthe newer key of them\n\nthe older key of them\n");
  EXPECT_TRUE(both->verify(pod, "t", older.seal(pod, "t")));
  EXPECT_FALSE(older.verify(pod, "t", both->seal(pod, "t")));
  EXPECT_FALSE(SealKey::parse("short"));
  EXPECT_FALSE(SealKey::parse("\n# only this\n"));
}

TEST(GrantAnnotation, WhatIsNotSealedForThisPodIsNoGrant) {
  Pod pod = test::pod("p", {test::share(8)});
  EXPECT_EQ(granted(pod, Names(), test::key()).error().code, Error::Code::not_found);
  const std::string text = write_grant(some_grant());
  pod.annotations["aliquot.dev/grant"] = text;
  EXPECT_EQ(granted(pod, Names(), test::key()).error().code, Error::Code::permission_denied);
  pod.annotations["aliquot.dev/grant-seal"] = test::key().seal(pod.id, text);
  EXPECT_EQ(granted(pod, Names(), test::key()).value(), some_grant());
  pod.id.uid = "another";
  EXPECT_EQ(granted(pod, Names(), test::key()).error().code, Error::Code::permission_denied);
}

TEST(GrantAnnotation, GpusharesPodsGetGpusharesAnnotations) {
  const Pod pod = test::pod("p", {{"c", Role::app, {{"aliyun.com/gpu-mem", "8"}}}});
  const auto request = read_request(pod, Names(), gib(1), false).value();
  const NodeGpus node = test::node_gpus("n1", {gib(24), gib(80)});
  const PodGrant grant{
      "n1", WallTime(5), {{"c", {{test::gpu_id("n1", 1), {gib(8), Compute(1'000)}, false}}}}};
  const auto patch = grant_annotations(pod.id, request, grant, node, Names(), test::key());
  EXPECT_EQ(patch.at("ALIYUN_COM_GPU_MEM_IDX"), "1");
  EXPECT_EQ(patch.at("ALIYUN_COM_GPU_MEM_POD"), "8");
  EXPECT_EQ(patch.at("ALIYUN_COM_GPU_MEM_DEV"), "80");
  EXPECT_EQ(patch.at("ALIYUN_COM_GPU_MEM_ASSUME_TIME"), "5000000");
  EXPECT_EQ(patch.at("ALIYUN_COM_GPU_MEM_ASSIGNED"), "false");
  EXPECT_EQ(patch.size(), 7U);
  const auto back = no_grant_annotations(Names(), true);
  for (const auto& [name, text] : patch) EXPECT_EQ(back.at(name), std::nullopt) << name;
}

TEST(GrantAnnotation, ThePatchHoldsForThisPodAlone) {
  EXPECT_EQ(annotation_patch({{"a/b", "x"}, {"c", std::nullopt}}, "u", "7"),
            R"({"metadata":{"uid":"u","annotations":{"a/b":"x","c":null},"resourceVersion":"7"}})");
  EXPECT_EQ(annotation_patch({}, "u", ""), R"({"metadata":{"uid":"u","annotations":{}}})");
}

RC_GTEST_PROP(GrantAnnotation, IsReadAsWritten, ()) {
  PodGrant grant{.node = "n",
                 .assumed = WallTime(*rc::gen::inRange<std::int64_t>(0, 1LL << 45)),
                 .containers = {}};
  for (int i = *rc::gen::inRange(0, 4); i > 0; --i) {
    auto& parts = grant.containers[fmt::format("c{}", i)];
    for (int j = *rc::gen::inRange(0, 4); j > 0; --j) {
      parts.push_back({GpuId(fmt::format("GPU-{}", j)),
                       {Bytes(*rc::gen::inRange<std::int64_t>(0, 1LL << 46)),
                        Compute(*rc::gen::inRange(0, 1'000'000))},
                       *rc::gen::arbitrary<bool>()});
    }
  }
  RC_ASSERT(read_grant(write_grant(grant)).value() == grant);
}

}  // namespace
}  // namespace aliquot::kube
