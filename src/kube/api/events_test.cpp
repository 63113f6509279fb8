#include "kube/api/events.hpp"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/json/serialize.hpp>

#include "kube/api/fake_api.hpp"
#include "kube/api/testing.hpp"

namespace aliquot::kube {
namespace {

namespace json = boost::json;

class EventsTest : public testing::Test {
 protected:
  std::vector<json::object> there(const std::string& space = "n") {
    test::run_ready(context_);
    std::vector<json::object> found;
    for (auto& [path, object] : api_.list(object_path("api/v1", space, "events"))) {
      found.push_back(object);
    }
    return found;
  }

  boost::asio::io_context context_;
  FakeApi api_{context_};
  ManualClock clock_{WallTime(1'700'000'000'123)};
  const ObjectRef pod_{.name_space = "n", .name = "p", .uid = "u"};
};

TEST_F(EventsTest, TellsWhatHappenedToAPod) {
  Events events(context_, api_, clock_, {.component = "aliquot-kube-scheduler", .host = "n1"});
  events.tell(pod_, Severity::warning, "NoRoom", "largest free on one GPU: 6 GiB, asked 8");
  const auto told = there();
  ASSERT_EQ(told.size(), 1U);
  const json::object& event = told[0];
  EXPECT_EQ(json::serialize(event.at("involvedObject")),
            R"({"kind":"Pod","name":"p","uid":"u","apiVersion":"v1","namespace":"n"})");
  EXPECT_EQ(find_text(event, "type"), "Warning");
  EXPECT_EQ(find_text(event, "reason"), "NoRoom");
  EXPECT_EQ(find_text(event, "message"), "largest free on one GPU: 6 GiB, asked 8");
  EXPECT_EQ(find_text(event, "firstTimestamp"), "2023-11-14T22:13:20Z");
  EXPECT_EQ(find_number(event, "count"), 1);
  events.tell({.kind = "Node", .name = "n1", .uid = "n1"}, Severity::normal, "Ready", "4 GPUs");
  EXPECT_EQ(there("default").size(), 1U);
}

TEST_F(EventsTest, CountsTheSame) {
  Events events(context_, api_, clock_);
  const auto tell = [&] { events.tell(pod_, Severity::normal, "Waits", "for room"); };
  tell();
  tell();  // before the first has been taken
  ASSERT_EQ(there().size(), 1U);
  for (int i = 0; i < 10; ++i) tell();
  EXPECT_EQ(find_number(there()[0], "count"), 1);
  events.flush();
  EXPECT_EQ(find_number(there()[0], "count"), 1) << "not so soon";
  clock_.advance(seconds(40));
  events.flush();
  ASSERT_EQ(there().size(), 1U);
  EXPECT_EQ(find_number(there()[0], "count"), 12);
  EXPECT_EQ(find_text(there()[0], "lastTimestamp"), "2023-11-14T22:13:20Z");
  clock_.advance(seconds(40));
  tell();
  EXPECT_EQ(find_number(there()[0], "count"), 13);
  EXPECT_EQ(find_text(there()[0], "lastTimestamp"), "2023-11-14T22:14:40Z");
  EXPECT_EQ(find_text(there()[0], "firstTimestamp"), "2023-11-14T22:13:20Z");
  // Another message is another event, and so is another pod of that name.
  events.tell(pod_, Severity::normal, "Waits", "for something else");
  ObjectRef other = pod_;
  other.uid = "u2";
  events.tell(other, Severity::normal, "Waits", "for room");
  EXPECT_EQ(there().size(), 3U);
  // The API server has forgotten it.
  for (const auto& [path, object] : api_.list("/api/v1/events")) api_.remove(path);
  clock_.advance(seconds(40));
  tell();
  test::run_ready(context_);
  events.flush();
  ASSERT_EQ(there().size(), 1U);
  EXPECT_EQ(find_number(there()[0], "count"), 1);
  EXPECT_EQ(events.dropped(), 0U);
}

TEST_F(EventsTest, WhatCannotBeDeliveredIsDropped) {
  Events events(context_, api_, clock_, {.remembered = 3, .in_flight = 2});
  api_.plan({.fault = FakeApi::Fault::cut});
  events.tell(pod_, Severity::normal, "A", "a");
  EXPECT_TRUE(there().empty());
  EXPECT_EQ(events.dropped(), 1U);
  events.tell(pod_, Severity::normal, "A", "a");
  ASSERT_EQ(there().size(), 1U);
  EXPECT_EQ(find_number(there()[0], "count"), 2);
  for (int i = 0; i < 10; ++i) events.tell(pod_, Severity::normal, "B", std::to_string(i));
  test::run_ready(context_);
  events.flush();
  EXPECT_GE(there().size(), 3U);
  EXPECT_LE(there().size(), 6U);
  EXPECT_GT(events.dropped(), 3U);
}

TEST_F(EventsTest, IsNoLongerThanMayBe) {
  Events events(context_, api_, clock_);
  std::string message = "x";
  for (int i = 0; i < 2000; ++i) message += "ü";
  events.tell({.name_space = "n", .name = std::string(253, 'p'), .uid = "u"}, Severity::normal,
              std::string(200, 'R'), message);
  const auto told = there();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(find_text(told[0], "message").size(), 1023U);
  EXPECT_EQ(find_text(told[0], "reason").size(), 128U);
  EXPECT_LE(meta_text(told[0], "name").size(), 253U);
}

}  // namespace
}  // namespace aliquot::kube
