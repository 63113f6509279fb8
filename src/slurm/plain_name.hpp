// Names as Slurm and Linux have them for hosts, users, GPU models and the like.
#pragma once

#include <algorithm>
#include <string_view>

namespace aliquot::slurm {

// Letters, digits, '-', '_' and '.', and what else is allowed; at least one.
inline bool is_plain_name(std::string_view name, std::string_view also = "") {
  return !name.empty() && std::ranges::all_of(name, [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.' || also.find(c) != also.npos;
  });
}

}  // namespace aliquot::slurm
