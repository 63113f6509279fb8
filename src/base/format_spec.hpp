// What users write to choose columns: squeue's -o and -O and sacct's --format. Only the syntax:
// which fields there are, their headers and usual widths is for each command, which turns the parts
// into Columns.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/table.hpp"

namespace aliquot {

struct FieldSpec {
  std::string name;  // one letter for -o
  std::size_t width = 0;
  Align align = Align::left;
  std::string suffix;  // the text between this field and the next

  friend bool operator==(const FieldSpec&, const FieldSpec&) = default;
};

struct LetterFormat {
  std::string prefix;  // the text before the first field
  std::vector<FieldSpec> fields;

  friend bool operator==(const LetterFormat&, const LetterFormat&) = default;
};

// squeue -o, sinfo -o: `%[[.]size]type`, any text between; a dot justifies to the right.
Result<LetterFormat> parse_letter_format(std::string_view text);

// squeue -O, sinfo -O: `type[:[.][size][suffix]],…`. Without a colon 20 characters; with one but
// without a size as wide as the text is. Nothing between two commas is no field.
Result<std::vector<FieldSpec>> parse_name_format(std::string_view text);

struct AccountingField {
  std::string name;
  std::optional<std::size_t> width;  // none: the field's usual one
  std::optional<Align> align;        // none: the field's usual one

  friend bool operator==(const AccountingField&, const AccountingField&) = default;
};

// sacct --format, sacctmgr format=: `name[%[-]size],…`; a size justifies to the right, a negative
// one to the left. Nothing between two commas is no field.
Result<std::vector<AccountingField>> parse_accounting_format(std::string_view text);

}  // namespace aliquot
