#include "show/picture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "api/json.hpp"

namespace aliquot::show {
namespace {

std::string name_of(const api::JobInfo& job) {
  return job.pod.empty() ? std::to_string(job.id) : job.pod;
}

bool runs(const api::JobInfo& job) {
  return job.state == "RUNNING" || job.state == "SUSPENDED" || job.state == "COMPLETING" ||
         job.state == "CONFIGURING";
}

std::string queue_json(const Picture& picture) {
  std::string out = "{\"order\":[";
  for (const api::JobInfo& job : picture.waiting) {
    if (out.back() != '[') out += ',';
    out += api::json_text(name_of(job));
  }
  out +=
      fmt::format("],\"waiting\":{},\"running\":{}", picture.waiting_count, picture.running_count);
  if (picture.next_ms) out += fmt::format(",\"next_ms\":{}", *picture.next_ms);
  out += ",\"users\":{";
  for (const auto& [user, counts] : picture.users) {
    if (out.back() != '{') out += ',';
    out += fmt::format("{}:[{},{}]", api::json_text(user), counts.first, counts.second);
  }
  return out + "}}";
}

std::string today_json(const History& history) {
  // To the tenth of a minute: nobody is told of less.
  constexpr std::int64_t kGrain = 6'000;
  std::string out = "{";
  for (const auto& [user, held] : history.today()) {
    if (out.size() > 1) out += ',';
    out += fmt::format("{}:{}", api::json_text(user), held / kGrain * kGrain);
  }
  return out + "}";
}

}  // namespace

std::vector<const api::NodeInfo*> nodes_of(const api::ClusterInfo& cluster) {
  std::vector<const api::NodeInfo*> nodes;
  for (const api::NodeInfo& node : cluster.nodes) nodes.push_back(&node);
  if (nodes.empty()) nodes.push_back(&cluster.node);
  return nodes;
}

Picture make_picture(api::ClusterInfo cluster, std::vector<api::JobInfo> jobs) {
  Picture picture;
  picture.cluster = std::move(cluster);
  // Those that are expected first, then by priority.
  std::ranges::stable_sort(jobs, [](const api::JobInfo& a, const api::JobInfo& b) {
    const auto start = [](const api::JobInfo& job) { return job.start_ms.value_or(INT64_MAX); };
    if (waits(a) && waits(b) && start(a) != start(b)) return start(a) < start(b);
    if (a.priority != b.priority) return a.priority > b.priority;
    return a.submit_ms < b.submit_ms;
  });
  for (api::JobInfo& job : jobs) {
    auto& counts = picture.users[job.user];
    if (waits(job)) {
      ++counts.second;
      ++picture.waiting_count;
      if (job.start_ms && (!picture.next_ms || *job.start_ms < *picture.next_ms)) {
        picture.next_ms = job.start_ms;
      }
      if (picture.waiting.size() < kMostWaiting) picture.waiting.push_back(std::move(job));
    } else if (runs(job)) {
      ++counts.first;
      ++picture.running_count;
      if (picture.running.size() < kMostRunning) picture.running.push_back(std::move(job));
    } else {
      picture.over.push_back(std::move(job));
    }
  }
  std::ranges::stable_sort(picture.over, std::ranges::greater(), &api::JobInfo::end_ms);
  if (picture.over.size() > kMostOver) picture.over.resize(kMostOver);
  std::erase_if(picture.users, [](const auto& one) {
    return one.second == std::pair<std::int64_t, std::int64_t>();
  });
  return picture;
}

Feed::Parts parts_of(const Picture& picture, const History& history) {
  Feed::Parts parts;
  api::ClusterInfo bare = picture.cluster;
  for (const api::NodeInfo* node : nodes_of(picture.cluster)) {
    parts["node/" + node->name] = api::to_json(*node);
  }
  bare.node = {};
  bare.nodes.clear();
  parts["cluster"] = api::to_json(bare);
  for (const auto* list : {&picture.running, &picture.waiting}) {
    for (const api::JobInfo& job : *list) {
      parts["job/" + name_of(job)] = fmt::format(
          "{{\"why\":{},\"job\":{}}}", api::json_text(job.reason_detail), api::brief_json(job));
    }
  }
  parts["queue"] = queue_json(picture);
  std::string over = "[";
  for (const api::JobInfo& job : picture.over) {
    if (over.size() > 1) over += ',';
    over += api::brief_json(job);
  }
  parts["over"] = over + "]";
  if (picture.shares) parts["shares"] = api::to_json(*picture.shares);
  parts["today"] = today_json(history);
  parts["lines"] = history.lines_json();
  parts["day"] = history.day_json();
  return parts;
}

Plain plain_of(Picture picture, WallTime now) {
  Plain plain;
  plain.cluster = std::move(picture.cluster);
  plain.jobs = std::move(picture.running);
  std::ranges::move(picture.waiting, std::back_inserter(plain.jobs));
  plain.waiting = picture.waiting_count;
  plain.now = now;
  return plain;
}

}  // namespace aliquot::show
