#include "show/feed.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace aliquot::show {
namespace {

class Listener final : public net::Exchange {
 public:
  void answer(net::Response response) override { status = response.status; }
  void stream(net::Response head) override { status = head.status; }
  bool push(std::shared_ptr<const std::string> part) override {
    if (deaf) return false;
    heard.push_back(std::move(part));
    return true;
  }
  void end_stream() override { ended = true; }
  void on_close(std::function<void()> hook) override { hooks.push_back(std::move(hook)); }
  void close() {
    for (const auto& hook : std::exchange(hooks, {})) hook();
  }
  int status = 0;
  bool deaf = false;
  bool ended = false;
  std::vector<std::shared_ptr<const std::string>> heard;
  std::vector<std::function<void()>> hooks;
};

std::shared_ptr<Listener> listen(Feed& feed) {
  auto listener = std::make_shared<Listener>();
  feed.listen(net::Responder(listener));
  return listener;
}

TEST(FeedTest, AllAtFirstThenWhatHasChanged) {
  Feed feed;
  feed.update({{"job/7", "1"}, {"queue", "[]"}});
  const auto first = listen(feed);
  EXPECT_EQ(first->status, 200);
  ASSERT_EQ(first->heard.size(), 1U);
  EXPECT_EQ(*first->heard[0], "event: snapshot\ndata: {\"set\":{\"job/7\":1,\"queue\":[]}}\n\n");
  feed.update({{"job/7", "1"}, {"queue", "[]"}});
  EXPECT_EQ(first->heard.size(), 1U) << "nothing has changed";
  feed.update({{"job/8", "2"}, {"queue", "[8]"}});
  ASSERT_EQ(first->heard.size(), 2U);
  EXPECT_EQ(*first->heard[1],
            "event: delta\ndata: {\"set\":{\"job/8\":2,\"queue\":[8]},\"gone\":[\"job/7\"]}\n\n");
  const auto second = listen(feed);
  EXPECT_EQ(*second->heard[0], "event: snapshot\ndata: {\"set\":{\"job/8\":2,\"queue\":[8]}}\n\n");
  feed.update({{"job/8", "3"}, {"queue", "[8]"}});
  EXPECT_EQ(first->heard.back(), second->heard.back()) << "one text for all";
}

TEST(FeedTest, WhoMayNotListenAnyMoreIsHungUpOn) {
  Feed feed;
  feed.update({{"queue", "[]"}});
  bool may = true;
  const auto listener = std::make_shared<Listener>();
  feed.listen(net::Responder(listener), [&] { return may; });
  feed.beat();
  EXPECT_FALSE(listener->ended);
  may = false;
  feed.beat();
  EXPECT_TRUE(listener->ended);
  EXPECT_EQ(feed.listeners(), 0U);
}

TEST(FeedTest, WhoIsGoneOrDeafIsToldNothingMore) {
  Feed feed;
  const auto gone = listen(feed);
  const auto deaf = listen(feed);
  EXPECT_EQ(feed.listeners(), 2U);
  gone->close();
  EXPECT_EQ(feed.listeners(), 1U);
  deaf->deaf = true;
  feed.update({{"a", "1"}});
  EXPECT_FALSE(feed.watched());
  EXPECT_TRUE(deaf->ended);
  EXPECT_EQ(gone->heard.size(), 1U);
  feed.beat();
}

TEST(FeedTest, AnEndAfterTheFeedIsGoneTouchesNothing) {
  std::shared_ptr<Listener> listener;
  {
    Feed feed;
    listener = listen(feed);
  }
  listener->close();
  EXPECT_TRUE(listener->ended);
}

}  // namespace
}  // namespace aliquot::show
