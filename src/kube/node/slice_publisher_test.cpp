#include "kube/node/slice_publisher.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/json.hpp>

#include "kube/api/fake_api.hpp"
#include "kube/api/testing.hpp"

namespace aliquot::kube {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;

constexpr const char* kSlices = "/apis/resource.k8s.io/v1/resourceslices";

json::object counters() {
  return {{"driver", "aliquot.dev"}, {"nodeName", "n1"}, {"sharedCounters", json::array{1}}};
}
json::object devices(const std::string& first) {
  return {
      {"driver", "aliquot.dev"},
      {"nodeName", "n1"},
      {"devices", json::array{json::object{{"name", first}, {"allowMultipleAllocations", true}}}}};
}

class SlicePublisherTest : public testing::Test {
 protected:
  void start() {
    publisher_.emplace(context_, api_, clock_, "aliquot.dev", "n1");
    publisher_->start();
  }
  void want(const std::vector<json::object>& specs) {
    wanted_ = specs;
    publisher_->want(specs, "node-uid");
  }
  // All of one generation, and what is wanted.
  bool settled() {
    clock_.advance(seconds(3));
    publisher_->step();
    const auto all = api_.list(kSlices);
    std::map<std::string, const json::object*> ours;
    std::int64_t newest = 0;
    for (const auto& [path, object] : all) {
      if (find_text(object.at("spec").as_object(), "driver") != "aliquot.dev") continue;
      ours[std::string(meta_text(object, "name"))] = &object;
      newest = std::max(newest, generation(object));
    }
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      const auto found = ours.find(fmt::format("n1-aliquot.dev-{}", i));
      if (found == ours.end() || generation(*found->second) != newest) return false;
      json::object spec = found->second->at("spec").as_object();
      spec.erase("pool");
      if (spec != wanted_[i]) return false;
    }
    return true;
  }
  static std::int64_t generation(const json::object& object) {
    return object.at("spec")
        .as_object()
        .at("pool")
        .as_object()
        .at("generation")
        .to_number<std::int64_t>();
  }
  std::int64_t generation_of(int at) {
    return generation(*api_.find(fmt::format("{}/n1-aliquot.dev-{}", kSlices, at)));
  }
  bool settles() {
    return test::run_until(context_, [this] { return settled(); });
  }

  asio::io_context context_{1};
  FakeApi api_{context_};
  ManualClock clock_;
  std::optional<SlicePublisher> publisher_;
  std::vector<json::object> wanted_;
};

TEST_F(SlicePublisherTest, WritesWhatIsWanted) {
  start();
  want({counters(), devices("a")});
  ASSERT_TRUE(settles());
  EXPECT_EQ(publisher_->trouble(), "");
  const auto& slice = *api_.find(std::string(kSlices) + "/n1-aliquot.dev-1");
  EXPECT_EQ(json::value(slice).at_pointer("/metadata/ownerReferences/0/uid").as_string(),
            "node-uid");
}

TEST_F(SlicePublisherTest, OneThatChangesIsWrittenInItsPlace) {
  start();
  want({counters(), devices("a")});
  ASSERT_TRUE(settles());
  const auto before = generation_of(1);
  want({counters(), devices("b")});
  ASSERT_TRUE(settles());
  EXPECT_EQ(generation_of(1), before);
  want({counters(), devices("b"), devices("c")});
  ASSERT_TRUE(settles());
  EXPECT_GT(generation_of(0), before);
}

TEST_F(SlicePublisherTest, WhatIsDeletedOrChangedComesBack) {
  start();
  want({counters(), devices("a")});
  ASSERT_TRUE(settles());
  // As a kubelet does that starts.
  for (const auto& [path, object] : api_.list(kSlices)) api_.remove(path);
  EXPECT_TRUE(settles());
  ASSERT_TRUE(api_.patch(std::string(kSlices) + "/n1-aliquot.dev-1",
                         {{"spec", {{"devices", json::array{}}}}}));
  EXPECT_FALSE(settled());
  EXPECT_TRUE(settles());
}

TEST_F(SlicePublisherTest, IsNewerThanTheAgentBeforeIt) {
  start();
  want({counters(), devices("a")});
  ASSERT_TRUE(settles());
  const auto before = generation_of(0);
  publisher_.reset();
  start();
  want({counters(), devices("b")});
  ASSERT_TRUE(settles());
  EXPECT_GT(generation_of(0), before);
}

TEST_F(SlicePublisherTest, SaysWhatIsInTheWayUntilItIsNot) {
  start();
  want({counters(), devices("a")});
  ASSERT_TRUE(settles());
  api_.plan({.fault = FakeApi::Fault::status, .status = 403, .times = 1000, .method = "PATCH"});
  want({counters(), devices("b")});
  ASSERT_TRUE(test::run_until(context_, [this] { return !publisher_->trouble().empty(); }));
  api_.clear_plans();
  ASSERT_TRUE(settles());
  EXPECT_EQ(publisher_->trouble(), "");
}

RC_GTEST_FIXTURE_PROP(SlicePublisherTest, EndsWithWhatIsWantedWhateverHappens, ()) {
  start();
  want({counters(), devices("first")});
  for (int i = 0; i < *rc::gen::inRange(0, 12); ++i) {
    switch (*rc::gen::inRange(0, 6)) {
      case 0:
        want({counters(), devices(fmt::format("d{}", i))});
        break;
      case 1:
        want({counters(), devices(fmt::format("d{}", i)), devices(fmt::format("e{}", i))});
        break;
      case 2:
        for (const auto& [path, object] : api_.list(kSlices)) api_.remove(path);
        break;
      case 3:
        api_.plan({.fault = *rc::gen::element(FakeApi::Fault::status, FakeApi::Fault::cut,
                                              FakeApi::Fault::lost_answer),
                   .path = "resourceslices"});
        break;
      case 4:
        api_.cut_watches();
        break;
      default:
        publisher_.reset();
        start();
        want(std::vector<json::object>(wanted_));
    }
    test::run_ready(context_);
  }
  RC_ASSERT(settles());
}

}  // namespace
}  // namespace aliquot::kube
