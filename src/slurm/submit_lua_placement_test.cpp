// Which GPU of a node a job names where each is a gres type of its own (lua/placement.lua), against
// a model of how Slurm before 23.11.5 gives shards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <ctime>
#include <map>
#include <memory>
#include <utility>

#include "base/text.hpp"
#include "slurm/lua_host_test.hpp"
#include "slurm/submit_lua.hpp"

namespace aliquot::slurm {
namespace {

using namespace test;

constexpr std::int64_t kAll = 120;

SiteTable named_site() {
  SiteTable site{.models = {{"h200", gib(120), kAll, 4}},
                 .partitions = {{"main", {"h200"}}},
                 .default_partition = "main",
                 .mps_per_gpu = 80,
                 .whole_as_shards = true};
  site.gpus_by_node = {{"n1", {{"h200", 4}}}};
  site.partitions[0].nodes = {"n1"};
  return site;
}

// Node n1 as slurmctld has it: the first GPU with room for who names none. Its list of jobs, for
// the script, is made anew by show().
class Slurm {
 public:
  explicit Slurm(LuaHost& host) : host_(host) {}

  // The GPUs that the job holds; none where it waits.
  std::vector<std::size_t> submit(const Fields& fields) {
    const auto called = host_.submit(fields);
    if (called.refused()) return {};
    const std::string booked = called.text("tres_per_node");
    const auto entries = split(booked, ',');
    std::vector<std::size_t> chosen;
    std::int64_t count = 0;
    for (const auto entry : entries) {
      const auto parts = split(entry, ':');
      count = parse_digits(parts.back()).value();
      const auto named = parts.size() == 3 ? parse_digits(parts[1].substr(5)) : std::nullopt;
      for (std::size_t gpu = 0; gpu < used.size(); ++gpu) {
        if (named && *named != static_cast<std::int64_t>(gpu)) continue;
        if (used[gpu] + count > kAll) continue;
        chosen.push_back(gpu);
        break;
      }
    }
    if (chosen.size() != entries.size()) return {};
    std::string gres;
    for (const auto gpu : chosen) {
      used[gpu] += count;
      gres += fmt::format("shard:h200.{}:{},", gpu, count);
    }
    jobs_.push_back({{"job_state", 1},
                     {"nodes", "n1"},
                     {"gres_used", gres},
                     {"tres_per_node", booked},
                     {"submit_time", std::time(nullptr)}});
    return chosen;
  }

  void show() {
    for (const auto& job : std::exchange(jobs_, {})) host_.job(job);
  }

  std::vector<std::int64_t> used = std::vector<std::int64_t>(4, 0);

 private:
  LuaHost& host_;
  std::vector<Fields> jobs_;  // not in the list yet
};

class SubmitLuaPlacement : public ::testing::TestWithParam<std::string> {
 protected:
  LuaHost& host() {
    host_ = std::make_unique<LuaHost>(GetParam(), std::vector{make_submit_lua(named_site())});
    return *host_;
  }
  std::string booked(const Fields& fields) { return host_->submit(fields).text("tres_per_node"); }

  std::unique_ptr<LuaHost> host_;
};
INSTANTIATE_TEST_SUITE_P(Lua, SubmitLuaPlacement, ::testing::ValuesIn(interpreters_or_none()),
                         name_of_interpreter);

TEST_P(SubmitLuaPlacement, ABurstSpreads) {
  NEED_LUA();
  const std::vector<std::pair<std::string, int>> sizes{
      {"mps:80", 4}, {"mps:40", 8}, {"mps:32", 8}, {"mps:20", 16}, {"mps:16", 20}, {"mps:10", 32}};
  for (const auto& [words, most] : sizes) {
    Slurm slurm(host());
    for (int i = 1; i <= most; ++i) {
      EXPECT_EQ(slurm.submit({{"tres_per_node", words}}).size(), 1U) << words << " " << i;
      const auto [least, largest] = std::ranges::minmax(slurm.used);
      EXPECT_LE(largest - least, kAll * *parse_digits(words.substr(4)) / 80) << words << " " << i;
      slurm.show();
    }
    EXPECT_TRUE(slurm.submit({{"tres_per_node", words}}).empty()) << words;
  }
}

TEST_P(SubmitLuaPlacement, WaitingJobsThatNamedAGpuCount) {
  NEED_LUA();
  host();
  host_->job({{"job_state", 0}, {"tres_per_node", "gres:shard:h200.0:24"}});
  EXPECT_EQ(booked({{"tres_per_node", "mps:16"}}), "shard:h200.1:24");
}

// slurmctld makes its list of jobs at most once a second, and only when something has changed
// since.
TEST_P(SubmitLuaPlacement, ABurstSpreadsUnseen) {
  NEED_LUA();
  host();
  std::map<std::string, int> times;
  for (int i = 0; i < 8; ++i) ++times[booked({{"tres_per_node", "mps:16"}})];
  EXPECT_EQ(times.size(), 4U);
  for (const auto& [gres, count] : times) EXPECT_EQ(count, 2) << gres;
  for (int i = 8; i < 20; ++i) ++times[booked({{"tres_per_node", "mps:16"}})];
  EXPECT_EQ(times.size(), 4U);
  EXPECT_EQ(booked({{"tres_per_node", "mps:16"}}), "shard:24") << "there is no more room";
}

TEST_P(SubmitLuaPlacement, JobsOnSeveralNodesCount) {
  NEED_LUA();
  for (const char* nodes : {"n1,m2", "n[1-2]", "m[7-9],n[1,3]", "n[1-2],m[1-2]x[3-4]"}) {
    host();
    const auto each =
        40 * (std::string(nodes) == "n1,m2" || std::string(nodes) == "n[1-2]" ? 2 : 5);
    host_->job(
        {{"job_state", 1}, {"nodes", nodes}, {"gres_used", fmt::format("shard:h200.0:{}", each)}});
    EXPECT_EQ(booked({{"tres_per_node", "mps:16"}}), "shard:h200.1:24") << nodes;
  }
}

// A list with another job in it has all that came before: what is not there was refused, or is
// over.
TEST_P(SubmitLuaPlacement, WhatTheListDoesNotHaveIsOver) {
  NEED_LUA();
  host();
  const Fields over{{"job_state", 3}, {"tres_per_node", "gres:shard:h200.0:24"}};
  host_->job(over);
  EXPECT_EQ(booked({{"tres_per_node", "mps:16"}}), "shard:h200.0:24");
  EXPECT_EQ(booked({{"tres_per_node", "mps:16"}}), "shard:h200.1:24");
  host_->job(over);
  EXPECT_EQ(booked({{"tres_per_node", "mps:16"}}), "shard:h200.0:24");
}

// Which GPU such a job has got cannot be told before it is in the list: nobody waits for that one.
TEST_P(SubmitLuaPlacement, BesideWhoNamedNoneNobodyNamesOne) {
  NEED_LUA();
  host();
  EXPECT_EQ(booked({{"tres_per_node", "gpu:1"}}), "shard:120");
  EXPECT_EQ(booked({{"tres_per_node", "mps:16"}}), "shard:24");
  const Fields held{{"job_state", 1}, {"nodes", "n1"}, {"gres_used", "shard:h200.0:120"}};
  host_->job(held);
  EXPECT_EQ(booked({{"tres_per_node", "mps:16"}}), "shard:h200.1:24");
  host_->job({{"job_state", 0},
              {"priority", 7},
              {"partition", "main"},
              {"tres_per_node", "gres:shard:24"},
              {"submit_time", std::time(nullptr)}});
  EXPECT_EQ(booked({{"tres_per_node", "mps:16"}}), "shard:24") << "it begins in a moment";
}

TEST_P(SubmitLuaPlacement, WhoWaitsAnywayNamesNone) {
  NEED_LUA();
  host();
  EXPECT_EQ(booked({{"tres_per_node", "mps:16"}, {"array_inx", "1-8"}}), "shard:24");
  EXPECT_EQ(booked({{"tres_per_node", "mps:16"}, {"dependency", "afterok:1"}}), "shard:24");
  EXPECT_EQ(booked({{"tres_per_node", "mps:16"}, {"priority", 0}}), "shard:24");
  EXPECT_EQ(booked({{"tres_per_node", "mps:16"}, {"begin_time", std::time(nullptr) + 60}}),
            "shard:24");
  EXPECT_EQ(booked({{"tres_per_node", "mps:16"}, {"min_nodes", 2}}), "shard:24");
  const Fields waits{{"job_state", 0}, {"priority", 7}, {"partition", "main"}};
  auto just = waits;
  just["submit_time"] = std::time(nullptr);
  host_->job(just);
  EXPECT_EQ(booked({{"tres_per_node", "mps:16"}}), "shard:h200.0:24");
  host_->job(waits);
  EXPECT_EQ(booked({{"tres_per_node", "mps:16"}}), "shard:24");
  host();
  for (int i = 0; i < 4; ++i) {
    host_->job(
        {{"job_state", 1}, {"nodes", "n1"}, {"gres_used", fmt::format("shard:h200.{}:100", i)}});
  }
  EXPECT_EQ(booked({{"tres_per_node", "mps:16"}}), "shard:24");
}

TEST_P(SubmitLuaPlacement, OnlyNodesThatTheJobCanGetCount) {
  NEED_LUA();
  auto site = named_site();
  site.gpus_by_node = {{"n1", {{"h200", 4}}}, {"n2", {{"h200", 4}}}};
  site.partitions[0].nodes = {"n1", "n2"};
  const auto beside = [&](std::int64_t on_last) {  // n1 is idle
    host_ = std::make_unique<LuaHost>(GetParam(), std::vector{make_submit_lua(site)});
    for (int i = 0; i < 4; ++i) {
      host_->job({{"job_state", 1},
                  {"nodes", "n2"},
                  {"gres_used", fmt::format("shard:h200.{}:{}", i, i == 3 ? on_last : 24)}});
    }
  };
  const std::int64_t now = std::time(nullptr);
  const std::string nine_tenths = "mps:72";
  beside(24);
  EXPECT_EQ(booked({{"tres_per_node", nine_tenths}}), "shard:h200.0:108");
  for (const Fields& where : std::vector<Fields>{{{"req_nodes", "n2"}},
                                                 {{"exc_nodes", "n[1,7]"}},
                                                 {{"req_nodes", "n[1-2]"}},
                                                 {{"features", "fast"}}}) {
    beside(24);
    auto fields = where;
    fields["tres_per_node"] = nine_tenths;
    EXPECT_EQ(booked(fields), "shard:108") << where.begin()->first;
    if (where.contains("features") ||
        where.at(where.begin()->first) == Fields::mapped_type("n[1-2]"))
      continue;
    beside(0);
    EXPECT_EQ(booked(fields), "shard:h200.3:108") << where.begin()->first;
  }
  const auto reserve = [&](std::string node, std::int64_t start, std::int64_t on_last) {
    beside(on_last);
    host_->reservation({{"name", "course"},
                        {"node_list", std::move(node)},
                        {"start_time", start},
                        {"end_time", now + 3'600}});
  };
  reserve("n2", now - 60, 0);
  EXPECT_EQ(booked({{"tres_per_node", nine_tenths}, {"reservation", "course"}}),
            "shard:h200.3:108");
  reserve("n2", now - 60, 24);
  EXPECT_EQ(booked({{"tres_per_node", nine_tenths}, {"reservation", "course"}}), "shard:108");
  reserve("n1", now - 60, 24);
  EXPECT_EQ(booked({{"tres_per_node", nine_tenths}}), "shard:108") << "others have it now";
  reserve("n1", now + 60, 24);
  EXPECT_EQ(booked({{"tres_per_node", nine_tenths}}), "shard:h200.0:108") << "not yet";
  beside(0);
  EXPECT_EQ(booked({{"tres_per_node", "gpu:2"}, {"req_nodes", "n2"}}),
            "shard:h200.0:120,shard:h200.3:120")
      << "the least held";
}

// slurmctld does nothing else while the script runs: what a user writes keeps it busy for a moment.
TEST_P(SubmitLuaPlacement, NobodyKeepsSlurmctldBusyWithNodes) {
  NEED_LUA();
  host();
  const std::string brackets(1U << 20U, '[');
  std::string empty_ranges = "n[1-999999999]x[2-1";
  for (int i = 0; i < 10'000; ++i) empty_ranges += ",-";
  for (const std::string& nodes :
       {std::string("n[1-999999999]"), std::string("n[1-65000]x[1-65000]"),
        "n[1-65000]" + std::string(60'000, 'y'), "n[" + std::string(100, '0') + "1-2]",
        empty_ranges + "]", brackets + "x"}) {
    for (const char* field : {"req_nodes", "exc_nodes"}) {
      const auto called = host_->submit({{"tres_per_node", "mps:16"}, {field, nodes}});
      EXPECT_TRUE(called.refused()) << nodes.substr(0, 40);
      EXPECT_THAT(called.text("user"), testing::HasSubstr("far too many nodes: name fewer"))
          << nodes.substr(0, 40);
    }
  }
  // The largest cluster is no trouble.
  EXPECT_EQ(booked({{"tres_per_node", "mps:16"}, {"exc_nodes", "n[00002-65535]"}}),
            "shard:h200.0:24");
  EXPECT_EQ(booked({{"tres_per_node", "mps:16"}, {"exc_nodes", std::string(100'000, '[')}}),
            "shard:h200.1:24");
}

TEST_P(SubmitLuaPlacement, SeveralWholeGpusTakeSoMany) {
  NEED_LUA();
  const auto beside = [&] {
    host().job({{"job_state", 1}, {"nodes", "n[1-1]"}, {"gres_used", "shard:h200.1:24"}});
  };
  beside();
  EXPECT_EQ(booked({{"tres_per_node", "gpu:2"}}), "shard:h200.0:120,shard:h200.2:120");
  beside();
  EXPECT_EQ(booked({{"tres_per_node", "gpu:h200:3"}}),
            "shard:h200.0:120,shard:h200.2:120,shard:h200.3:120");
  // It waits for those that are least held.
  EXPECT_EQ(booked({{"tres_per_node", "gpu:4"}}),
            "shard:h200.0:120,shard:h200.1:120,shard:h200.2:120,shard:h200.3:120");
  EXPECT_EQ(booked({{"tres_per_node", "gpu:1"}}), "shard:120");
  EXPECT_EQ(booked({{"tres_per_node", "gpu:h200:1"}}), "shard:120");
  // Each task's own GPU, without the plugin: as ever.
  EXPECT_EQ(booked({{"tres_per_task", "gpu:1"}, {"num_tasks", 2}}), "");
}

TEST_P(SubmitLuaPlacement, AJobMovesWithItsGpus) {
  NEED_LUA();
  host();
  const Fields job{{"partition", "main"},
                   {"record.partition", "main"},
                   {"record.admin_comment", "aliquot: gpu:2"},
                   {"record.tres_per_node", "gres:shard:h200.1:120,gres:shard:h200.3:120"}};
  EXPECT_EQ(host_->modify(job).code, "0");
  auto other = job;
  other["record.tres_per_node"] = "gres:shard:h200:120";
  EXPECT_NE(host_->modify(other).code, "0");
}

// Whatever comes, and however old slurmctld's list is, no GPU is promised twice, a share that fits
// somewhere begins, and as long as nobody waits it does so where least is held, if all have named
// theirs.
RC_GTEST_PROP(PlacementProperty, NothingIsPromisedTwice, ()) {
  const auto interpreter = interpreters_or_none().front();
  if (interpreter.empty()) return;
  LuaHost host(interpreter, {make_submit_lua(named_site())});
  Slurm slurm(host);
  bool waited = false;
  bool unnamed = false;
  const int jobs = *rc::gen::inRange(1, 30);
  for (int i = 0; i < jobs; ++i) {
    if (*rc::gen::arbitrary<bool>()) {
      slurm.show();
      unnamed = false;
    }
    const bool whole = *rc::gen::inRange(0, 4) == 0;
    const auto count = *rc::gen::inRange<std::int64_t>(1, whole ? 5 : 81);
    const auto before = slurm.used;
    const auto held =
        slurm.submit({{"tres_per_node", fmt::format("{}:{}", whole ? "gpu" : "mps", count)}});
    const auto need = whole ? kAll : (kAll * count + 79) / 80;
    std::int64_t fitting = 0;
    for (const auto used : before) fitting += used + need <= kAll ? 1 : 0;
    const std::int64_t wanted = whole ? count : 1;
    if (wanted == 1) RC_ASSERT(std::ssize(held) == (fitting >= wanted ? wanted : 0));
    for (const auto used : slurm.used) RC_ASSERT(used <= kAll);
    waited = waited || held.empty();
    if (whole && count == 1) unnamed = true;
    if (waited || unnamed || whole) continue;
    for (std::size_t gpu = 0; gpu < before.size(); ++gpu) {
      if (before[gpu] + need <= kAll) RC_ASSERT(before[held[0]] <= before[gpu]);
    }
  }
}

}  // namespace
}  // namespace aliquot::slurm
