#include "base/toml_reader.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "base/size.hpp"
#include "base/text.hpp"

namespace aliquot {

tl::unexpected<Error> TomlPlace::complain(std::string_view what) const {
  return fail(Error::Code::invalid_argument, "{}:{}: {}: {}", file_, node_.source().begin.line,
              key_, what);
}

Result<std::string> TomlPlace::text() const {
  const auto* value = node_.as_string();
  if (value == nullptr) return complain("expected a text in quotes");
  return value->get();
}

Result<std::vector<std::string>> TomlPlace::texts() const {
  const auto* list = node_.as_array();
  std::vector<std::string> texts;
  for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
    const auto* value = list->get_as<std::string>(i);
    if (value == nullptr) break;
    texts.push_back(value->get());
  }
  if (list == nullptr || texts.size() != list->size()) {
    return complain("expected a list of texts: [\"a\", \"b\"]");
  }
  return texts;
}

Result<bool> TomlPlace::truth() const {
  const auto* value = node_.as_boolean();
  if (value == nullptr) return complain("expected true or false");
  return value->get();
}

Result<std::int64_t> TomlPlace::number(std::int64_t least, std::int64_t most) const {
  const auto* value = node_.as_integer();
  if (value == nullptr || value->get() < least || value->get() > most) {
    return complain(fmt::format("expected a whole number from {} to {}", least, most));
  }
  return value->get();
}

Result<std::vector<std::int64_t>> TomlPlace::numbers(std::int64_t least, std::int64_t most) const {
  const auto* list = node_.as_array();
  std::vector<std::int64_t> numbers;
  for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
    const auto* value = list->get_as<std::int64_t>(i);
    if (value == nullptr || value->get() < least || value->get() > most) break;
    numbers.push_back(value->get());
  }
  if (list == nullptr || numbers.size() != list->size()) {
    return complain(
        fmt::format("expected a list of whole numbers from {} to {}: [0, 1]", least, most));
  }
  return numbers;
}

Result<Compute> TomlPlace::factor(std::int64_t most) const {
  const auto value = node_.value<double>();
  if (!node_.is_number() || !value || !(*value >= 1) || !(*value <= static_cast<double>(most))) {
    return complain(fmt::format("expected a number from 1.0 to {}", most));
  }
  return Compute(std::llround(*value * static_cast<double>(kWholeGpu.value())));
}

Result<TimeLimit> TomlPlace::time() const {
  if (const auto* value = node_.as_integer(); value != nullptr) {
    const std::int64_t count = TRY(number(1, 1'000'000'000));
    return TimeLimit{seconds(count)};
  }
  const std::string written = TRY(text());
  const auto parsed = parse_time_limit(written);
  if (!parsed) return complain(parsed.error().message);
  return *parsed;
}

Result<Millis> TomlPlace::span() const {
  const TimeLimit limit = TRY(time());
  if (limit.unlimited() || *limit.length <= Millis(0)) return complain("expected a length of time");
  return *limit.length;
}

Result<Bytes> TomlPlace::size() const {
  const std::string written = TRY(text());
  const auto parsed = parse_size(written);
  if (!parsed) return complain(parsed.error().message);
  if (*parsed <= Bytes(0)) return complain("expected more than nothing");
  return *parsed;
}

Result<void> read_toml_table(const toml::table& table, const TomlReaders& readers,
                             std::string_view file, const std::string& prefix) {
  for (const auto& [key, node] : table) {
    const TomlPlace place(node, file, prefix + std::string(key.str()));
    const auto reader = readers.find(key.str());
    if (reader == readers.end()) {
      std::string known;
      for (const auto& [one, unused] : readers) known += (known.empty() ? "" : ", ") + one;
      return place.complain("there is no such setting; known here: " + known);
    }
    TRY(reader->second(place));
  }
  return {};
}

Result<void> read_toml(std::string_view text, std::string_view name, const TomlReaders& readers) {
  try {
    const toml::table root = toml::parse(text, name);
    return read_toml_table(root, readers, name, "");
  } catch (const toml::parse_error& error) {
    return fail(Error::Code::invalid_argument, "{}:{}: {}", name, error.source().begin.line,
                error.description());
  }
}

Result<std::string> read_settings_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return fail(Error::Code::not_found, "cannot read the settings {}", quote(path));
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TomlReader toml_table(TomlReaders readers) {
  return [readers = std::move(readers)](const TomlPlace& place) -> Result<void> {
    const toml::table* table = place.node().as_table();
    if (table == nullptr) return place.complain("expected a table: [" + place.key() + "]");
    return read_toml_table(*table, readers, place.file(), place.key() + ".");
  };
}

TomlReader one_of(std::string& to, std::vector<std::string> allowed) {
  return [&to, allowed = std::move(allowed)](const TomlPlace& place) -> Result<void> {
    to = TRY(place.text());
    if (std::ranges::find(allowed, to) != allowed.end()) return {};
    std::string list;
    for (const std::string& one : allowed) list += (list.empty() ? "" : ", ") + one;
    return place.complain(quote(to) + " is none of " + list);
  };
}

}  // namespace aliquot
