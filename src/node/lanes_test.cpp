#include "node/lanes.hpp"

#include <gtest/gtest.h>

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <future>
#include <system_error>
#include <thread>
#include <vector>

#include "node/testing.hpp"

namespace aliquot::node {
namespace {

constexpr Uid kAnn(1000);
constexpr Uid kBob(1001);

TEST(Lanes, KeepTheOrderOfEachAndLetOthersGoOn) {
  Lanes lanes("test");
  std::promise<void> held;
  auto released = held.get_future().share();
  std::vector<int> order;
  std::atomic<bool> done = false;
  lanes.post(kAnn, 1, [released] { released.wait(); });
  for (int i = 0; i < 5; ++i) lanes.post(kAnn, 1, [&order, i] { order.push_back(i); });
  lanes.post(kAnn, 1, [&done] { done = true; });
  std::atomic<bool> other = false;
  lanes.post(kAnn, 2, [&other] { other = true; });
  EXPECT_TRUE(test::eventually([&] { return other.load(); }));
  EXPECT_FALSE(done);
  held.set_value();
  EXPECT_TRUE(test::eventually([&] { return done.load(); }));
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
}

// Whoever stalls all the lanes that are theirs stalls nobody else.
TEST(Lanes, OneUserCannotTakeThemAll) {
  Lanes lanes("test", {.threads = 4, .per_user = 2});
  std::promise<void> held;
  auto released = held.get_future().share();
  std::atomic<int> stalled = 0;
  for (int lane = 0; lane < 20; ++lane) {
    lanes.post(kAnn, lane, [&stalled, released] {
      ++stalled;
      released.wait();
    });
  }
  std::atomic<bool> served = false;
  lanes.post(kBob, 100, [&served] { served = true; });
  EXPECT_TRUE(test::eventually([&] { return served.load(); }));
  EXPECT_TRUE(test::eventually([&] { return stalled == 2; }));
  held.set_value();
  EXPECT_TRUE(test::eventually([&] { return stalled == 20; }));
}

// Who makes slow what he can leaves room for what ends his jobs.
TEST(Lanes, WhatIsSlowLeavesHalfForTheRest) {
  Lanes lanes("test", {.threads = 8, .per_user = 4});
  std::promise<void> held;
  auto released = held.get_future().share();
  std::atomic<int> stalled = 0;
  const auto stall = [&stalled, released] {
    ++stalled;
    released.wait();
  };
  for (int lane = 0; lane < 20; ++lane) lanes.post(kAnn, lane, stall, Lanes::Pace::slow);
  std::atomic<int> served = 0;
  for (int lane = 20; lane < 40; ++lane) lanes.post(kAnn, lane, [&served] { ++served; });
  EXPECT_TRUE(test::eventually([&] { return served == 20 && stalled == 2; }));
  held.set_value();
  EXPECT_TRUE(test::eventually([&] { return stalled == 20; }));
}

TEST(Lanes, EndWithWhatIsBeingDone) {
  std::promise<void> begun;
  std::promise<void> posted;
  std::atomic<bool> ended = false;
  std::atomic<bool> second = false;
  {
    Lanes lanes("test");
    lanes.post(kAnn, 1, [&] {
      begun.set_value();
      posted.get_future().wait();
      // Until the end has begun, which nobody is told of.
      std::this_thread::sleep_for(std::chrono::seconds(2));
      ended = true;
    });
    begun.get_future().wait();
    lanes.post(kAnn, 1, [&] { second = true; });
    posted.set_value();
  }
  EXPECT_TRUE(ended);
  EXPECT_FALSE(second);
}

// A machine that is full of processes has no more threads: those there are do the work.
TEST(Lanes, GoOnWithoutNewThreads) {
  pthread_attr_t before;
  pthread_attr_t vast;
  ASSERT_EQ(pthread_getattr_default_np(&before), 0);
  ASSERT_EQ(pthread_attr_init(&vast), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&vast, std::size_t{1} << 60U), 0);
  Lanes lanes("test");
  ASSERT_EQ(pthread_setattr_default_np(&vast), 0);
  EXPECT_THROW(std::thread([] {}).join(), std::system_error);
  std::atomic<int> done = 0;
  for (int lane = 0; lane < 20; ++lane) lanes.post(kAnn, lane, [&done] { ++done; });
  EXPECT_TRUE(test::eventually([&] { return done == 20; }));
  ASSERT_EQ(pthread_setattr_default_np(&before), 0);
}

}  // namespace
}  // namespace aliquot::node
