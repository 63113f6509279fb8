// Text tables laid out as Slurm's commands lay them out: fixed widths, cut or marked where too
// long, or fields between delimiters. What the columns are and say is the caller's; what users may
// write about them is format_spec.hpp's. A column is measured in characters (UTF-8), not bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace aliquot {

enum class Align { left, right };

struct Column {
  std::string header;
  std::size_t width = 0;  // 0: as wide as each text happens to be
  Align align = Align::left;
  std::string suffix = " ";  // printed after every cell
};

using Row = std::vector<std::string>;  // one cell for each column

// What becomes of a text that is wider than its column.
enum class TooLong {
  cut,   // squeue, sinfo: silently
  plus,  // sacct, sacctmgr: the last character becomes '+'
};

// One cell as it stands in a line, its column's suffix included: for whoever lays out many rows
// without building them first.
void append_cell(std::string& out, std::string_view text, const Column& column,
                 TooLong too_long = TooLong::cut);

struct TableLayout {
  TooLong too_long = TooLong::cut;
  bool header = true;
  bool dashes = false;  // a line of dashes under the header
  std::string prefix;   // printed before every line
};

// Every line ends with a newline.
std::string render_table(const std::vector<Column>& columns, const std::vector<Row>& rows,
                         const TableLayout& layout = {});

struct DelimitedLayout {
  std::string delimiter = "|";
  bool trailing = false;  // sacct -p: also after the last field; -P: not
  bool header = true;
};

// Whole texts between delimiters; the columns' widths do not matter.
std::string render_delimited(const std::vector<Column>& columns, const std::vector<Row>& rows,
                             const DelimitedLayout& layout = {});

}  // namespace aliquot
