#include "base/format_spec.hpp"

#include "fuzz.hpp"

using namespace aliquot;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = fuzz::as_text(data, size);
  fuzz::require_one_line(parse_name_format(text));
  fuzz::require_one_line(parse_accounting_format(text));

  const auto letters = parse_letter_format(text);
  fuzz::require_one_line(letters);
  if (!letters) return 0;
  std::vector<Column> columns;
  for (const auto& field : letters->fields) {
    columns.push_back({field.name, field.width, field.align, field.suffix});
  }
  const Row row(columns.size(), std::string(text));
  const auto table = render_table(columns, {row}, {.dashes = true, .prefix = letters->prefix});
  fuzz::require(table.ends_with('\n'));
  return 0;
}
