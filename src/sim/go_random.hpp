// The random numbers of Go's math/rand, for the orders that published results were made with: what
// a seed means there is fixed by Go's promise of compatibility. An additive lagged Fibonacci
// generator, x[n] = x[n-607] + x[n-273] modulo 2^64, whose start mixes the seed with the state that
// the generator itself has after 7.8e12 steps from a plain start.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace aliquot::sim {

class GoRandom {
 public:
  explicit GoRandom(std::uint64_t seed);

  // One draw whose value nobody wants: Int, Float64.
  void skip() { next(); }

  // Intn: evenly from 0 to count - 1, for a count from 1 to 2^31 - 1.
  std::uint32_t below(std::uint32_t count);

  // Shuffle, for up to 2^31 - 1 items.
  template <class T>
  void shuffle(std::vector<T>& items) {
    for (auto i = static_cast<std::uint32_t>(items.size()); i > 1; --i) {
      std::swap(items[i - 1], items[below_by_product(i)]);
    }
  }

  // Perm: the numbers from 0 to count - 1.
  std::vector<std::uint32_t> permutation(std::uint32_t count);

 private:
  static constexpr std::size_t kLong = 607;
  static constexpr std::size_t kShort = 273;
  using State = std::array<std::uint64_t, kLong>;

  static State plain_start(std::uint64_t seed, unsigned high, unsigned middle);
  static State after(std::uint64_t steps, const State& start);
  std::uint64_t next();
  std::uint32_t below_by_product(std::uint32_t count);

  State state_;  // as a ring, overwritten downwards
  std::size_t at_ = kLong - kShort;
};

}  // namespace aliquot::sim
