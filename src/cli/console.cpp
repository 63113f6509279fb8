#include "cli/console.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

namespace aliquot::cli {

int print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) {
    return kDone;
  }
  complain(fmt::format("cannot write the output: {}", std::strerror(errno)));
  return kFailed;
}

void complain(std::string_view message) {
  std::string line = "aliquot: ";
  for (const char c : message) line += c == '\n' || c == '\r' ? ' ' : c;
  while (line.back() == ' ') line.pop_back();
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

int failed(const Error& error) {
  complain(error.message);
  return kFailed;
}

int misused(const Error& error) {
  complain(error.message);
  return kMisused;
}

}  // namespace aliquot::cli
