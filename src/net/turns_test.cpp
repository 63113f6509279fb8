#include "net/turns.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

namespace aliquot::net {
namespace {

class TurnsTest : public testing::Test {
 protected:
  Turns::Work says(const std::string& word) {
    return [this, word] { said_ += word; };
  }
  std::string all() {
    while (auto work = turns_.next()) (*work)();
    return std::exchange(said_, "");
  }

  Turns turns_{100};
  std::string said_;
};

TEST_F(TurnsTest, EachUserInTurn) {
  for (int i = 0; i < 3; ++i) turns_.handle(1, says("a"));
  turns_.handle(7, says("b"));
  turns_.handle(9, says("c"));
  EXPECT_EQ(all(), "abcaa");
  turns_.handle(1, says("a"));
  turns_.handle(7, says("b"));
  EXPECT_EQ(all(), "ba");  // the one had the last turn
}

TEST_F(TurnsTest, WhoKeepsTooMuchWaitsForHimself) {
  turns_.keep(1, 101);  // an answer that nobody reads
  turns_.handle(1, says("a"));
  turns_.handle(2, says("b"));
  EXPECT_EQ(all(), "b");
  turns_.drop(1, 50);
  EXPECT_EQ(all(), "a");
}

TEST_F(TurnsTest, WhatIsAnnouncedComesWhenThereIsRoom) {
  turns_.receive(1, 500, says("large "));  // alone
  EXPECT_EQ(all(), "large ");
  turns_.drop(1, 500);
  for (int i = 0; i < 3; ++i) turns_.receive(1, 40, says("r"));
  EXPECT_EQ(all(), "rr");
  // The two that are here are handled before the third may come.
  turns_.handle(1, says("h"));
  EXPECT_EQ(all(), "h");
  turns_.drop(1, 40);
  EXPECT_EQ(all(), "r");
  turns_.drop(1, 80);
  EXPECT_EQ(turns_.kept(1), 0U);
}

// Whatever comes in whatever order: requests are handled once each, no user's bytes go over the
// limit but for one request that is alone, and with everything handled nothing is left.
RC_GTEST_PROP(TurnsProperty, BoundsWhatIsKept, ()) {
  Turns turns(100);
  std::vector<int> handled;
  int sent = 0;
  std::vector<std::pair<Turns::User, std::size_t>> reading;
  const auto steps = *rc::gen::inRange(1, 200);
  const auto finish_reading = [&] {
    const auto [user, bytes] = reading.back();
    reading.pop_back();
    turns.handle(user, [&turns, &handled, user = user, bytes = bytes, id = sent] {
      turns.drop(user, bytes);
      handled.push_back(id);
    });
  };
  for (int i = 0; i < steps; ++i) {
    const Turns::User user = *rc::gen::inRange<std::uint32_t>(0, 4);
    switch (*rc::gen::inRange(0, 3)) {
      case 0: {
        const auto bytes = *rc::gen::inRange<std::size_t>(0, 90);
        ++sent;
        turns.receive(user, bytes, [&reading, user, bytes] { reading.emplace_back(user, bytes); });
        break;
      }
      case 1:
        if (!reading.empty()) finish_reading();
        break;
      default:
        if (auto work = turns.next()) (*work)();
    }
    for (Turns::User each = 0; each < 4; ++each) RC_ASSERT(turns.kept(each) <= 100U);
  }
  while (true) {
    if (auto work = turns.next()) {
      (*work)();
    } else if (!reading.empty()) {
      finish_reading();
    } else {
      break;
    }
  }
  RC_ASSERT(static_cast<int>(handled.size()) == sent);
  for (Turns::User each = 0; each < 4; ++each) RC_ASSERT(turns.kept(each) == 0U);
}

}  // namespace
}  // namespace aliquot::net
