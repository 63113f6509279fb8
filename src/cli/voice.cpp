#include "cli/voice.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "base/text.hpp"

namespace aliquot::cli {

void Voice::say(std::string_view kind, std::string_view text) const {
  std::string lines;
  for (const auto line : split(text, '\n')) {
    // The text may hold what somebody typed, or a file's name.
    lines += fmt::format("{}: {}{}\n", name_, kind, make_plain(line));
  }
  // One write: lines of several processes do not mix.
  if (std::fwrite(lines.data(), 1, lines.size(), stderr) != lines.size()) return;
  std::fflush(stderr);
}

void Voice::error(std::string_view text) const { say("error: ", text); }
void Voice::fatal(std::string_view text) const { say("fatal: ", text); }
void Voice::info(std::string_view text) const {
  if (level_ >= 0) say("", text);
}
void Voice::verbose(std::string_view text) const {
  if (level_ >= 1) say("", text);
}

}  // namespace aliquot::cli
