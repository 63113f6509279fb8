#include "cli/view/paint.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

namespace aliquot::cli {

Paint Paint::for_stdout() {
  const char* refused = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  const bool dumb = terminal == nullptr || std::string_view(terminal) == "dumb";
  return Paint(::isatty(STDOUT_FILENO) == 1 && !dumb && (refused == nullptr || *refused == '\0'));
}

std::string Paint::in(std::string_view code, std::string_view text) const {
  if (!coloured_) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

}  // namespace aliquot::cli
