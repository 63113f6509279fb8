// Edits of slurm.conf and the files that it includes: several may touch one line, and a key that
// stands nowhere gets a line of its own. Knows nothing of what is written, and writes no file: it
// gives the text of each as it is to be.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "slurm/site.hpp"

namespace aliquot::slurm {

class SiteEdit {
 public:
  // site: as it is, and for as long as this.
  explicit SiteEdit(const Site& site) : site_(site) {}

  void set(ConfPlace place, std::string_view key, std::string_view value);
  // The key where it stands, or a new line at the end of slurm.conf.
  void set(std::string_view key, std::string_view value);
  // Of site.files[file].
  [[nodiscard]] std::string text(std::size_t file) const;

 private:
  [[nodiscard]] std::string own_text(ConfPlace place) const;

  const Site& site_;
  std::map<ConfPlace, std::string> changed_;
  std::vector<std::string> added_;
};

// `gpu` and `task/none` -> the list with what is missing at its end.
std::string with_items(std::string_view list, std::initializer_list<std::string_view> items,
                       std::initializer_list<std::string_view> instead_of = {});

}  // namespace aliquot::slurm
