// The values of options that are of no effect on one machine, or of few words: whoever writes one
// that Slurm would refuse is refused here too, in Slurm's words and with its status. Which options
// there are and what they mean is option_set.hpp's.
#pragma once

#include <string_view>

#include "cli/option_set.hpp"

namespace aliquot::cli {

// Any value is good for an option of which nothing is known here.
Parsed<void> check_option_words(std::string_view name, std::string_view value);

}  // namespace aliquot::cli
