// The dice of one step, read one after the other, and what they choose from in more than one place.
#pragma once

#include <array>
#include <cstdint>

#include "engine/walk/world.hpp"

namespace aliquot::engine::walk {

class Throw {
 public:
  explicit Throw(const Dice& dice) : dice_(dice) {}

  // 0 … sides-1. More than there are dice come from the last ones, mixed.
  std::uint32_t roll(std::uint32_t sides) {
    std::uint32_t& die = dice_[next_++ % dice_.size()];
    const std::uint32_t value = die;
    die = die * 1'664'525 + 1'013'904'223;
    return (value >> 8U) % sides;
  }
  bool one_in(std::uint32_t sides) { return roll(sides) == 0; }
  template <class T, std::size_t n>
  const T& one_of(const std::array<T, n>& all) {
    return all[roll(n)];
  }

 private:
  Dice dice_;
  std::size_t next_ = 0;
};

inline constexpr std::array<const char*, 12> kGpus{"",        "",       "gpu:1",   "gpu:2",
                                                   "gpu:3",   "mps:30", "mps:60",  "shard:2",
                                                   "shard:7", "gpu:9",  "gpu:x:1", "gpu:h200:1"};
inline constexpr std::array<const char*, 5> kBadTexts{"\033[2J", "a\nb", "\xc2\x9b", "\x7f", "\r"};

}  // namespace aliquot::engine::walk
