// What seff says of a job: how much of what it held it used. Text only.
#pragma once

#include <string>

#include "api/types.hpp"
#include "base/time.hpp"

namespace aliquot::cli {

std::string format_seff(const api::JobInfo& job, const std::string& cluster, WallTime now);

}  // namespace aliquot::cli
