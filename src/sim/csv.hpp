// Tables as traces come: comma-separated text whose first line names the columns. Columns are found
// by name, in any order; those nobody asks for are ignored. A refusal names the file, the line and
// the column. Works on text in memory; reading files is file.hpp's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace aliquot::sim {

// `name` is what messages call the text, usually the file.
class CsvReader {
 public:
  static Result<CsvReader> open(std::string_view text, std::string_view name);

  // Where the column is; the first one is an error when it is missing, the second one is not.
  [[nodiscard]] Result<std::size_t> column(std::string_view title) const;
  [[nodiscard]] std::optional<std::size_t> find_column(std::string_view title) const;
  // Several that must all be there.
  template <class... Title>
  [[nodiscard]] Result<std::array<std::size_t, sizeof...(Title)>> columns(Title... titles) const {
    std::array<std::size_t, sizeof...(Title)> found = {};
    auto* next = found.data();
    for (const std::string_view title : {std::string_view(titles)...}) *next++ = TRY(column(title));
    return found;
  }

  // The next line that is not blank; false at the end. It must have as many fields as the header.
  Result<bool> next();

  // Fields of the current line, without the blanks around them.
  [[nodiscard]] const std::string& field(std::size_t column) const { return fields_[column]; }
  [[nodiscard]] Result<std::int64_t> whole_number(std::size_t column, std::int64_t least,
                                                  std::int64_t most) const;
  [[nodiscard]] Result<double> decimal(std::size_t column) const;

  // An error about this field of the current line: `nodes.csv:7: column gpu: '9x' is …`.
  [[nodiscard]] tl::unexpected<Error> wrong(std::size_t column, std::string_view what) const;

 private:
  CsvReader(std::string_view text, std::string_view name) : rest_(text), name_(name) {}
  bool next_line();
  Result<void> split_fields();

  std::string_view rest_;
  std::string name_;
  std::size_t line_number_ = 0;
  std::string_view line_;
  std::vector<std::string> titles_;
  std::vector<std::string> fields_;
};

}  // namespace aliquot::sim
