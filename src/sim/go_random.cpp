#include "sim/go_random.hpp"

#include <algorithm>
#include <bit>

namespace aliquot::sim {

// A generator of Lehmer's fills the ring, three of its numbers of 31 bits for each place.
GoRandom::State GoRandom::plain_start(std::uint64_t seed, unsigned high, unsigned middle) {
  constexpr std::uint64_t kModulus = 0x7fffffff;
  std::uint64_t x = seed % kModulus;
  if (x == 0) x = 89'482'311;
  const auto draw = [&x] { return x = 48'271 * x % kModulus; };
  for (int warm = 0; warm < 20; ++warm) draw();
  State state{};
  for (std::uint64_t& place : state) {
    place = draw() << high;
    place ^= draw() << middle;
    place ^= draw();
  }
  return state;
}

// A step is linear, so many steps are a polynomial: x^steps modulo x^607 - x^334 - 1, by squaring.
GoRandom::State GoRandom::after(std::uint64_t steps, const State& start) {
  constexpr std::size_t kTap = kLong - kShort;
  State power{};
  power[0] = 1;
  std::vector<std::uint64_t> product(2 * kLong - 1);
  for (std::uint64_t bit = std::bit_floor(steps); bit > 0; bit >>= 1U) {
    std::ranges::fill(product, 0);
    for (std::size_t i = 0; i < kLong; ++i) {
      for (std::size_t j = 0; j < kLong; ++j) product[i + j] += power[i] * power[j];
    }
    for (std::size_t i = product.size() - 1; i >= kLong; --i) {
      product[i - kLong] += product[i];
      product[i - kShort] += product[i];
    }
    std::copy_n(product.begin(), kLong, power.begin());
    if ((steps & bit) == 0) continue;
    std::rotate(power.begin(), power.end() - 1, power.end());  // times x; x^607 is x^334 + 1
    power[kTap] += power[0];
  }

  // The sequence from its oldest number on: step n writes to place 334 - n of the ring.
  const auto place = [](std::uint64_t n) { return (kTap + kLong - n % kLong) % kLong; };
  std::vector<std::uint64_t> sequence(2 * kLong);
  for (std::size_t i = 0; i < kLong; ++i) sequence[i] = start[place(i + 1)];
  for (std::size_t i = kLong; i < sequence.size(); ++i) {
    sequence[i] = sequence[i - kLong] + sequence[i - kShort];
  }
  State state{};
  for (std::size_t i = 0; i < kLong; ++i) {
    std::uint64_t sum = 0;
    for (std::size_t j = 0; j < kLong; ++j) sum += power[j] * sequence[i + j];
    state[place(steps + i + 1)] = sum;
  }
  return state;
}

GoRandom::GoRandom(std::uint64_t seed) : state_(plain_start(seed, 40, 20)) {
  static const State mixed_in = after(7'800'000'000'000, plain_start(1, 20, 10));
  for (std::size_t i = 0; i < kLong; ++i) state_[i] ^= mixed_in[i];
}

std::uint64_t GoRandom::next() {
  at_ = at_ == 0 ? kLong - 1 : at_ - 1;
  return state_[at_] += state_[(at_ + kShort) % kLong];
}

// Go drops the highest of the 64 bits, and takes 31 from what is left.
std::uint32_t GoRandom::below(std::uint32_t count) {
  constexpr std::uint32_t kBits = 0x7fffffff;
  const auto draw = [this] { return static_cast<std::uint32_t>(next() >> 32U) & kBits; };
  if (std::has_single_bit(count)) return draw() & (count - 1);
  const std::uint32_t most = kBits - (kBits + 1) % count;
  std::uint32_t drawn = draw();
  while (drawn > most) drawn = draw();
  return drawn % count;
}

// The high half of a product of 32 bits with the count; draws that would favour some are thrown
// away.
std::uint32_t GoRandom::below_by_product(std::uint32_t count) {
  const auto draw = [&] { return ((next() >> 31U) & 0xffffffffU) * count; };
  const std::uint32_t favoured = (0U - count) % count;
  std::uint64_t product = draw();
  while (static_cast<std::uint32_t>(product) < favoured) product = draw();
  return static_cast<std::uint32_t>(product >> 32U);
}

std::vector<std::uint32_t> GoRandom::permutation(std::uint32_t count) {
  std::vector<std::uint32_t> numbers(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t j = below(i + 1);
    numbers[i] = numbers[j];
    numbers[j] = i;
  }
  return numbers;
}

}  // namespace aliquot::sim
