// Quantities that must not be confused: bytes, compute, CPU. Each is one 64-bit integer with the
// arithmetic that makes sense for it and nothing else. Sums of quantities we hold cannot overflow
// unless an invariant is broken, so the operators terminate on overflow; text from outside goes
// through checked_add and checked_mul.
#pragma once

#include <fmt/format.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <optional>

namespace aliquot {

template <class Tag>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(std::int64_t value) : value_(value) {}

  [[nodiscard]] constexpr std::int64_t value() const { return value_; }

  friend constexpr auto operator<=>(Quantity, Quantity) = default;

  friend constexpr std::optional<Quantity> checked_add(Quantity a, Quantity b) {
    std::int64_t sum = 0;
    if (__builtin_add_overflow(a.value_, b.value_, &sum)) return std::nullopt;
    return Quantity(sum);
  }
  friend constexpr std::optional<Quantity> checked_mul(Quantity a, std::int64_t factor) {
    std::int64_t product = 0;
    if (__builtin_mul_overflow(a.value_, factor, &product)) return std::nullopt;
    return Quantity(product);
  }

  constexpr Quantity& operator+=(Quantity other) {
    if (__builtin_add_overflow(value_, other.value_, &value_)) std::abort();
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    if (__builtin_sub_overflow(value_, other.value_, &value_)) std::abort();
    return *this;
  }
  constexpr Quantity& operator*=(std::int64_t factor) {
    if (__builtin_mul_overflow(value_, factor, &value_)) std::abort();
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return a += b; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return a -= b; }
  friend constexpr Quantity operator*(Quantity a, std::int64_t factor) { return a *= factor; }
  friend constexpr Quantity operator*(std::int64_t factor, Quantity a) { return a *= factor; }
  // How often b fits into a.
  friend constexpr std::int64_t operator/(Quantity a, Quantity b) { return a.value_ / b.value_; }

 private:
  std::int64_t value_ = 0;
};

using Bytes = Quantity<struct BytesTag>;
// Parts of one GPU's compute, in 1/10,000.
using Compute = Quantity<struct ComputeTag>;
// Thousandths of a CPU.
using CpuMilli = Quantity<struct CpuMilliTag>;

inline constexpr Compute kWholeGpu{10'000};
inline constexpr CpuMilli kOneCpu{1'000};

constexpr Bytes kib(std::int64_t n) { return Bytes(1) * n * 1024; }
constexpr Bytes mib(std::int64_t n) { return kib(n) * 1024; }
constexpr Bytes gib(std::int64_t n) { return mib(n) * 1024; }

// amount * numerator / denominator without overflow on the way, rounded down or up: "in
// proportion". numerator >= 0, denominator > 0, amount >= 0.
template <class Tag>
constexpr Quantity<Tag> scale_down(Quantity<Tag> amount, std::int64_t numerator,
                                   std::int64_t denominator) {
  __extension__ using Wide = __int128;
  const Wide wide = static_cast<Wide>(amount.value()) * numerator / denominator;
  if (wide > INT64_MAX) std::abort();
  return Quantity<Tag>(static_cast<std::int64_t>(wide));
}
template <class Tag>
constexpr Quantity<Tag> scale_up(Quantity<Tag> amount, std::int64_t numerator,
                                 std::int64_t denominator) {
  __extension__ using Wide = __int128;
  const Wide wide =
      (static_cast<Wide>(amount.value()) * numerator + (denominator - 1)) / denominator;
  if (wide > INT64_MAX) std::abort();
  return Quantity<Tag>(static_cast<std::int64_t>(wide));
}

}  // namespace aliquot

template <class Tag>
struct std::hash<aliquot::Quantity<Tag>> {
  std::size_t operator()(aliquot::Quantity<Tag> quantity) const noexcept {
    return std::hash<std::int64_t>{}(quantity.value());
  }
};

// The bare number, as JSON and logs want it. size.hpp and percent.hpp print for people.
template <class Tag>
struct fmt::formatter<aliquot::Quantity<Tag>> : fmt::formatter<std::int64_t> {
  auto format(aliquot::Quantity<Tag> quantity, fmt::format_context& context) const {
    return formatter<std::int64_t>::format(quantity.value(), context);
  }
};
