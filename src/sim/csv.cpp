#include "sim/csv.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace aliquot::sim {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

}  // namespace

Result<CsvReader> CsvReader::open(std::string_view text, std::string_view name) {
  if (text.substr(0, kByteOrderMark.size()) == kByteOrderMark) {
    text.remove_prefix(kByteOrderMark.size());
  }
  CsvReader reader(text, name);
  do {
    if (!reader.next_line()) {
      return fail(Error::Code::invalid_argument,
                  "{}: the file is empty: its first line must name the columns", name);
    }
  } while (trim(reader.line_).empty());
  TRY(reader.split_fields());
  reader.titles_ = std::move(reader.fields_);
  for (std::size_t i = 0; i < reader.titles_.size(); ++i) {
    const auto end = reader.titles_.begin() + static_cast<std::ptrdiff_t>(i);
    if (!reader.titles_[i].empty() && std::find(reader.titles_.begin(), end, *end) != end) {
      return fail(Error::Code::invalid_argument, "{}:{}: there are two columns {}", name,
                  reader.line_number_, quote(reader.titles_[i]));
    }
  }
  return reader;
}

std::optional<std::size_t> CsvReader::find_column(std::string_view title) const {
  const auto found = std::find(titles_.begin(), titles_.end(), title);
  if (found == titles_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - titles_.begin());
}

Result<std::size_t> CsvReader::column(std::string_view title) const {
  const auto found = find_column(title);
  if (found) return *found;
  return fail(Error::Code::invalid_argument, "{}:1: no column {} in the first line", name_,
              quote(title));
}

Result<bool> CsvReader::next() {
  do {
    if (!next_line()) return false;
  } while (trim(line_).empty());
  TRY(split_fields());
  if (fields_.size() != titles_.size()) {
    return fail(Error::Code::invalid_argument, "{}:{}: {} fields where the first line names {}",
                name_, line_number_, fields_.size(), titles_.size());
  }
  return true;
}

Result<std::int64_t> CsvReader::whole_number(std::size_t column, std::int64_t least,
                                             std::int64_t most) const {
  const auto number = parse_digits(field(column));
  if (!number) return wrong(column, "is not a whole number");
  if (*number < least || *number > most) {
    return wrong(column, fmt::format("is not between {} and {}", least, most));
  }
  return *number;
}

Result<double> CsvReader::decimal(std::size_t column) const {
  constexpr std::int64_t kGrain = 1'000'000;
  const auto number = parse_decimal(field(column), kGrain);
  if (!number) return wrong(column, "is not a decimal number");
  return static_cast<double>(*number) / kGrain;
}

tl::unexpected<Error> CsvReader::wrong(std::size_t column, std::string_view what) const {
  return fail(Error::Code::invalid_argument, "{}:{}: column {}: {} {}", name_, line_number_,
              titles_[column], quote(field(column)), what);
}

bool CsvReader::next_line() {
  if (rest_.empty()) return false;
  const auto end = rest_.find('\n');
  line_ = rest_.substr(0, end);
  rest_ = end == rest_.npos ? std::string_view() : rest_.substr(end + 1);
  if (!line_.empty() && line_.back() == '\r') line_.remove_suffix(1);
  ++line_number_;
  return true;
}

// A field may stand in double quotes, within which commas count as text and "" is one quote.
Result<void> CsvReader::split_fields() {
  fields_.clear();
  std::string_view rest = line_;
  while (true) {
    const auto start = rest.find_first_not_of(" \t");
    if (start != rest.npos && rest[start] == '"') {
      std::string field;
      std::size_t at = start + 1;
      while (true) {
        const auto mark = rest.find('"', at);
        if (mark == rest.npos) {
          return fail(Error::Code::invalid_argument, "{}:{}: column {}: a quote is not closed",
                      name_, line_number_, fields_.size() + 1);
        }
        field.append(rest.substr(at, mark - at));
        at = mark + 1;
        if (at >= rest.size() || rest[at] != '"') break;
        field.push_back('"');
        ++at;
      }
      const auto comma = rest.find(',', at);
      if (!trim(rest.substr(at, comma == rest.npos ? comma : comma - at)).empty()) {
        return fail(Error::Code::invalid_argument, "{}:{}: column {}: text after a closed quote",
                    name_, line_number_, fields_.size() + 1);
      }
      fields_.push_back(std::move(field));
      if (comma == rest.npos) return {};
      rest.remove_prefix(comma + 1);
    } else {
      const auto comma = rest.find(',');
      fields_.emplace_back(trim(rest.substr(0, comma)));
      if (comma == rest.npos) return {};
      rest.remove_prefix(comma + 1);
    }
  }
}

}  // namespace aliquot::sim
