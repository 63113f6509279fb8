#include "node/lanes.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
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
  EXPECT_TRUE(testing::eventually([&] { return other.load(); }));
  EXPECT_FALSE(done);
  held.set_value();
  EXPECT_TRUE(testing::eventually([&] { return done.load(); }));
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
  EXPECT_TRUE(testing::eventually([&] { return served.load(); }));
  EXPECT_EQ(stalled, 2);
  held.set_value();
  EXPECT_TRUE(testing::eventually([&] { return stalled == 20; }));
}

TEST(Lanes, EndWithWhatIsBeingDone) {
  std::atomic<int> count = 0;
  {
    Lanes lanes("test");
    for (int lane = 0; lane < 50; ++lane) lanes.post(kAnn, lane, [&count] { ++count; });
  }
  EXPECT_LE(count, 50);
}

}  // namespace
}  // namespace aliquot::node
