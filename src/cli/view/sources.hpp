// Whom `aliquot status`, `gpus`, `why` and `top` ask: the daemon of this machine, or a Slurm
// cluster, for which `aliquot-slurm view` answers in the same words. The daemon comes first;
// $ALIQUOT_ENGINE, `embedded` or `slurm`, decides otherwise.
#pragma once

#include <string>

#include "api/types.hpp"
#include "cli/common.hpp"

namespace aliquot::cli {

// limits: also what the caller may hold, where that is an extra question.
Answer<api::Overview> ask_overview(bool limits);
Answer<api::WhyInfo> ask_why(const std::string& job);

// `{"cluster": …, "jobs": […]}`
std::string overview_json(const api::Overview& overview);

}  // namespace aliquot::cli
