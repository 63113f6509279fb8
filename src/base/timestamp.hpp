// Points in time as Slurm writes them, in the local time zone.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "base/time.hpp"

namespace aliquot {

// `2026-11-15T06:44:05`; whole seconds, rounded down.
std::string format_timestamp(WallTime time);

// `Sun Nov 15 06:44:05 2026`: the first line of `squeue -l` and `sinfo -l`.
std::string format_date_line(WallTime time);

// `2026-11-15`, `2026-11-15T06:44` or `2026-11-15T06:44:05`. Years 1970 to 9999.
Result<WallTime> parse_timestamp(std::string_view text);

}  // namespace aliquot
