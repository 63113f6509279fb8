// What changes in a file, as people read it: a unified diff with three lines around each change.
#pragma once

#include <string>
#include <string_view>

namespace aliquot::slurm {

// Empty where nothing differs. `before` and `after` are the names in its head.
std::string unified_diff(std::string_view old_text, std::string_view new_text,
                         std::string_view before, std::string_view after);

}  // namespace aliquot::slurm
