// The engine's refusals as the API says them: an HTTP status, and the name of Slurm's error, whose
// text the commands print.
#pragma once

#include "api/types.hpp"
#include "engine/refused.hpp"

namespace aliquot::engine {

struct ApiError {
  int status = 400;
  api::ErrorInfo info;
};
ApiError to_api(const Refused& refused);

}  // namespace aliquot::engine
