// Points in the past as sacct's -S and -E take them.
#pragma once

#include <string_view>

#include "base/result.hpp"
#include "base/time.hpp"

namespace aliquot::cli {

// `now`, `now-2hours`, `today`, `midnight`, `noon`, `yesterday`, `08:30[:15]` (today's),
// `1115[26]`, `11/15[/26]`, `11.15[.26]`, `2026-11-15[T06:44[:05]]`. In the local time zone.
Result<WallTime> parse_accounting_time(std::string_view text, WallTime now);

WallTime start_of_day(WallTime now);

}  // namespace aliquot::cli
