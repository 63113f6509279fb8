// Points in time as --begin and --deadline take them, and sacct's -S and -E.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "base/time.hpp"

namespace aliquot::cli {

// `now`, `now+1hour`, `now+90` (seconds), `16:00`, `4:30PM`, `midnight`, `noon`, `teatime`,
// `today`, `tomorrow`, `12/31[/30]`, `1231[30]`, `31.12.30`, `2030-12-31[T16:00[:00]]`, and a day
// and a time together. In the local time zone.
//
// To come: a time of day that has passed means tomorrow's; a day and month that have passed mean
// next year's; `today` and `tomorrow` by themselves are at this time of day.
// Past: `now-2hours` and `yesterday` as well; a time of day is today's, a day and month are this
// year's, and a day by itself is its first second.
enum class Tense { to_come, past };
Result<WallTime> parse_moment(std::string_view text, WallTime now, Tense tense = Tense::to_come);

// What Slurm says of a text that is no point in time: with the place where it stopped reading.
std::string no_moment(std::string_view text);

}  // namespace aliquot::cli
