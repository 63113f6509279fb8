#include "kube/api/reflector.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <boost/asio/io_context.hpp>
#include <map>
#include <optional>

#include "kube/api/fake_api.hpp"
#include "kube/api/testing.hpp"

namespace aliquot::kube {
namespace {

namespace json = boost::json;

std::string numbered_pod(int number) {
  return object_path("api/v1", number % 2 == 0 ? "even" : "odd", "pods",
                     fmt::format("p{}", number));
}

// What whoever listens makes of the events; it finds what cannot be.
struct Picture {
  std::map<std::string, std::pair<std::string, std::string>> pods;  // uid, version
  std::vector<std::string> wrong;
  int events = 0;

  void take(EventType type, const json::object& object) {
    ++events;
    const std::string key =
        fmt::format("{}/{}", meta_text(object, "namespace"), meta_text(object, "name"));
    const std::string uid(meta_text(object, "uid"));
    const auto found = pods.find(key);
    const bool known = found != pods.end();
    if (known == (type == EventType::added)) wrong.push_back("wrong type for " + key);
    if (known && found->second.first != uid) wrong.push_back("another uid for " + key);
    if (type == EventType::deleted) {
      pods.erase(key);
    } else {
      pods[key] = {uid, std::string(meta_text(object, "resourceVersion"))};
    }
  }
};

std::map<std::string, std::pair<std::string, std::string>> pods_there(const FakeApi& api) {
  std::map<std::string, std::pair<std::string, std::string>> pods;
  for (const auto& [path, object] : api.list("/api/v1/pods")) {
    pods[fmt::format("{}/{}", meta_text(object, "namespace"), meta_text(object, "name"))] = {
        std::string(meta_text(object, "uid")), std::string(meta_text(object, "resourceVersion"))};
  }
  return pods;
}

class ReflectorTest : public testing::Test {
 protected:
  void start(ReflectorOptions options = {}) {
    if (options.target.empty()) options.target = "/api/v1/pods";
    options.first_pause = Millis(0);
    reflector_.emplace(
        context_, api_, std::move(options),
        [this](EventType type, const json::object& object) { picture_.take(type, object); },
        [this] { ++synced_; });
    reflector_->start();
  }
  void settle() {
    ASSERT_TRUE(test::run_until(context_, [&] {
      api_.release();
      return reflector_->watching() && picture_.pods == pods_there(api_);
    }));
    EXPECT_TRUE(picture_.wrong.empty()) << picture_.wrong.front();
  }

  boost::asio::io_context context_;
  FakeApi api_{context_};
  Picture picture_;
  int synced_ = 0;
  std::optional<Reflector> reflector_;
};

TEST_F(ReflectorTest, ListsInPagesAndWatches) {
  for (int i = 0; i < 25; ++i) api_.put(numbered_pod(i), {});
  start({.page = 10});
  EXPECT_EQ(picture_.events, 0);
  settle();
  EXPECT_EQ(synced_, 1);
  EXPECT_EQ(picture_.events, 25);
  ASSERT_EQ(api_.seen().size(), 4U);
  EXPECT_EQ(api_.seen()[0].target, "/api/v1/pods?limit=10");
  EXPECT_EQ(api_.seen()[1].target.find("/api/v1/pods?limit=10&continue=125%2F"), 0U);
  EXPECT_EQ(api_.seen()[3].method, "WATCH");
  EXPECT_EQ(api_.seen()[3].target.find("/api/v1/pods?watch=1&allowWatchBookmarks=true&"
                                       "resourceVersion=125&timeoutSeconds="),
            0U);
  api_.put(numbered_pod(99), {});
  api_.patch(numbered_pod(3), {{"spec", json::object{{"nodeName", "n"}}}});
  api_.remove(numbered_pod(4));
  settle();
  EXPECT_EQ(picture_.events, 28);
  EXPECT_EQ(reflector_->size(), 25U);
  EXPECT_EQ(reflector_->trouble(), "");
  EXPECT_EQ(synced_, 1);
}

TEST_F(ReflectorTest, GoesOnWhereItWas) {
  api_.put(numbered_pod(1), {});
  start();
  settle();
  api_.put(numbered_pod(2), {});
  test::run_ready(context_);
  api_.forget_seen();
  api_.cut_watches();
  ASSERT_TRUE(test::run_until(context_, [&] { return !api_.seen().empty(); }));
  api_.put(numbered_pod(3), {});
  settle();
  ASSERT_EQ(api_.seen().size(), 1U);
  EXPECT_NE(api_.seen()[0].target.find("resourceVersion=102&"), std::string::npos);
  // A bookmark moves it on, so that it is not too old later.
  api_.bookmark();
  for (int i = 0; i < 5; ++i) api_.put("/api/v1/nodes/n", {{"spec", json::object{{"i", i}}}});
  api_.bookmark();
  test::run_ready(context_);
  api_.compact();
  api_.forget_seen();
  api_.end_watches();
  ASSERT_TRUE(test::run_until(context_, [&] { return !api_.seen().empty(); }));
  settle();
  ASSERT_EQ(api_.seen().size(), 1U);
  EXPECT_EQ(api_.seen()[0].method, "WATCH");
}

TEST_F(ReflectorTest, ListsAgainWhenItIsTooOld) {
  for (int i = 0; i < 4; ++i) api_.put(numbered_pod(i), {});
  start();
  settle();
  for (int parity = 0; parity < 2; ++parity) {
    const int before = picture_.events;
    api_.cut_watches();
    api_.remove(numbered_pod(0));
    api_.remove(numbered_pod(1));
    api_.put(numbered_pod(1), {});  // another one of that name
    api_.put(numbered_pod(2), {{"spec", json::object{{"x", parity}}}});
    if (parity == 1) api_.put("/api/v1/nodes/n", {});
    api_.compact();
    settle();
    // Gone, gone and come, changed; pod 3 is as it was.
    EXPECT_EQ(picture_.events - before, 4);
    api_.put(numbered_pod(0), {});
    settle();
  }
  EXPECT_EQ(synced_, 1);
}

TEST_F(ReflectorTest, PagesThatHaveGoneComeInOnePiece) {
  for (int i = 0; i < 6; ++i) api_.put(numbered_pod(i), {});
  api_.plan({.fault = FakeApi::Fault::late, .times = 1});
  start({.page = 2});
  api_.release();
  ASSERT_TRUE(test::run_until(context_, [&] { return api_.seen().size() == 2; }));
  api_.remove(numbered_pod(0));
  api_.remove(numbered_pod(5));
  api_.compact();
  settle();
  ASSERT_EQ(api_.seen().size(), 4U);
  EXPECT_EQ(api_.seen()[2].target, "/api/v1/pods?limit=0");
}

TEST_F(ReflectorTest, BearsWhatIsNoEvent) {
  start();
  settle();
  for (const std::string_view line :
       {"", "{", "null", "[]", "{}", "{\"type\":7}", "{\"type\":\"ADDED\"}",
        "{\"type\":\"ADDED\",\"object\":[]}", "{\"type\":\"ADDED\",\"object\":{\"metadata\":7}}",
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"resourceVersion\":\"7\"}}}",
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":7,\"resourceVersion\":1e999}}}",
        "{\"type\":\"WHAT\",\"object\":{\"metadata\":{\"resourceVersion\":\"7\"}}}",
        "{\"type\":\"ERROR\",\"object\":{\"code\":123456789012345678901234567890}}",
        "{\"type\":\"ERROR\",\"object\":{\"code\":500,\"message\":\"\\u0007\"}}"}) {
    api_.say(line);
    api_.put(numbered_pod(1), {{"spec", json::object{{"line", line}}}});
    settle();
  }
  api_.plan({.fault = FakeApi::Fault::garbage, .times = 2});
  api_.cut_watches();
  api_.compact();
  settle();
}

TEST_F(ReflectorTest, EndsFromWithin) {
  for (int i = 0; i < 4; ++i) api_.put(numbered_pod(i), {});
  int heard = 0;
  std::optional<Reflector> reflector;
  const auto quit = [&](EventType, const json::object&) {
    if (++heard == 2 || heard == 5) reflector.reset();
  };
  reflector.emplace(context_, api_, ReflectorOptions{.target = "/api/v1/pods"}, quit);
  reflector->start();
  ASSERT_TRUE(test::run_until(context_, [&] { return !reflector; }));
  EXPECT_EQ(heard, 2);
  api_.remove(numbered_pod(0));
  api_.remove(numbered_pod(1));
  reflector.emplace(context_, api_, ReflectorOptions{.target = "/api/v1/pods"}, quit);
  reflector->start();
  ASSERT_TRUE(test::run_until(context_, [&] { return api_.watches() == 1; }));
  api_.put(numbered_pod(7), {});
  api_.put(numbered_pod(8), {});
  ASSERT_TRUE(test::run_until(context_, [&] { return !reflector; }));
  EXPECT_EQ(api_.watches(), 0U);
  test::run_ready(context_);
  EXPECT_EQ(heard, 5);
}

TEST_F(ReflectorTest, SelectsAsItIsTold) {
  api_.put(numbered_pod(1), {{"spec", json::object{{"nodeName", "n1"}}}});
  api_.put(numbered_pod(2), {{"spec", json::object{{"nodeName", "n2"}}}});
  start({.target = "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1"});
  ASSERT_TRUE(test::run_until(context_, [&] { return reflector_->watching(); }));
  EXPECT_EQ(reflector_->size(), 1U);
  // Moves out of what is selected, and in.
  api_.patch(numbered_pod(1), {{"spec", json::object{{"nodeName", "n2"}}}});
  api_.patch(numbered_pod(2), {{"spec", json::object{{"nodeName", "n1"}}}});
  ASSERT_TRUE(test::run_until(
      context_, [&] { return picture_.pods.size() == 1 && picture_.pods.contains("even/p2"); }));
}

// Whatever happens to the objects and to the connection: once it has settled, what whoever listens
// knows is what the API server has.
RC_GTEST_PROP(ReflectorPropertyTest, ThePictureIsTheTruth,
              (const std::vector<std::pair<std::uint8_t, std::uint8_t>>& steps)) {
  boost::asio::io_context context;
  FakeApi api(context);
  Picture picture;
  for (int i = 0; i < 3; ++i) api.put(numbered_pod(i), {});
  Reflector reflector(
      context, api,
      {.target = "/api/v1/pods", .page = 2, .first_pause = Millis(0), .longest_pause = Millis(0)},
      [&](EventType type, const json::object& object) { picture.take(type, object); });
  reflector.start();
  using Fault = FakeApi::Fault;
  for (const auto& [what, detail] : steps) {
    const int number = detail % 7;
    const int times = 1 + detail % 3;
    const std::string method = detail % 2 == 0 ? "GET" : "WATCH";
    switch (what % 16) {
      case 0:
      case 1:
        api.put(numbered_pod(number), {{"spec", json::object{{"x", detail}}}});
        break;
      case 2:
        api.remove(numbered_pod(number));
        break;
      case 3:
        api.remove(numbered_pod(number));
        api.put(numbered_pod(number), {});
        break;
      case 4:
        api.put("/api/v1/nodes/n", {{"spec", json::object{{"x", detail}}}});
        break;
      case 5:
        api.cut_watches();
        break;
      case 6:
        api.end_watches();
        break;
      case 7:
        api.compact();
        break;
      case 8:
        for (const int status : {410, 500, 401, 429}) {
          if (detail % 4 == status % 4) {
            api.plan({.fault = Fault::status, .status = status, .times = times, .method = method});
          }
        }
        break;
      case 9:
        api.plan({.fault = Fault::cut, .times = times, .method = method});
        break;
      case 10:
        api.plan({.fault = detail % 3 == 0 ? Fault::slow : Fault::late, .method = method});
        break;
      case 11:
        api.plan({.fault = Fault::garbage, .times = times, .method = method});
        break;
      case 12:
        api.release();
        break;
      case 13:
        api.bookmark();
        break;
      case 14:
        api.say(detail % 2 == 0 ? "{\"type\":\"MODIFIED\"}" : "nonsense");
        break;
      default:
        break;
    }
    context.restart();
    for (int i = 0; i < detail % 9; ++i) context.poll_one();
  }
  api.clear_plans();
  RC_ASSERT(test::run_until(context, [&] {
    api.release();
    return reflector.watching() && reflector.synced() && picture.pods == pods_there(api);
  }));
  // And it goes on from there.
  api.put(numbered_pod(8), {});
  RC_ASSERT(test::run_until(context, [&] {
    api.release();
    return picture.pods == pods_there(api);
  }));
  RC_ASSERT(picture.wrong.empty());
  RC_ASSERT(reflector.size() == picture.pods.size());
}

}  // namespace
}  // namespace aliquot::kube
