// Slurm's configuration files (slurm.conf, gres.conf, cgroup.conf) as text that can be read and
// edited without losing anything of it. A file keeps its lines as they are; whatever we put in
// stands between two marks, and a line that we replace is kept there as a comment:
//
//   # BEGIN aliquot
//   # was: GresTypes=gpu
//   GresTypes=gpu,shard
//   # END aliquot
//
// So without_ours() gives back the site's own text, at any time and whatever the site has edited
// since, and setup is always "without ours, then ours anew". Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace aliquot::slurm {

// `NodeName=n[1-4] CPUs=64 Gres=…`: one logical line. A backslash at the end goes on with the next.
struct ConfLine {
  std::size_t first = 0;  // of the physical lines, from 0
  std::size_t count = 1;
  std::vector<std::pair<std::string, std::string>> words;  // key=value, quotes taken away
  std::string include;                                     // `Include x`: the file's name

  // The value of a key, whatever its case; nothing if the line has none. The last one counts.
  [[nodiscard]] std::optional<std::string> get(std::string_view key) const;
  // The line's subject: `NodeName=…` begins a line about nodes.
  [[nodiscard]] bool is_about(std::string_view key) const;
};

std::vector<std::string> lines_of_text(std::string_view text);
// Comments and empty lines are left out; what is no key=value is skipped, as we only look.
std::vector<ConfLine> parse_conf_lines(const std::vector<std::string>& lines);

// Marks in the file's own way of writing comments: "#", or "--" in Lua.
struct CommentStyle {
  std::string_view start = "#";
};

// The text with our blocks taken out, and what they replaced back in its place.
std::string without_ours(std::string_view text, CommentStyle style = {});
// The same of a file as it is found: refused where the marks do not come in pairs, as what stands
// between them would be taken away with ours, or stay with the site's.
Result<std::string> own_text(std::string_view text, const std::string& path,
                             CommentStyle style = {});
bool has_ours(std::string_view text, CommentStyle style = {});

// Whether Slurm reads the same from both: comments, empty lines, and the place of a line among
// others do not count, as long as each key keeps the value that counts. `kept`: how comments begin
// that are ours to read.
bool means_the_same(std::string_view one, std::string_view other,
                    const std::vector<std::string_view>& kept = {});
// The same of Lua, where the order counts and only comments and empty lines do not.
bool means_the_same_lua(std::string_view one, std::string_view other);
// Where a line of Lua can still be added: a `return` must be the last statement of a file.
std::size_t end_of_lua(const std::vector<std::string>& lines);

// Edits of one file, applied together: the numbers are those of the lines before any of them. Works
// on the site's own text (without_ours).
class ConfEdit {
 public:
  ConfEdit(std::string_view text, CommentStyle style);

  // In place of lines [first, first + count); `with` has no newline at its end, and may be several.
  void replace(std::size_t first, std::size_t count, std::string with);
  // Before line `at`; at the end where there are no more lines.
  void insert(std::size_t at, std::string what);
  void append(std::string what);
  // Makes lines [first, first + count) comments.
  void disable(std::size_t first, std::size_t count) { replace(first, count, ""); }

  [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }
  [[nodiscard]] std::string text() const;

 private:
  struct Change {
    std::size_t first = 0;
    std::size_t count = 0;  // 0: put before
    std::string with;
  };
  std::vector<std::string> lines_;
  std::vector<Change> changes_;
  CommentStyle style_;
};

// A logical line as one, without comments: `NodeName=n1 CPUs=4`.
std::string logical_text(const std::vector<std::string>& lines, const ConfLine& line);
// The same with one key set to another value, or added at its end.
std::string with_value(std::string_view line, std::string_view key, std::string_view value);

}  // namespace aliquot::slurm
