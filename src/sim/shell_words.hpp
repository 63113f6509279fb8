// The words of the shell's commands: splitting a line, `key=value` settings, lengths of time.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"

namespace aliquot::sim {

// Words between blanks; `#` at the start of a word begins a comment.
std::vector<std::string_view> split_words(std::string_view line);

// `a=1 b=2`, each key one of those allowed, each at most once.
class Settings {
 public:
  static Result<Settings> parse(const std::vector<std::string_view>& words, std::size_t first,
                                const std::vector<std::string_view>& allowed);

  // The value as written; the second form complains when it is missing.
  [[nodiscard]] std::optional<std::string_view> find(std::string_view key) const;
  [[nodiscard]] Result<std::string_view> need(std::string_view key) const;
  // A whole number in these bounds, or `otherwise` where it is not said.
  [[nodiscard]] Result<std::int64_t> number(std::string_view key, std::int64_t least,
                                            std::int64_t most, std::int64_t otherwise) const;

 private:
  struct Setting {
    std::string_view key;
    std::string_view value;
  };
  std::vector<Setting> settings_;
};

// `500ms`, `5s`, `2m`, `1h`, with decimals; at most a year.
Result<Millis> parse_length(std::string_view text);

}  // namespace aliquot::sim
