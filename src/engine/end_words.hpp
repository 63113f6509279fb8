// How a job that is over ended, and what to do about it, in sentences for people: `aliquot why`.
// Pure.
#pragma once

#include <string>
#include <vector>

#include "api/types.hpp"

namespace aliquot::engine {

// The first one names the job and its state.
std::vector<std::string> end_sentences(const api::JobInfo& job);

}  // namespace aliquot::engine
