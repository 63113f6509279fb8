#include "slurm/conf_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <map>

#include "base/text.hpp"

namespace aliquot::slurm {
namespace {

constexpr std::string_view kBegin = " BEGIN aliquot";
constexpr std::string_view kEnd = " END aliquot";
constexpr std::string_view kWas = " was: ";

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
bool is_key(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.';
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// Up to the first '#' that no backslash keeps.
std::string without_comment(std::string_view line) {
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '#') {
      if (out.empty() || out.back() != '\\') break;
      out.back() = '#';
      continue;
    }
    out += line[i];
  }
  while (!out.empty() && is_blank(out.back())) out.pop_back();
  return out;
}

// Where `Key=value` words stand in a line. Key, then perhaps blanks and an operator, '=', value.
struct Word {
  std::string_view key;
  std::string_view value;  // without quotes
  std::size_t begin = 0;   // of the value, quotes included
  std::size_t end = 0;
};

std::vector<Word> words_of(std::string_view line) {
  std::vector<Word> words;
  std::size_t i = 0;
  while (i < line.size()) {
    if (!is_key(line[i])) {
      ++i;
      continue;
    }
    const std::size_t start = i;
    while (i < line.size() && is_key(line[i])) ++i;
    const auto key = line.substr(start, i - start);
    while (i < line.size() && is_blank(line[i])) ++i;
    if (i + 1 < line.size() && std::string_view("-*+/").find(line[i]) != std::string_view::npos &&
        line[i + 1] == '=') {
      ++i;
    }
    if (i >= line.size() || line[i] != '=') {
      while (i < line.size() && !is_blank(line[i])) ++i;  // not a word of ours: skip it
      continue;
    }
    ++i;
    while (i < line.size() && is_blank(line[i])) ++i;
    Word word{.key = key, .value = {}, .begin = i, .end = i};
    if (i < line.size() && line[i] == '"') {
      const auto close = line.find('"', i + 1);
      const auto last = close == std::string_view::npos ? line.size() : close;
      word.value = line.substr(i + 1, last - i - 1);
      i = std::min(last + 1, line.size());
    } else {
      const std::size_t begin = i;
      while (i < line.size() && !is_blank(line[i])) ++i;
      word.value = line.substr(begin, i - begin);
    }
    word.end = i;
    words.push_back(word);
  }
  return words;
}

// The physical lines of a logical one, joined as Slurm joins them.
std::string joined(const std::vector<std::string>& lines, std::size_t first, std::size_t count) {
  std::string text;
  for (std::size_t i = first; i < first + count; ++i) {
    std::string line = without_comment(lines[i]);
    if (line.ends_with('\\')) line.pop_back();
    text += line;
  }
  return text;
}

// Keys that begin a line about something that has a name.
bool names_something(std::string_view key) {
  constexpr std::array<std::string_view, 7> kKeys = {
      "NodeName", "PartitionName", "NodeSet", "Name", "DownNodes", "FrontendName", "SwitchName"};
  return std::ranges::any_of(kKeys, [&](auto other) { return equals_ignoring_case(key, other); });
}

bool is_mark(std::string_view line, CommentStyle style, std::string_view mark) {
  return line.starts_with(style.start) && line.substr(style.start.size()).starts_with(mark);
}

}  // namespace

std::optional<std::string> ConfLine::get(std::string_view key) const {
  const auto found = std::find_if(words.rbegin(), words.rend(), [&](const auto& word) {
    return equals_ignoring_case(word.first, key);
  });
  if (found == words.rend()) return std::nullopt;
  return found->second;
}

bool ConfLine::is_about(std::string_view key) const {
  return !words.empty() && equals_ignoring_case(words.front().first, key);
}

std::vector<std::string> lines_of_text(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const auto end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
  }
  return lines;
}

std::vector<ConfLine> parse_conf_lines(const std::vector<std::string>& lines) {
  std::vector<ConfLine> parsed;
  for (std::size_t i = 0; i < lines.size();) {
    ConfLine line;
    line.first = i;
    line.count = 1;
    while (without_comment(lines[i]).ends_with('\\') && i + 1 < lines.size()) {
      ++i;
      ++line.count;
    }
    ++i;
    const std::string text = joined(lines, line.first, line.count);
    const auto trimmed = trim(text);
    constexpr std::string_view kInclude = "include";
    if (trimmed.size() > kInclude.size() &&
        equals_ignoring_case(trimmed.substr(0, kInclude.size()), kInclude) &&
        is_blank(trimmed[kInclude.size()])) {
      line.include = std::string(trim(trimmed.substr(kInclude.size())));
    } else {
      for (const Word& word : words_of(text)) line.words.emplace_back(word.key, word.value);
    }
    if (!line.words.empty() || !line.include.empty()) parsed.push_back(std::move(line));
  }
  return parsed;
}

std::string without_ours(std::string_view text, CommentStyle style) {
  std::string out;
  bool inside = false;
  const std::string was = std::string(style.start) + std::string(kWas);
  for (const std::string& line : lines_of_text(text)) {
    if (!inside && is_mark(line, style, kBegin)) {
      inside = true;
    } else if (inside && is_mark(line, style, kEnd)) {
      inside = false;
    } else if (!inside) {
      out += line + "\n";
    } else if (line.starts_with(was)) {
      out += line.substr(was.size()) + "\n";
    }
  }
  return out;
}

Result<std::string> own_text(std::string_view text, const std::string& path, CommentStyle style) {
  std::size_t begun = 0;  // the line, from 1; 0: we are outside
  std::size_t number = 0;
  const auto broken = [&](std::size_t line, std::string_view mark, std::string_view other) {
    return fail(Error::Code::failed_state,
                "{}:{}: '{}{}' without '{}{}': put that line back where our lines {}, or take this "
                "one out with ours",
                path, line, style.start, mark, style.start, other,
                mark == kBegin ? "end" : "begin");
  };
  for (const std::string& line : lines_of_text(text)) {
    ++number;
    if (is_mark(line, style, kBegin)) {
      if (begun > 0) return broken(begun, kBegin, kEnd);
      begun = number;
    } else if (is_mark(line, style, kEnd)) {
      if (begun == 0) return broken(number, kEnd, kBegin);
      begun = 0;
    }
  }
  if (begun > 0) return broken(begun, kBegin, kEnd);
  return without_ours(text, style);
}

bool has_ours(std::string_view text, CommentStyle style) {
  const auto lines = lines_of_text(text);
  return std::ranges::any_of(lines, [&](const auto& line) { return is_mark(line, style, kBegin); });
}

bool means_the_same(std::string_view one, std::string_view other,
                    const std::vector<std::string_view>& kept) {
  struct Meaning {
    std::vector<std::string> lines = {};
    std::map<std::string, std::string> values = {};
    bool operator==(const Meaning&) const = default;
  };
  const auto read = [&](std::string_view text) {
    Meaning meaning;
    const auto lines = lines_of_text(text);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const std::size_t first = i;
      while (without_comment(lines[i]).ends_with('\\') && i + 1 < lines.size()) ++i;
      const std::string line(trim(joined(lines, first, i + 1 - first)));
      if (!line.empty()) meaning.lines.push_back(line);
      const bool ours = std::ranges::any_of(
          kept, [&](std::string_view start) { return lines[first].starts_with(start); });
      if (ours) meaning.lines.push_back(lines[first]);
      const auto words = words_of(line);
      if (words.empty() || names_something(words.front().key)) continue;
      for (const Word& word : words) meaning.values[to_lower(word.key)] = std::string(word.value);
    }
    std::ranges::sort(meaning.lines);
    return meaning;
  };
  return read(one) == read(other);
}

std::size_t end_of_lua(const std::vector<std::string>& lines) {
  const auto is_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  for (std::size_t i = lines.size(); i-- > 0;) {
    const auto first = lines[i].find_first_not_of(" \t\r");
    if (first == std::string::npos || lines[i].compare(first, 2, "--") == 0) continue;
    const bool returns =
        lines[i].starts_with("return") && (lines[i].size() == 6 || !is_name(lines[i][6]));
    return returns ? i : lines.size();
  }
  return lines.size();
}

bool means_the_same_lua(std::string_view one, std::string_view other) {
  const auto read = [](std::string_view text) {
    auto lines = lines_of_text(text);
    std::erase_if(lines, [](const std::string& line) {
      const auto plain = trim(line);
      return plain.empty() || (plain.starts_with("--") && !plain.starts_with("--["));
    });
    return lines;
  };
  return read(one) == read(other);
}

ConfEdit::ConfEdit(std::string_view text, CommentStyle style)
    : lines_(lines_of_text(text)), style_(style) {}

void ConfEdit::replace(std::size_t first, std::size_t count, std::string with) {
  changes_.push_back({first, count, std::move(with)});
}

void ConfEdit::insert(std::size_t at, std::string what) {
  changes_.push_back({std::min(at, lines_.size()), 0, std::move(what)});
}

void ConfEdit::append(std::string what) { insert(lines_.size(), std::move(what)); }

std::string ConfEdit::text() const {
  auto changes = changes_;
  std::ranges::stable_sort(changes, {}, &Change::first);
  const std::string comment(style_.start);
  std::string out;
  std::size_t at = 0;
  bool open = false;
  const auto close = [&] {
    if (open) out += comment + std::string(kEnd) + "\n";
    open = false;
  };
  for (const Change& change : changes) {
    if (change.first > at) close();
    for (; at < change.first; ++at) out += lines_[at] + "\n";
    // Neighbours share a pair of marks.
    if (!open) out += comment + std::string(kBegin) + "\n";
    open = true;
    for (std::size_t i = 0; i < change.count; ++i, ++at) {
      out += comment + std::string(kWas) + lines_[at] + "\n";
    }
    if (!change.with.empty()) out += change.with + "\n";
  }
  close();
  for (; at < lines_.size(); ++at) out += lines_[at] + "\n";
  return out;
}

std::string logical_text(const std::vector<std::string>& lines, const ConfLine& line) {
  return std::string(trim(joined(lines, line.first, line.count)));
}

std::string with_value(std::string_view line, std::string_view key, std::string_view value) {
  const bool quotes = value.find_first_of(" \t#") != std::string_view::npos;
  const std::string written = quotes ? fmt::format("\"{}\"", value) : std::string(value);
  const auto words = words_of(line);
  const auto found = std::find_if(words.rbegin(), words.rend(), [&](const Word& word) {
    return equals_ignoring_case(word.key, key);
  });
  if (found == words.rend()) return fmt::format("{} {}={}", line, key, written);
  return fmt::format("{}{}{}", line.substr(0, found->begin), written, line.substr(found->end));
}

}  // namespace aliquot::slurm
