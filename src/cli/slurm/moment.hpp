// Points in time as --begin and --deadline take them.
#pragma once

#include <string_view>

#include "base/result.hpp"
#include "base/time.hpp"

namespace aliquot::cli {

// `now`, `now+1hour`, `now+90` (seconds), `16:00`, `4:30PM`, `midnight`, `noon`, `teatime`,
// `today`, `tomorrow`, `12/31[/30]`, `1231[30]`, `31.12.30`, `2030-12-31[T16:00[:00]]`, and a day
// and a time together. A time of day that has passed means tomorrow's; a day and month that have
// passed mean next year's. In the local time zone.
Result<WallTime> parse_moment(std::string_view text, WallTime now);

}  // namespace aliquot::cli
