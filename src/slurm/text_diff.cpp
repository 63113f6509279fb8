#include "slurm/text_diff.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "slurm/conf_text.hpp"

namespace aliquot::slurm {
namespace {

constexpr std::size_t kAround = 3;
// The table of common lines is quadratic: beyond this a file is shown as replaced.
constexpr std::size_t kMostCells = 64UL << 20U;

struct Step {
  char mark = ' ';  // ' ', '-', '+'
  std::string line;
};

std::vector<Step> steps(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  std::size_t head = 0;
  while (head < a.size() && head < b.size() && a[head] == b[head]) ++head;
  std::size_t tail = 0;
  while (tail < a.size() - head && tail < b.size() - head &&
         a[a.size() - 1 - tail] == b[b.size() - 1 - tail]) {
    ++tail;
  }
  const std::size_t rows = a.size() - head - tail;
  const std::size_t columns = b.size() - head - tail;
  std::vector<Step> out;
  for (std::size_t i = 0; i < head; ++i) out.push_back({' ', a[i]});
  if ((rows + 1) * (columns + 1) > kMostCells) {
    for (std::size_t i = 0; i < rows; ++i) out.push_back({'-', a[head + i]});
    for (std::size_t i = 0; i < columns; ++i) out.push_back({'+', b[head + i]});
  } else {
    // common[i][j]: the longest common subsequence of a from i and b from j.
    std::vector<std::uint32_t> common((rows + 1) * (columns + 1), 0);
    const auto cell = [&](std::size_t i, std::size_t j) -> std::uint32_t& {
      return common[i * (columns + 1) + j];
    };
    for (std::size_t i = rows; i-- > 0;) {
      for (std::size_t j = columns; j-- > 0;) {
        cell(i, j) = a[head + i] == b[head + j] ? cell(i + 1, j + 1) + 1
                                                : std::max(cell(i + 1, j), cell(i, j + 1));
      }
    }
    std::size_t i = 0;
    std::size_t j = 0;
    while (i < rows || j < columns) {
      if (i < rows && j < columns && a[head + i] == b[head + j]) {
        out.push_back({' ', a[head + i]});
        ++i;
        ++j;
      } else if (i < rows && (j == columns || cell(i + 1, j) >= cell(i, j + 1))) {
        out.push_back({'-', a[head + i++]});
      } else {
        out.push_back({'+', b[head + j++]});
      }
    }
  }
  for (std::size_t i = a.size() - tail; i < a.size(); ++i) out.push_back({' ', a[i]});
  return out;
}

// `start` lines come before the hunk; an empty one is counted from the line before it.
std::string range(std::size_t start, std::size_t count) {
  const std::size_t first = count == 0 ? start : start + 1;
  return count == 1 ? fmt::format("{}", first) : fmt::format("{},{}", first, count);
}

}  // namespace

std::string unified_diff(std::string_view old_text, std::string_view new_text,
                         std::string_view before, std::string_view after) {
  if (old_text == new_text) return {};
  const auto all = steps(lines_of_text(old_text), lines_of_text(new_text));
  std::string out = fmt::format("--- {}\n+++ {}\n", before, after);
  std::size_t old_line = 0;
  std::size_t new_line = 0;
  std::size_t at = 0;
  while (at < all.size()) {
    // The next change, and the last one that is near enough to share its hunk.
    std::size_t change = at;
    while (change < all.size() && all[change].mark == ' ') ++change;
    if (change == all.size()) break;
    const std::size_t from = change - std::min(change - at, kAround);
    std::size_t last = change;
    for (std::size_t i = change; i < all.size() && i <= last + 2 * kAround; ++i) {
      if (all[i].mark != ' ') last = i;
    }
    const std::size_t to = std::min(all.size(), last + kAround + 1);
    for (; at < from; ++at, ++old_line, ++new_line) {
    }
    std::size_t removed = 0;
    std::size_t added = 0;
    std::string body;
    for (std::size_t i = from; i < to; ++i) {
      if (all[i].mark != '+') ++removed;
      if (all[i].mark != '-') ++added;
      body += all[i].mark + all[i].line + "\n";
    }
    out += fmt::format("@@ -{} +{} @@\n{}", range(old_line, removed), range(new_line, added), body);
    old_line += removed;
    new_line += added;
    at = to;
  }
  return out;
}

}  // namespace aliquot::slurm
