// What follows from options that count by GPU: --cpus-per-gpu, --mem-per-gpu and --ntasks-per-gpu.
#pragma once

#include <cstdint>
#include <optional>

#include "api/types.hpp"
#include "cli/option_set.hpp"

namespace aliquot::cli {

// The GPUs, or shares, that the options ask for; none where they cannot be read: the daemon says
// why.
std::int64_t gpus_asked(const OptionSet& options);

// Sets the tasks, or the GPUs, and the least CPUs of the job.
Parsed<void> count_by_gpu(const OptionSet& options, api::JobSpec& job);

// Tasks that --ntasks-per-gpu makes of a step on so many GPUs; nothing where it was not given, or
// where --ntasks says how many.
Parsed<std::optional<std::int64_t>> tasks_by_gpu(const OptionSet& options, std::int64_t gpus);

}  // namespace aliquot::cli
