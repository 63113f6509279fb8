// Counts and times as Prometheus reads them.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace aliquot::kube {

// How long something took, in buckets.
class Durations {
 public:
  void add(std::int64_t microseconds) {
    for (std::size_t i = 0; i < kLimits.size(); ++i) {
      if (microseconds <= kLimits[i]) ++counts_[i];
    }
    ++count_;
    sum_ += microseconds;
  }
  // `what` labels it: `handler="filter"`.
  void write(std::string& out, std::string_view name, std::string_view what) const {
    for (std::size_t i = 0; i < kLimits.size(); ++i) {
      out += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", name, what, seconds(kLimits[i]),
                         counts_[i]);
    }
    out += fmt::format("{}_bucket{{{},le=\"+Inf\"}} {}\n", name, what, count_);
    out += fmt::format("{}_sum{{{}}} {}\n", name, what, seconds(sum_));
    out += fmt::format("{}_count{{{}}} {}\n", name, what, count_);
  }

 private:
  static double seconds(std::int64_t microseconds) {
    return static_cast<double>(microseconds) / 1e6;
  }
  static constexpr std::array<std::int64_t, 12> kLimits = {250,     500,     1'000,     2'500,
                                                           5'000,   10'000,  25'000,    50'000,
                                                           100'000, 250'000, 1'000'000, 5'000'000};
  std::array<std::uint64_t, kLimits.size()> counts_ = {};
  std::uint64_t count_ = 0;
  std::int64_t sum_ = 0;
};

}  // namespace aliquot::kube
