// A machine or a cluster as a page shows it: the snapshot that the commands print from as well, cut
// to what a page can show, and the parts of it that a Feed hands out. The same for every engine.
//
//   cluster      ClusterInfo, without its nodes
//   node/NAME    NodeInfo
//   job/NAME     {"why":"…","job":JobInfo}, brief; NAME is its number, or its pod's
//   queue        {"order":[NAME…],"waiting":…,"running":…,"next_ms":…,"users":{"ann":[runs,waits]}}
//   over         jobs that ended lately, the latest first
//   trouble      {"why":"…","seen_ms":…}: nothing newer than that could be seen; else there is none
//   shares       ShareList; today {"ann":GPU milliseconds}; lines and day: see History
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/types.hpp"
#include "show/feed.hpp"
#include "show/history.hpp"
#include "show/page.hpp"

namespace aliquot::show {

// So many of each kind are shown at once; that there are more is told.
inline constexpr std::size_t kMostRunning = 500;
inline constexpr std::size_t kMostWaiting = 200;
inline constexpr std::size_t kMostOver = 12;

struct Picture {
  api::ClusterInfo cluster;
  std::vector<api::JobInfo> running;
  std::vector<api::JobInfo> waiting;  // in the order in which they will run
  std::int64_t running_count = 0;     // also of those that are not shown
  std::int64_t waiting_count = 0;
  std::optional<std::int64_t> next_ms = {};  // the next expected start
  // Of each user how many run and wait.
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> users = {};
  std::vector<api::JobInfo> over = {};  // briefly: id, name, user, state, end
  std::optional<api::ShareList> shares = {};
};

// From a list of all jobs, for engines that have no other: the first of those that run and wait.
Picture make_picture(api::ClusterInfo cluster, std::vector<api::JobInfo> jobs);

Feed::Parts parts_of(const Picture& picture, const History& history);
Plain plain_of(Picture picture, WallTime now);

// The one node, or those of a cluster.
std::vector<const api::NodeInfo*> nodes_of(const api::ClusterInfo& cluster);

}  // namespace aliquot::show
