// A whole request as one line of words, as it would stand on a command line: for the simulator's
// shell, for what the Slurm side keeps of a job, and for tests. The commands themselves read their
// options with getopt and hand them to request_parse.hpp.
#pragma once

#include <string_view>

#include "base/result.hpp"
#include "core/request.hpp"

namespace aliquot::core {

// The options of request_parse.hpp (`--gpus=2`, `--gpus 2`, `-G2`, `-G 2`), a word without an
// option being a --gres; also -n/--ntasks, -N/--nodes, -c/--cpus-per-task (decimals allowed), --mem
// and -C/--constraint. The request is what each node gives: tasks must spread evenly over the
// nodes. What is not said is nothing.
Result<Request> parse_request(std::string_view words);

}  // namespace aliquot::core
