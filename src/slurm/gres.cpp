#include "slurm/gres.hpp"

#include <algorithm>
#include <optional>

#include "base/text.hpp"

namespace aliquot::slurm {
namespace {

constexpr std::int64_t kMostGpus = 1024;

tl::unexpected<Error> not_understood(std::string_view text) {
  return fail(Error::Code::invalid_argument, "cannot read {} as what a job holds of a node",
              quote(text));
}

// "8/140,4/140,0/140"
Result<std::map<std::int64_t, std::int64_t>> read_counts(std::string_view text) {
  std::map<std::int64_t, std::int64_t> on;
  std::int64_t gpu = 0;
  for (const std::string_view part : split(text, ',')) {
    const auto count = parse_digits(part.substr(0, part.find('/')));
    if (!count || gpu >= kMostGpus) return not_understood(text);
    if (*count > 0) on[gpu] = *count;
    ++gpu;
  }
  return on;
}

Result<GresHold> parse_one(std::string_view text) {
  GresHold hold;
  const std::size_t open = text.find('(');
  const auto words = split(text.substr(0, open), ':');
  if (words.empty() || words.size() > 3 || words.front().empty()) return not_understood(text);
  hold.name = words.front();
  // Without a number it is one.
  const auto count = words.size() > 1 ? parse_digits(words.back()) : std::optional<std::int64_t>(1);
  if (!count) return not_understood(text);
  hold.count = *count;
  if (words.size() == 3) hold.type = words[1];
  if (open == std::string_view::npos) return hold;
  if (text.back() != ')') return not_understood(text);
  const std::string_view inside = text.substr(open + 1, text.size() - open - 2);
  if (inside.starts_with("IDX:")) {
    const auto gpus = TRY(parse_index_list(inside.substr(4)));
    const auto many = std::max<std::int64_t>(std::ssize(gpus), 1);
    for (const std::int64_t gpu : gpus) hold.on[gpu] = hold.count / many;
  } else if (inside.find('/') != std::string_view::npos) {
    hold.on = TRY(read_counts(inside));
  } else if (!inside.starts_with("CNT:")) {
    return not_understood(text);
  }
  return hold;
}

}  // namespace

Result<std::vector<std::int64_t>> parse_index_list(std::string_view text) {
  std::vector<std::int64_t> found;
  if (text.empty() || text == "N/A") return found;
  for (const std::string_view part : split(text, ',')) {
    const std::size_t dash = part.find('-');
    const auto first = parse_digits(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_digits(part.substr(dash + 1));
    if (!first || !last || *last < *first || *last >= kMostGpus) return not_understood(text);
    for (std::int64_t i = *first; i <= *last; ++i) found.push_back(i);
  }
  return found;
}

Result<std::vector<GresHold>> parse_gres_detail(std::string_view text) {
  std::vector<GresHold> holds;
  for (const std::string_view part : split_outside_brackets(text, "[]()")) {
    if (part.empty() || part == "(null)") continue;
    holds.push_back(TRY(parse_one(part.starts_with("gres/") ? part.substr(5) : part)));
  }
  return holds;
}

}  // namespace aliquot::slurm
