// Text tables laid out as Slurm's commands lay them out: in columns of fixed width, and a text that
// is too long is cut or marked. The caller says which columns there are; what users may write about
// them is read by format_spec.hpp. A column is measured in characters (UTF-8), not bytes.
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
  cut,    // squeue, sinfo: silently
  plus,   // sacct, sacctmgr: the last character becomes '+'
  whole,  // it stands as it is, and moves what follows
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

}  // namespace aliquot
