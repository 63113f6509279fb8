// Random histories: processes of a job allocate and free in every way, load code, fork, exec, and
// are killed at any instant. At every quiet point the library's books are those of the stand-in
// driver, and at no time is the limit passed.
#include <gtest/gtest.h>

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "enforce/job.hpp"

namespace aliquot::enforce::test {
namespace {

using standin::test::Machine;

constexpr std::uint64_t kLimit = 3 * kGiB;

class History {
 public:
  explicit History(std::uint64_t seed)
      : random_(seed), machine_("h200:1"), job_(machine_, {{0, kLimit}}) {}
  ~History() {
    for (const pid_t child : children_) kill(child, SIGKILL);
  }
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  void run(int steps) {
    for (int step = 0; step < steps && !testing::Test::HasFailure(); ++step) {
      act();
      check();
    }
  }

 private:
  std::uint64_t pick(std::uint64_t below) { return random_() % below; }

  std::string allocation() {
    const std::uint64_t size = pick(3) == 0 ? pick(2 * kMiB) + 1 : pick(700 * kMiB) + 1;
    const std::uint64_t pages = (size / (2 * kMiB) + 1) * 2 * kMiB;
    switch (pick(8)) {
      case 0:
        return "managed " + std::to_string(pages);
      case 1:
        return "pitch " + std::to_string(pick(5000) + 1) + " " + std::to_string(pick(60000) + 1);
      case 2:
        return "array " + std::to_string(pick(9000) + 1) + " " + std::to_string(pick(9000) + 1);
      case 3:
      case 4:
        return "async " + std::to_string(size);
      case 5:
        return "vmm " + std::to_string(pages) + " " + std::to_string(pick(2));
      default:
        return "alloc " + std::to_string(size);
    }
  }

  void start() {
    if (victims_.size() >= 4) return;
    auto victim = std::make_unique<Victim>(&job_);
    const int r = victim->begin();
    EXPECT_TRUE(r == 0 || r == 2) << r;
    if (r == 0) victims_.push_back({std::move(victim), 0});
  }

  void act() {
    if (victims_.empty()) {
      start();
      return;
    }
    const std::size_t which = pick(victims_.size());
    auto& [victim, pieces] = victims_[which];
    const std::uint64_t what = pick(23);
    if (what < 9) {
      const std::string line = allocation();
      const int r = victim->tell(line);
      EXPECT_TRUE(r == 0 || r == 2) << line << ": " << victim->text();
      if (r == 0) ++pieces;
    } else if (what < 14) {
      if (pieces == 0) return;
      EXPECT_EQ(victim->tell("free " + std::to_string(pick(pieces--))), 0);
    } else if (what < 15) {
      EXPECT_EQ(victim->tell("sync"), 0);
    } else if (what < 17) {
      start();
    } else if (what < 18) {
      (void)victim->tell("fork");
      children_.push_back(static_cast<pid_t>(victim->number("child")));
    } else if (what < 19) {
      victim->send("exec");
      EXPECT_EQ(victim->tell("pid"), 0);
      check();
      const int r = victim->begin();
      EXPECT_TRUE(r == 0 || r == 2) << r;
      pieces = 0;
      if (r != 0) victims_.erase(victims_.begin() + static_cast<std::ptrdiff_t>(which));
    } else if (what < 21) {
      const int r =
          victim->tell("code late_" + std::to_string(pick(24)) + "_" + std::to_string(pick(9)));
      EXPECT_TRUE(r == 0 || r == 2) << victim->text();
    } else if (what < 22) {
      const int r = victim->tell("loop-graph " + std::to_string(pick(20) + 1) + " " +
                                 std::to_string(pick(400 * kMiB) + 1));
      EXPECT_TRUE(r == 0 || r == 2) << victim->text();
    } else {
      // In the middle of whatever it is doing.
      victim->send(allocation());
      for (std::uint64_t spin = pick(20000); spin > 0; --spin) __asm__ volatile("");
      victim->kill(pick(2) == 0);
      victims_.erase(victims_.begin() + static_cast<std::ptrdiff_t>(which));
    }
  }

  // Nobody is at work now.
  void check() {
    // What a pool keeps after a free without a wait is in both books.
    EXPECT_EQ(job_.charged(), machine_.used(0));
    EXPECT_LE(job_.total(), kLimit);
    EXPECT_LE(job_.usage().past[0].peak_bytes, kLimit);
  }

  std::mt19937_64 random_;
  Machine machine_;
  Job job_;
  std::vector<std::pair<std::unique_ptr<Victim>, std::uint64_t>> victims_;
  std::vector<pid_t> children_;
};

// A thousand histories of 4 to 16 steps. ALIQUOT_HISTORY_SECONDS makes it a longer one: histories
// of 30 steps, as many as the time allows.
TEST(Histories, keep_the_books_of_the_driver) {
  const char* text = std::getenv("ALIQUOT_HISTORY_SECONDS");
  const auto limit = std::chrono::seconds(text == nullptr ? 0 : std::atoi(text));
  const auto from = std::chrono::steady_clock::now();
  const auto more = [&](int seed) {
    return text == nullptr ? seed <= 1000 : std::chrono::steady_clock::now() - from < limit;
  };
  int seed = 1;
  for (; more(seed) && !HasFailure(); ++seed) {
    SCOPED_TRACE("history " + std::to_string(seed));
    History(static_cast<std::uint64_t>(seed)).run(text == nullptr ? 4 + seed % 13 : 30);
  }
  RecordProperty("histories", seed - 1);
  std::printf("%d histories\n", seed - 1);
  EXPECT_GT(seed, 20);
}

// All at work at once, killed without notice: never above the limit, and in the end nothing is
// left.
TEST(Histories, never_pass_the_limit_in_between) {
  Machine machine("h200:1");
  Job job(machine, {{0, kLimit}});
  std::mt19937_64 random(3);
  for (int round = 0; round < 12; ++round) {
    std::vector<std::unique_ptr<Victim>> victims;
    for (int i = 0; i < 4; ++i) {
      victims.push_back(std::make_unique<Victim>(&job));
      victims.back()->send("init");
      victims.back()->send("ctx 0");
      for (int j = 0; j < 60; ++j) {
        const char* const kinds[] = {"alloc ", "async ", "managed ", "alloc "};
        victims.back()->send(kinds[random() % 4] + std::to_string(random() % (200 * kMiB) + 1));
        if (j % 3 == 0) victims.back()->send("sync");
      }
    }
    for (int look = 0; look < 200; ++look) {
      ASSERT_LE(job.total(), kLimit);
      ASSERT_LE(machine.used(0), kLimit);
      if (look % 50 == 49) victims[random() % 4]->kill(false);
      usleep(1000);
    }
    victims.clear();
    EXPECT_EQ(job.charged(), 0U);
    EXPECT_EQ(machine.used(0), 0U);
  }
  EXPECT_LE(job.usage().past[0].peak_bytes, kLimit);
}

}  // namespace
}  // namespace aliquot::enforce::test
