#include "engine/known_users.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>

namespace aliquot::engine {
namespace {

using namespace std::chrono_literals;

// A loop that runs when the test says so.
class TestLoop {
 public:
  void post(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    posted_.notify_all();
  }
  void run_one() {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(posted_.wait_for(lock, 60s, [this] { return !tasks_.empty(); }));
    const auto task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
  }

 private:
  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<std::function<void()>> tasks_;
};

TEST(KnownUsers, NobodyWaitsForAnothersName) {
  TestLoop loop;
  std::promise<void> let;
  auto hanging = let.get_future().share();
  std::atomic<int> asked = 0;
  KnownUsers users([&](std::function<void()> task) { loop.post(std::move(task)); },
                   [&](Uid uid) -> Result<Users::User> {
                     ++asked;
                     if (uid == Uid(1)) hanging.wait_for(60s);
                     if (uid == Uid(3)) return fail(Error::Code::not_found, "there is no user 3");
                     return Users::User{"u" + std::to_string(uid.value()), "g", 100};
                   });
  std::vector<std::string> done;
  const auto note = [&](const char* what) { return [&done, what] { done.emplace_back(what); }; };
  users.learn(Uid(1), note("slow"));
  users.learn(Uid(1), note("slow, too"));
  EXPECT_EQ(users.find(Uid(1)).error().code, Error::Code::unavailable);
  EXPECT_EQ(users.name(Uid(1)), "1");
  users.learn(Uid(2), note("quick"));
  loop.run_one();
  EXPECT_EQ(done, std::vector<std::string>{"quick"});
  EXPECT_EQ(users.name(Uid(2)), "u2");
  users.learn(Uid(2), note("known"));
  EXPECT_EQ(done.back(), "known");
  let.set_value();
  loop.run_one();
  EXPECT_EQ(done, (std::vector<std::string>{"quick", "known", "slow", "slow, too"}));
  EXPECT_EQ(users.find(Uid(1))->name, "u1");
  EXPECT_EQ(asked, 2);
  // Who is not there may be one day.
  for (int i = 0; i < 2; ++i) {
    users.learn(Uid(3), note("nobody"));
    loop.run_one();
  }
  EXPECT_EQ(users.find(Uid(3)).error().code, Error::Code::not_found);
  EXPECT_EQ(asked, 4);
}

}  // namespace
}  // namespace aliquot::engine
