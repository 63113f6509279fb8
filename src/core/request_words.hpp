// A whole request as one line of words, the way it would stand on a command line: for the matcher's
// text front end, for explanations and for tests. The commands themselves read their options with
// getopt and hand them to request_parse.hpp.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "core/request.hpp"

namespace aliquot::core {

// The options of request_parse.hpp (`--gpus=2`, `--gpus 2`, `-G2`, `-G 2`), a word without an
// option being a --gres; also -n/--ntasks, -N/--nodes, -c/--cpus-per-task (decimals allowed), --mem
// and -C/--constraint. The request is what each node gives: tasks must spread evenly over the
// nodes. What is not said is nothing.
Result<Request> parse_request(std::string_view words);

// Canonical: `gpu:2 --cpus-per-task=4 --mem=8G`. parse_request reads it back.
std::string format_request(const Request& request);

}  // namespace aliquot::core
