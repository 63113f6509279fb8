// Points in time as Kubernetes writes them, in UTC.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/time.hpp"

namespace aliquot::kube {

// `2026-11-18T11:53:13.123000Z`: with microseconds, as a Lease wants it.
std::string format_moment(WallTime time);
// `2026-11-18T11:53:13Z`: as an Event wants it.
std::string format_second(WallTime time);

// RFC 3339: either of those, or with another part of a second or another zone. Nothing: it is none.
std::optional<WallTime> parse_moment(std::string_view text);

}  // namespace aliquot::kube
