// Names that users type out of a known set, with help for those who mistype.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace aliquot::sim {

// The known name that is fewest keystrokes away; empty when none is near.
std::string nearest_name(std::string_view typed, const std::vector<std::string>& known);

// `no policy 'fdg'; did you mean 'fgd'?`, or the list of those there are.
Error unknown_name(std::string_view kind, std::string_view typed,
                   const std::vector<std::string>& known);

// `a,b`: known names, each once.
Result<std::vector<std::string>> parse_names(std::string_view text, std::string_view kind,
                                             const std::vector<std::string>& known);

}  // namespace aliquot::sim
