// Where programs are: in PATH, or beside the one that runs.
#pragma once

#include <string>
#include <string_view>

namespace aliquot::cli {

// Empty: not there.
std::string find_program(std::string_view name);
std::string find_beside_or_in_path(std::string_view name);
// A part of ours that is not for the PATH: beside the one that runs, or in libexec/aliquot.
std::string find_part_program(std::string_view name);
// The file that runs now.
std::string own_program();

}  // namespace aliquot::cli
