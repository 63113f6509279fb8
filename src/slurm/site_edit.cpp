#include "slurm/site_edit.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"
#include "slurm/conf_text.hpp"

namespace aliquot::slurm {

void SiteEdit::set(ConfPlace place, std::string_view key, std::string_view value) {
  auto& text = changed_.try_emplace(place, own_text(place)).first->second;
  text = with_value(text, key, value);
}

void SiteEdit::set(std::string_view key, std::string_view value) {
  if (const auto place = site_.find(key)) {
    if (site_.line(*place).get(key) != value) set(*place, key, value);
  } else {
    added_.push_back(fmt::format("{}={}", key, value));
  }
}

std::string SiteEdit::text(std::size_t file) const {
  const ConfFile& conf = site_.files[file];
  std::string whole;
  for (const auto& line : conf.lines) whole += line + "\n";
  ConfEdit edit(whole, CommentStyle{"#"});
  for (const auto& [place, text] : changed_) {
    if (place.file != file || text == own_text(place)) continue;
    const ConfLine& line = site_.line(place);
    edit.replace(line.first, line.count, text);
  }
  if (file == 0 && !added_.empty()) edit.append(fmt::format("{}", fmt::join(added_, "\n")));
  return edit.text();
}

std::string SiteEdit::own_text(ConfPlace place) const {
  return logical_text(site_.files[place.file].lines, site_.line(place));
}

std::string with_items(std::string_view list, std::initializer_list<std::string_view> items,
                       std::initializer_list<std::string_view> instead_of) {
  std::vector<std::string> parts;
  for (const auto part : split(list, ',')) {
    const bool dropped = std::ranges::any_of(
        instead_of, [&](auto other) { return equals_ignoring_case(part, other); });
    if (!part.empty() && !dropped) parts.emplace_back(part);
  }
  for (const auto item : items) {
    const bool there = std::ranges::any_of(
        parts, [&](const auto& part) { return equals_ignoring_case(part, item); });
    if (!there) parts.emplace_back(item);
  }
  return fmt::format("{}", fmt::join(parts, ","));
}

}  // namespace aliquot::slurm
