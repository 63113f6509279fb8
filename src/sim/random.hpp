// Random numbers that are the same on every platform: the standard fixes what mt19937_64 yields,
// but not what its distributions and std::shuffle make of it, so those are our own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace aliquot::sim {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  // Evenly from 0 to count - 1. Draws beyond the largest multiple of count are thrown away, so that
  // no number is favoured.
  std::uint64_t below(std::uint64_t count) {
    const std::uint64_t excess = (UINT64_MAX % count + 1) % count;
    std::uint64_t draw = engine_();
    while (draw > UINT64_MAX - excess) draw = engine_();
    return draw % count;
  }

  // Fisher and Yates, from the back: place i gets one of the first i + 1.
  template <class T>
  void shuffle(std::vector<T>& items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

  // True in `per_mille` of 1,000 cases.
  bool chance(std::int64_t per_mille) {
    return static_cast<std::int64_t>(below(1'000)) < per_mille;
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace aliquot::sim
