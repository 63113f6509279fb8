#include "show/history.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "base/text.hpp"

namespace aliquot::show {
namespace {

// Looks are never so far apart: what was between is not known.
constexpr Millis kMostApart = minutes(2);
// Of one bucket, for a median.
constexpr std::size_t kMostWaits = 10'000;

std::int64_t date_of(WallTime now) {
  const std::time_t second = now.ms() / 1'000;
  std::tm local{};
  ::localtime_r(&second, &local);
  return (second + local.tm_gmtoff) / 86'400;
}

std::string number_or_null(bool known, double value) {
  return known ? std::to_string(std::llround(value)) : "null";
}

std::int64_t median(std::vector<std::int64_t> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace

History::Bucket& History::bucket(WallTime now) {
  const std::int64_t number = now.ms() / kBucket.value();
  // The clock may have been set back.
  if (day_.empty() || day_.back().number < number) {
    day_.push_back({.number = number, .granted = {}, .used = {}, .waits = {}});
    ++version_;
  }
  while (day_.front().number <= day_.back().number - static_cast<std::int64_t>(kBuckets)) {
    day_.pop_front();
  }
  return day_.back();
}

void History::started(WallTime now, Millis waited) {
  auto& waits = bucket(now).waits;
  if (waits.size() < kMostWaits) waits.push_back(std::max(waited, Millis(0)) / seconds(1));
}

void History::look(WallTime now, const std::vector<const api::NodeInfo*>& nodes,
                   const std::vector<api::JobInfo>& running) {
  const Millis passed = now - looked_;
  looked_ = now;
  if (passed <= Millis(0) || passed > kMostApart) return;
  const auto weight = static_cast<double>(passed.value());
  double gpus = 0;
  double known = 0;  // of how many it is said what they do
  double granted = 0;
  double used = 0;
  std::map<std::string_view, std::int64_t> memories;  // of GPUs, by UUID
  for (const api::NodeInfo* node : nodes) {
    for (const api::GpuInfo& gpu : node->gpus) {
      gpus += 1;
      // Of what is granted as a whole, whatever of it is memory or compute.
      const double memory =
          gpu.memory > 0 ? static_cast<double>(gpu.memory_granted) / static_cast<double>(gpu.memory)
                         : 0;
      // Compute may be granted more than once: no more than a GPU is busy with it.
      granted += std::min(std::max(memory, static_cast<double>(gpu.compute_granted) / 10'000), 1.0);
      if (!gpu.uuid.empty()) memories[gpu.uuid] = gpu.memory;
      if (gpu.stale) continue;
      known += 1;
      used += static_cast<double>(gpu.utilisation) / 10'000;
      Line& line =
          lines_[gpu.uuid.empty() ? fmt::format("{}/{}", node->name, gpu.index) : gpu.uuid];
      const std::int64_t point = now.ms() / kPoint.value();
      if (line.point != point && line.now.weight > 0) {
        line.points.push_back(static_cast<int>(std::lround(line.now.sum / line.now.weight)));
        if (line.points.size() > kPoints) line.points.pop_front();
        line.now = {};
      }
      line.point = point;
      line.now.add(static_cast<double>(gpu.utilisation) / 100, weight);
    }
  }
  if (gpus > 0) {
    Bucket& now_in = bucket(now);
    now_in.granted.add(granted / gpus * 10'000, weight);
    if (known > 0) now_in.used.add(used / known * 10'000, weight);
  }
  if (const std::int64_t date = date_of(now); date != date_) {
    date_ = date;
    today_.clear();
  }
  for (const api::JobInfo& job : running) {
    std::int64_t parts = 0;
    for (const api::GpuHold& hold : job.gpus) {
      const auto all = memories.find(hold.uuid);
      const bool there = all != memories.end() && all->second > 0;
      const double memory =
          there ? static_cast<double>(hold.memory) / static_cast<double>(all->second) : 0;
      const std::int64_t larger = std::max(hold.compute, std::int64_t{std::llround(memory * 1e4)});
      parts += hold.whole ? 10'000 : std::min<std::int64_t>(larger, 10'000);
    }
    if (parts > 0) today_[job.user] += passed.value() * parts / 10'000;
  }
}

std::string History::lines_json() const {
  std::string out = "{";
  for (const auto& [uuid, line] : lines_) {
    if (out.size() > 1) out += ',';
    out += fmt::format("\"{}\":[{}]", uuid, fmt::join(line.points, ","));
  }
  return out + "}";
}

std::string History::day_json() const {
  if (day_.empty()) return "null";
  std::vector<std::string> granted;
  std::vector<std::string> used;
  std::vector<std::string> waits;
  const std::int64_t last = day_.back().number;
  auto at = day_.begin();
  for (std::int64_t number = last - static_cast<std::int64_t>(kBuckets) + 1; number <= last;
       ++number) {
    const bool there = at != day_.end() && at->number == number;
    const bool seen = there && at->granted.weight > 0;
    granted.push_back(number_or_null(seen, seen ? at->granted.sum / at->granted.weight : 0));
    const bool told = there && at->used.weight > 0;
    used.push_back(number_or_null(told, told ? at->used.sum / at->used.weight : 0));
    const bool any = there && !at->waits.empty();
    waits.push_back(any ? std::to_string(median(at->waits)) : "null");
    if (there) ++at;
  }
  return fmt::format(R"({{"step_s":{},"end_ms":{},"granted":[{}],"used":[{}],"wait_s":[{}]}})",
                     kBucket / seconds(1), (last + 1) * kBucket.value(), fmt::join(granted, ","),
                     fmt::join(used, ","), fmt::join(waits, ","));
}

// Lines of words: `1 DATE`, `b NUMBER GRANTED USED WAIT`, `u MILLISECONDS NAME`.
std::string History::keep() const {
  std::string out = fmt::format("1 {}\n", date_);
  for (const Bucket& one : day_) {
    const bool seen = one.granted.weight > 0;
    const bool told = one.used.weight > 0;
    out += fmt::format("b {} {} {} {}\n", one.number,
                       seen ? std::llround(one.granted.sum / one.granted.weight) : 0,
                       told ? std::to_string(std::llround(one.used.sum / one.used.weight)) : "-",
                       one.waits.empty() ? "-" : std::to_string(median(one.waits)));
  }
  for (const auto& [user, held] : today_) out += fmt::format("u {} {}\n", held, user);
  return out;
}

void History::recall(std::string_view text, WallTime now) {
  const auto lines = split(text, '\n');
  const auto first = split(lines.front(), ' ');
  if (first.size() != 2 || first[0] != "1") return;
  const auto date = parse_digits(first[1]);
  const std::int64_t last = now.ms() / kBucket.value();
  for (const std::string_view line : lines) {
    const auto words = split(line, ' ');
    const auto number = words.size() > 1 ? parse_digits(words[1]) : std::nullopt;
    if (!number) continue;
    if (words[0] == "b" && words.size() == 5 && *number <= last &&
        (day_.empty() || day_.back().number < *number)) {
      const auto granted = parse_digits(words[2]);
      const auto used = parse_digits(words[3]);
      if (!granted) continue;
      Bucket one{.number = *number, .granted = {}, .used = {}, .waits = {}};
      one.granted.add(static_cast<double>(*granted), 1);
      if (used) one.used.add(static_cast<double>(*used), 1);
      if (const auto wait = parse_digits(words[4])) one.waits.push_back(*wait);
      day_.push_back(std::move(one));
    } else if (words[0] == "u" && words.size() == 3 && date == date_of(now)) {
      date_ = *date;
      today_[std::string(words[2])] = *number;
    }
  }
  if (!day_.empty()) (void)bucket(WallTime(day_.back().number * kBucket.value()));
}

}  // namespace aliquot::show
