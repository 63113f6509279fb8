#include "sim/shell_words.hpp"

#include <algorithm>
#include <array>

#include "base/text.hpp"

namespace aliquot::sim {

std::vector<std::string_view> split_words(std::string_view line) {
  constexpr std::string_view kBlanks = " \t\r\n";
  std::vector<std::string_view> words;
  while (true) {
    const auto start = line.find_first_not_of(kBlanks);
    if (start == line.npos || line[start] == '#') return words;
    line.remove_prefix(start);
    const auto end = line.find_first_of(kBlanks);
    words.push_back(line.substr(0, end));
    if (end == line.npos) return words;
    line.remove_prefix(end);
  }
}

Result<Settings> Settings::parse(const std::vector<std::string_view>& words, std::size_t first,
                                 const std::vector<std::string_view>& allowed) {
  Settings settings;
  for (std::size_t i = first; i < words.size(); ++i) {
    const auto equals = words[i].find('=');
    const auto key = words[i].substr(0, equals);
    if (equals == words[i].npos || equals + 1 == words[i].size() ||
        std::find(allowed.begin(), allowed.end(), key) == allowed.end()) {
      return fail(Error::Code::invalid_argument, "what is {}? settings here: {}=…", quote(words[i]),
                  fmt::join(allowed, "=…, "));
    }
    if (settings.find(key)) {
      return fail(Error::Code::invalid_argument, "{} is there twice", key);
    }
    settings.settings_.push_back({key, words[i].substr(equals + 1)});
  }
  return settings;
}

std::optional<std::string_view> Settings::find(std::string_view key) const {
  for (const auto& setting : settings_) {
    if (setting.key == key) return setting.value;
  }
  return std::nullopt;
}

Result<std::string_view> Settings::need(std::string_view key) const {
  if (const auto value = find(key)) return *value;
  return fail(Error::Code::invalid_argument, "{}=… is missing", key);
}

Result<std::int64_t> Settings::number(std::string_view key, std::int64_t least, std::int64_t most,
                                      std::int64_t otherwise) const {
  const auto value = find(key);
  if (!value) return otherwise;
  const auto number = parse_digits(*value);
  if (number && *number >= least && *number <= most) return *number;
  return fail(Error::Code::invalid_argument, "{}={}: must be a whole number from {} to {}", key,
              quote(*value), least, most);
}

Result<Millis> parse_length(std::string_view text) {
  struct Unit {
    std::string_view name;
    Millis length;
  };
  constexpr std::array<Unit, 4> kUnits = {
      {{"ms", Millis(1)}, {"s", seconds(1)}, {"m", minutes(1)}, {"h", hours(1)}}};
  const auto digits = text.substr(0, text.find_first_not_of("0123456789."));
  for (const auto& unit : kUnits) {
    if (text.substr(digits.size()) != unit.name) continue;
    const auto length = parse_decimal(digits, unit.length.value());
    if (length && Millis(*length) <= days(365)) return Millis(*length);
  }
  return fail(Error::Code::invalid_argument, "{} is no length of time: write 500ms, 5s, 2m or 1h",
              quote(text));
}

}  // namespace aliquot::sim
