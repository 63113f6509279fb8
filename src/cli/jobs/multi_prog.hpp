// srun --multi-prog: a file that says which task runs what.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace aliquot::cli {

// Lines of `tasks command arguments…`: tasks as `0`, `1-3,5` or `*` for the rest; in the arguments
// %t is the task and %o its place among the line's tasks. One command for each of `ntasks` tasks.
// `name` is the file's, for what is said of it.
Result<std::vector<std::vector<std::string>>> parse_multi_prog(std::string_view text,
                                                               std::size_t ntasks,
                                                               std::string_view name);

}  // namespace aliquot::cli
