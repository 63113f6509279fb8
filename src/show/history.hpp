// What a page shows of the past: each GPU's last ten minutes, a day of what was granted and what
// was used, how long jobs waited, and how much each user held today. Fed with every look at the
// machine; text in and out, so that it outlasts its daemon.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "api/types.hpp"
#include "base/time.hpp"

namespace aliquot::show {

class History {
 public:
  static constexpr Millis kPoint = seconds(10);  // of a GPU's line
  static constexpr std::size_t kPoints = 60;
  static constexpr Millis kBucket = minutes(10);  // of the day
  static constexpr std::size_t kBuckets = 144;

  // The machine or the cluster as it is, and what jobs hold of it.
  void look(WallTime now, const std::vector<const api::NodeInfo*>& nodes,
            const std::vector<api::JobInfo>& running);
  void started(WallTime now, Millis waited);

  // {"UUID":[…]}, of a GPU without a UUID {"NODE/INDEX":[…]}: per cent, the last ones that are
  // over.
  [[nodiscard]] std::string lines_json() const;
  // {"step_s":600,"end_ms":…,"granted":[…],"used":[…],"wait_s":[…]}: in 1/10,000 of all GPUs and
  // seconds; null where nothing was seen, or no job started.
  [[nodiscard]] std::string day_json() const;
  // GPU milliseconds that users have held since midnight.
  [[nodiscard]] const std::map<std::string, std::int64_t>& today() const { return today_; }

  // Changes when there is something to keep.
  [[nodiscard]] std::int64_t version() const { return version_; }
  [[nodiscard]] std::string keep() const;
  // What is not understood is as if it had never been.
  void recall(std::string_view text, WallTime now);

 private:
  struct Mean {
    double sum = 0;
    double weight = 0;
    void add(double value, double for_ms) {
      sum += value * for_ms;
      weight += for_ms;
    }
  };
  struct Bucket {
    std::int64_t number = 0;  // of kBucket since 1970
    Mean granted;
    Mean used;
    std::vector<std::int64_t> waits;  // seconds
  };
  struct Line {
    Mean now;
    std::int64_t point = 0;
    std::deque<int> points;
  };
  Bucket& bucket(WallTime now);

  std::map<std::string, Line> lines_;
  std::deque<Bucket> day_;
  std::map<std::string, std::int64_t> today_;
  std::int64_t date_ = 0;  // days since 1970, local time
  WallTime looked_ = {};
  std::int64_t version_ = 0;
};

}  // namespace aliquot::show
