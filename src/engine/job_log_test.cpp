#include "engine/job_log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <fstream>
#include <set>

#include "node/spawn.hpp"
#include "sys/identity.hpp"

namespace aliquot::engine {
namespace {

using testing::HasSubstr;

// Readers that run as whoever tests. Those of some users hang, and nobody ends them but the test.
class StubbornReaders final : public LogReaders {
 public:
  struct Known {
    std::mutex mutex;
    std::set<Uid> hang;
    std::vector<std::pair<Uid, Pid>> started;

    std::int64_t count(Uid user) {
      const std::lock_guard lock(mutex);
      return std::ranges::count(started, user, &std::pair<Uid, Pid>::first);
    }
    void end(Uid user) {
      const std::lock_guard lock(mutex);
      hang.erase(user);
      for (const auto& [whose, pid] : started) {
        if (whose == user) ::kill(-pid.value(), SIGKILL);
      }
    }
  };
  explicit StubbornReaders(Known& known) : known_(known) {}

  Result<Pid> start(const Order& order, int out) override {
    const std::lock_guard lock(known_.mutex);
    node::SpawnSpec spec;
    auto identity = sys::find_identity(Uid(::getuid()));
    if (!identity) return tl::make_unexpected(identity.error());
    spec.identity = std::move(*identity);
    spec.file = "/bin/sh";
    const bool hangs = known_.hang.contains(order.user);
    spec.argv = {"sh", "-c", hangs ? "exec sleep 1000" : "echo 7; echo text"};
    spec.environment = {"PATH=/usr/bin:/bin"};
    spec.out = node::FromFd{out};
    const auto reader = node::spawn(spec);
    if (!reader) return fail(Error::Code::unavailable, "{}", reader.error().what);
    known_.started.emplace_back(order.user, *reader);
    return *reader;
  }
  void kill(Pid) override {}

 private:
  Known& known_;
};

class JobLogTest : public testing::Test {
 protected:
  ~JobLogTest() override {
    const std::set<Uid> hang = known.hang;
    for (const Uid user : hang) known.end(user);
  }
  void use(JobLog::Patience patience) {
    log = std::make_unique<JobLog>(post(), std::make_unique<StubbornReaders>(known), patience);
  }
  JobLog::Post post() {
    return [this](std::function<void()> task) {
      const std::lock_guard lock(mutex);
      tasks.push_back(std::move(task));
      wake.notify_all();
    };
  }
  void ask(Uid user, const std::string& path = "/log", std::int64_t begin = 0) {
    log->read(user, Gid(::getgid()), path, begin, [this, user](Result<JobLog::Part> part) {
      answers[user].push_back(std::move(part));
    });
  }
  // The loop.
  void wait_for(Uid user, std::size_t count = 1) {
    while (answers[user].size() < count) {
      std::unique_lock lock(mutex);
      if (!wake.wait_for(lock, std::chrono::seconds(60), [&] { return !tasks.empty(); })) {
        FAIL() << "no answer";
      }
      const auto task = std::move(tasks.front());
      tasks.pop_front();
      lock.unlock();
      task();
    }
  }
  std::string answer(Uid user) {
    wait_for(user);
    const auto part = std::move(answers[user].front());
    answers[user].erase(answers[user].begin());
    return part ? part->text : part.error().message;
  }

  StubbornReaders::Known known;
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<std::function<void()>> tasks;
  std::map<Uid, std::vector<Result<JobLog::Part>>> answers;
  std::unique_ptr<JobLog> log;  // the last: its threads use the others
};

constexpr Uid kAnn{1000};
constexpr Uid kBob{1001};

TEST_F(JobLogTest, WhoseFilesHangHoldsNobodyElseUp) {
  use({.reading = minutes(10), .ending = minutes(10)});
  known.hang.insert(kAnn);
  for (std::size_t i = 0; i < JobLog::kMostAsked; ++i) ask(kAnn);
  ask(kBob);
  EXPECT_EQ(answer(kBob), "text\n");
  EXPECT_TRUE(answers[kAnn].empty());
  ask(kAnn);
  EXPECT_THAT(answer(kAnn), HasSubstr("are being read: try again"));
  while (known.count(kAnn) == 0) std::this_thread::yield();
  EXPECT_EQ(known.count(kAnn), 1) << "one at a time";
  known.end(kAnn);
  EXPECT_THAT(answer(kAnn), HasSubstr("cannot be read"));
  EXPECT_EQ(answer(kAnn), "text\n");
}

TEST_F(JobLogTest, WhatCannotBeKilledIsTheLastOfItsUser) {
  use({.reading = Millis(20), .ending = Millis(20)});
  known.hang.insert(kAnn);
  ask(kAnn);
  EXPECT_THAT(answer(kAnn), HasSubstr("cannot be read"));
  for (int i = 0; i < 3; ++i) {
    ask(kAnn);
    EXPECT_THAT(answer(kAnn), HasSubstr("try again once its file system answers"));
  }
  EXPECT_EQ(known.count(kAnn), 1);
  known.end(kAnn);
  // It is gone as soon as the kernel has ended it.
  while (known.count(kAnn) == 1) {
    ask(kAnn);
    (void)answer(kAnn);
  }
  EXPECT_EQ(known.count(kAnn), 2);
}

TEST_F(JobLogTest, OfAllUsersOnlySoManyAreLeftBehind) {
  use({.reading = Millis(20), .ending = Millis(20)});
  for (std::uint32_t i = 0; i < JobLog::kMostReaders; ++i) {
    const Uid user(2000 + i);
    known.hang.insert(user);
    ask(user);
    EXPECT_THAT(answer(user), HasSubstr("cannot be read"));
  }
  ask(kBob);
  EXPECT_THAT(answer(kBob), HasSubstr("too many files are read at once"));
  EXPECT_EQ(known.count(kBob), 0);
}

// With processes as the daemon has them.
TEST_F(JobLogTest, ReadsTheLastOfAFile) {
  const std::string path = testing::TempDir() + "job-log-" + std::to_string(::getpid());
  std::ofstream(path) << std::string(JobLog::kMost, 'x') << "the end\n";
  log = std::make_unique<JobLog>(post());
  const Uid self(::getuid());
  ask(self, path);
  wait_for(self);
  ASSERT_TRUE(answers[self][0]) << answers[self][0].error().message;
  EXPECT_EQ(answers[self][0]->begin, 8);
  EXPECT_THAT(answers[self][0]->text, testing::EndsWith("xthe end\n"));
  ask(self, path, JobLog::kMost + 4);
  wait_for(self, 2);
  ASSERT_TRUE(answers[self][1]) << answers[self][1].error().message;
  EXPECT_EQ(answers[self][1]->text, "end\n");
  std::filesystem::remove(path);
  ask(self, path);
  wait_for(self, 3);
  EXPECT_FALSE(answers[self][2]);
}

}  // namespace
}  // namespace aliquot::engine
