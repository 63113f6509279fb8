// Which Slurm the Slurm-named commands behave like, for clients that ask before they parse.
#pragma once

#include <string_view>

namespace aliquot::cli {

inline constexpr int kSlurmMajor = 22;
inline constexpr int kSlurmMinor = 5;
inline constexpr int kSlurmMicro = 8;
inline constexpr std::string_view kSlurmRelease = "22.05.8";

}  // namespace aliquot::cli
