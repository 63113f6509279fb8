// Where our words stand in a Slurm job's admin comment (admin_comment.hpp), for everybody who reads
// them: the SPANK plugin has nothing else of ours.
#pragma once

#include <string_view>

namespace aliquot::slurm {

// "--gpu-mem=8G" of "a site's own; aliquot: --gpu-mem=8G; escape on n1"; empty: there are none.
// Only what a piece begins with counts, as in lua/submit.lua: a site may mention us.
inline std::string_view find_asked_words(std::string_view admin_comment) {
  constexpr std::string_view kMark = "aliquot: ";
  for (auto rest = admin_comment;;) {
    const auto end = rest.find("; ");
    std::string_view words = rest.substr(0, end);
    if (words.starts_with(kMark)) {
      words.remove_prefix(kMark.size());
      words = words.substr(0, words.find(';'));
      while (words.starts_with(' ')) words.remove_prefix(1);
      while (words.ends_with(' ')) words.remove_suffix(1);
      return words;
    }
    if (end == rest.npos) return {};
    rest.remove_prefix(end + 2);
  }
}

}  // namespace aliquot::slurm
