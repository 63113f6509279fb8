// Lengths of time as Slurm's options take them and its commands print them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "base/time.hpp"

namespace aliquot {

// How long a job may run; no length means as long as it likes.
struct TimeLimit {
  std::optional<Millis> length;

  [[nodiscard]] constexpr bool unlimited() const { return !length.has_value(); }
  friend constexpr bool operator==(const TimeLimit&, const TimeLimit&) = default;
};
inline constexpr TimeLimit kUnlimited{};

// `M`, `M:S`, `H:M:S`, `D-H`, `D-H:M`, `D-H:M:S`, `UNLIMITED`, `INFINITE` or `-1`. As in Slurm a
// field may exceed its unit (`90:00` is an hour and a half). Rounding to minutes is the caller's
// choice.
Result<TimeLimit> parse_time_limit(std::string_view text);

enum class TimeStyle {
  squeue,    // leading units dropped: `0:11`, `2:00:00`, `1-00:00:00`; UNLIMITED
  scontrol,  // also sacct: `00:00:11`, `1-00:00:00`; UNLIMITED
  sinfo,     // as squeue; infinite
};

// Whole seconds, rounded down; `INVALID` for less than nothing, as Slurm says it.
std::string format_duration(Millis length, TimeStyle style);
std::string format_time_limit(const TimeLimit& limit, TimeStyle style);

}  // namespace aliquot
