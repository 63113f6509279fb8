#include "sim/names.hpp"

#include <algorithm>
#include <numeric>

#include "base/text.hpp"

namespace aliquot::sim {
namespace {

// Keystrokes (insert, delete, replace, swap two neighbours) from one text to the other.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> two_before;
  std::vector<std::size_t> before(b.size() + 1);
  std::iota(before.begin(), before.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::vector<std::size_t> now(b.size() + 1, i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      now[j] = std::min({before[j] + 1, now[j - 1] + 1, before[j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        now[j] = std::min(now[j], two_before[j - 2] + 1);
      }
    }
    two_before = std::move(before);
    before = std::move(now);
  }
  return before.back();
}

}  // namespace

std::string nearest_name(std::string_view typed, const std::vector<std::string>& known) {
  if (typed.size() > 64) return {};
  const auto lower = to_lower(typed);
  std::string nearest;
  std::size_t least = std::max<std::size_t>(2, typed.size() / 2);
  for (const auto& name : known) {
    const auto away = distance(lower, name);
    if (away < least || (away == least && nearest.empty() && away < name.size() / 2)) {
      nearest = name;
      least = away;
    }
  }
  return nearest;
}

Error unknown_name(std::string_view kind, std::string_view typed,
                   const std::vector<std::string>& known) {
  const auto nearest = nearest_name(typed, known);
  auto message = fmt::format("no {} {}", kind, quote(typed));
  if (nearest.empty()) {
    message += fmt::format("; there are: {}", fmt::join(known, ", "));
  } else {
    message += fmt::format("; did you mean {}?", quote(nearest));
  }
  return Error{Error::Code::not_found, std::move(message)};
}

Result<std::vector<std::string>> parse_names(std::string_view text, std::string_view kind,
                                             const std::vector<std::string>& known) {
  std::vector<std::string> names;
  for (const auto part : split(text, ',')) {
    if (std::find(known.begin(), known.end(), part) == known.end()) {
      return tl::make_unexpected(unknown_name(kind, part, known));
    }
    if (std::find(names.begin(), names.end(), part) != names.end()) {
      return fail(Error::Code::invalid_argument, "{} {} is there twice", kind, quote(part));
    }
    names.emplace_back(part);
  }
  return names;
}

}  // namespace aliquot::sim
