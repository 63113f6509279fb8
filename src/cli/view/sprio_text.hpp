// What sprio prints: its fields by letters, the formats it chooses by itself, and the rows. Text
// only.
#pragma once

#include <string>
#include <vector>

#include "api/types.hpp"

namespace aliquot::cli {

struct SprioColumns {
  bool longer = false;  // -l
  bool normal = false;  // -n
  bool users = false;   // -u was given: whose they are is shown
};
// Factors without any weight are left out, as Slurm does.
std::string sprio_format(const api::PriorityInfo& weights, const SprioColumns& columns);

struct SprioView {
  std::string format;
  std::string sort;
  bool header = true;
  bool weights = false;  // -w: them alone
};
struct SprioText {
  std::string out;
  std::vector<std::string> complaints = {};  // about letters that are no fields
  std::string error = {};                    // why it ends there
};
SprioText format_sprio(const api::PriorityList& list, const SprioView& view);

}  // namespace aliquot::cli
