#include "base/table.hpp"

#include <cstdlib>

namespace aliquot {
namespace {

constexpr bool starts_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }

std::size_t character_count(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += starts_character(c) ? 1U : 0U;
  return count;
}

std::string_view first_characters(std::string_view text, std::size_t count) {
  std::size_t seen = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (starts_character(text[i]) && seen++ == count) return text.substr(0, i);
  }
  return text;
}

const std::string& cell(const Row& row, std::size_t index, std::size_t columns) {
  if (row.size() != columns) std::abort();
  return row[index];
}

}  // namespace

void append_cell(std::string& out, std::string_view text, const Column& column, TooLong too_long) {
  const auto length = character_count(text);
  if (column.width == 0 || (length > column.width && too_long == TooLong::whole)) {
    out += text;
  } else if (length > column.width) {
    const bool mark = too_long == TooLong::plus;
    out += first_characters(text, column.width - (mark ? 1 : 0));
    if (mark) out += '+';
  } else {
    if (column.align == Align::right) out.append(column.width - length, ' ');
    out += text;
    if (column.align == Align::left) out.append(column.width - length, ' ');
  }
  out += column.suffix;
}

std::string render_table(const std::vector<Column>& columns, const std::vector<Row>& rows,
                         const TableLayout& layout) {
  std::string out;
  const auto append_line = [&](auto&& text_of) {
    out += layout.prefix;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      append_cell(out, text_of(i), columns[i], layout.too_long);
    }
    out += '\n';
  };

  if (layout.header) {
    append_line([&](std::size_t i) -> std::string_view { return columns[i].header; });
  }
  if (layout.dashes) {
    append_line([&](std::size_t i) {
      const auto& column = columns[i];
      return std::string(column.width > 0 ? column.width : character_count(column.header), '-');
    });
  }
  for (const auto& row : rows) {
    append_line([&](std::size_t i) -> std::string_view { return cell(row, i, columns.size()); });
  }
  return out;
}

}  // namespace aliquot
