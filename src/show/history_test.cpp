#include "show/history.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace aliquot::show {
namespace {

api::NodeInfo busy(std::int64_t granted, std::int64_t used) {
  api::NodeInfo node;
  node.gpus.resize(1);
  node.gpus[0].uuid = "G";
  node.gpus[0].memory = 100;
  node.gpus[0].compute_granted = granted;
  node.gpus[0].utilisation = used;
  return node;
}
api::JobInfo half(const std::string& user) {
  api::JobInfo job;
  job.user = user;
  job.gpus.push_back({.uuid = {}, .model = {}, .compute = 5'000});
  return job;
}
// Noon, so that no midnight comes between.
constexpr WallTime kNoon(1'790'164'800'000);

TEST(HistoryTest, RemembersWhatWasGrantedAndUsed) {
  History history;
  for (int i = 0; i <= 120; ++i) {
    const auto node = busy(8'000, i <= 60 ? 2'000 : 4'000);
    history.look(kNoon + seconds(i), {&node}, {half("ann")});
  }
  EXPECT_THAT(history.day_json(), testing::HasSubstr("null,8000],\"used\":[null"));
  EXPECT_THAT(history.day_json(), testing::HasSubstr("null,3000]"));
  EXPECT_THAT(history.lines_json(), testing::StartsWith("{\"G\":[20,20,20,20,20"));
  EXPECT_THAT(history.lines_json(), testing::EndsWith("40,40,40]}"));
  EXPECT_EQ(history.today().at("ann"), 60'000) << "half a GPU for two minutes";
}

TEST(HistoryTest, WhatWasBetweenTwoLooksFarApartIsNotKnown) {
  History history;
  const auto node = busy(10'000, 10'000);
  history.look(kNoon, {&node}, {half("ann")});
  history.look(kNoon + hours(1), {&node}, {half("ann")});
  EXPECT_EQ(history.day_json(), "null");
  EXPECT_TRUE(history.today().empty());
}

TEST(HistoryTest, WhatNobodyMeasuresIsNotIdle) {
  History history;
  auto node = busy(8'000, 0);
  node.gpus[0].stale = true;
  history.look(kNoon, {&node}, {});
  history.look(kNoon + seconds(10), {&node}, {});
  EXPECT_THAT(history.day_json(), testing::HasSubstr("null,8000],\"used\":[null"));
  EXPECT_THAT(history.day_json(), testing::HasSubstr("null,null],\"wait_s\""));
  EXPECT_EQ(history.lines_json(), "{}");
  History next;
  next.recall(history.keep(), kNoon + minutes(1));
  EXPECT_EQ(next.day_json(), history.day_json());
}

// As everywhere else: the larger part of memory and compute, and a GPU is never more than one.
TEST(HistoryTest, AShareIsTheLargerPartOfIt) {
  History history;
  auto node = busy(12'000, 0);
  node.name = "n";
  auto job = half("ann");
  job.gpus[0].uuid = "G";
  job.gpus[0].memory = 80;
  auto whole = half("bob");
  whole.gpus[0].whole = true;
  for (int i = 0; i <= 100; ++i) history.look(kNoon + seconds(i), {&node}, {job, whole});
  EXPECT_THAT(history.day_json(), testing::HasSubstr("null,10000],\"used\""));
  EXPECT_EQ(history.today().at("ann"), 80'000);
  EXPECT_EQ(history.today().at("bob"), 100'000);
}

TEST(HistoryTest, TheMedianOfWaits) {
  History history;
  for (const std::int64_t wait : {5, 1'000, 60}) history.started(kNoon, seconds(wait));
  EXPECT_THAT(history.day_json(), testing::HasSubstr("null,60]}"));
}

TEST(HistoryTest, OutlastsItsDaemon) {
  History history;
  const auto node = busy(8'000, 2'000);
  for (int i = 0; i <= 20; ++i) history.look(kNoon + minutes(i), {&node}, {half("ann")});
  history.started(kNoon + minutes(20), seconds(7));
  History next;
  next.recall(history.keep(), kNoon + minutes(30));
  EXPECT_EQ(next.today(), history.today());
  EXPECT_EQ(next.day_json(), history.day_json());
  History later;
  later.recall(history.keep(), kNoon + hours(48));
  EXPECT_TRUE(later.today().empty());
  for (const char* nonsense :
       {"", "2 7\nb 1 2 3 4", "1 x\nb 1 2\nb a b c d\nu 7", "1 1\nb 99999999 1 1 1\n"}) {
    History none;
    none.recall(nonsense, kNoon);
    EXPECT_EQ(none.day_json(), "null") << nonsense;
  }
}

}  // namespace
}  // namespace aliquot::show
