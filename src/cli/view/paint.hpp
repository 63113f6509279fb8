// Colours, if the output is a terminal and NO_COLOR is not set.
#pragma once

#include <string>
#include <string_view>

namespace aliquot::cli {

class Paint {
 public:
  explicit Paint(bool coloured) : coloured_(coloured) {}
  // For what goes to stdout.
  static Paint for_stdout();

  [[nodiscard]] std::string bold(std::string_view text) const { return in("1", text); }
  [[nodiscard]] std::string dim(std::string_view text) const { return in("2", text); }
  [[nodiscard]] std::string red(std::string_view text) const { return in("31", text); }
  [[nodiscard]] std::string green(std::string_view text) const { return in("32", text); }
  [[nodiscard]] std::string yellow(std::string_view text) const { return in("33", text); }

 private:
  [[nodiscard]] std::string in(std::string_view code, std::string_view text) const;
  bool coloured_;
};

}  // namespace aliquot::cli
