// Where our words stand in a Slurm job's admin comment (admin_comment.hpp), for everybody who reads
// them: the SPANK plugin has nothing else of ours.
#pragma once

#include <string_view>

namespace aliquot::slurm {

// "--gpu-mem=8G" of "a site's own; aliquot: --gpu-mem=8G; escape on n1"; empty: there are none.
inline std::string_view find_asked_words(std::string_view admin_comment) {
  constexpr std::string_view kMark = "aliquot:";
  const auto at = admin_comment.rfind(kMark);
  if (at == std::string_view::npos) return {};
  std::string_view words = admin_comment.substr(at + kMark.size());
  words = words.substr(0, words.find(';'));
  while (words.starts_with(' ')) words.remove_prefix(1);
  while (words.ends_with(' ')) words.remove_suffix(1);
  return words;
}

}  // namespace aliquot::slurm
