// The last minute of each GPU and job, in cells of three seconds, for `aliquot top`. It only
// remembers what it is shown.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "api/types.hpp"
#include "base/time.hpp"

namespace aliquot::cli {

// What was measured of a job; empty if it cannot be told apart from other jobs on its GPU.
struct JobUse {
  std::optional<std::int64_t> utilisation = {};  // 1/10,000 of a GPU, the mean over its GPUs
  std::optional<std::int64_t> memory = {};       // bytes on all of them
};
JobUse use_of(const api::JobInfo& job, const api::ClusterInfo& cluster);

class TopHistory {
 public:
  static constexpr std::size_t kCells = 20;
  static constexpr Millis kCell = seconds(3);
  // In 1/10,000, the oldest first; absent where nothing is known.
  using Cells = std::array<std::optional<std::int64_t>, kCells>;

  void add(const api::Overview& overview, WallTime now);
  [[nodiscard]] Cells of_gpu(const std::string& node, std::int64_t index, WallTime now) const;
  [[nodiscard]] Cells of_job(std::int64_t id, WallTime now) const;
  // Between the last two looks, where its GPU time was told in both.
  [[nodiscard]] std::optional<std::int64_t> busy_of(std::int64_t id) const;

 private:
  struct Seen {
    WallTime when;
    std::optional<std::int64_t> busy;
  };
  using Line = std::deque<Seen>;
  struct Spent {
    WallTime when;
    std::int64_t gpu_ms = 0;
    std::optional<std::int64_t> busy = {};
  };
  static Cells cells(const Line* line, WallTime now);

  std::map<std::pair<std::string, std::int64_t>, Line> gpus_;
  std::map<std::int64_t, Line> jobs_;
  std::map<std::int64_t, Spent> spent_;
};

// `▁▂█ `: a cell of a letter each.
std::string sparkline(const TopHistory::Cells& cells);
// Known for half a minute at least, and never more than a hundredth.
bool was_idle(const TopHistory::Cells& cells);

}  // namespace aliquot::cli
