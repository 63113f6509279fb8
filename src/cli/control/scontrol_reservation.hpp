// `scontrol create|update|delete|show reservation`: from `Key=Value` words to what the daemon
// takes, and the records. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/types.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "cli/control/scontrol_text.hpp"

namespace aliquot::cli {

// `all_gpus`: what Nodes=ALL means. Of a new one `name` may stay empty.
Result<api::ReservationSpec> parse_reservation(const std::vector<std::string_view>& words,
                                               const std::vector<std::int64_t>& all_gpus,
                                               WallTime now);
std::string show_reservation(const api::ReservationInfo& one, const api::ClusterInfo& cluster,
                             const ShowStyle& style, WallTime now);
// The rows of sinfo -T.
std::string reservation_table(const std::vector<api::ReservationInfo>& all,
                              const api::ClusterInfo& cluster, bool header, WallTime now);

}  // namespace aliquot::cli
