// Limits on trackable resources as sacctmgr writes them: `gres/gpu=4,cpu=8,mem=64G`. Parts of a GPU
// may be written, since shares count as their parts.
#pragma once

#include <string>
#include <string_view>

#include "api/accounts.hpp"
#include "base/result.hpp"

namespace aliquot::cli {

// Changes what the text names and leaves the rest; -1 takes a limit away. Also read: `gres=gpu/4`,
// `gres/gpu:4`, `gres/gpu=0.5`.
Result<void> read_tres(std::string_view text, api::TresLimit& limit);
// In Slurm's order; nothing: an empty text.
std::string format_tres(const api::TresLimit& limit);

}  // namespace aliquot::cli
