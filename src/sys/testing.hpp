// Help for tests: a folder of one's own, a file's text, and waiting for something.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <string>

#include "sys/clock.hpp"
#include "sys/file.hpp"
#include "sys/folder.hpp"

namespace aliquot::test {

// Everybody may look into it: tests run programs as other users.
class Folder : public sys::TemporaryFolder {
 public:
  Folder() : sys::TemporaryFolder(*create("aliquot-test")) { ::chmod(path().c_str(), 0755); }
};

// Empty: there is none.
inline std::string read_text(const std::filesystem::path& path) {
  return sys::read_whole(path).value_or("");
}

// Generous: the machine may be busy. True as soon as it is true.
inline bool eventually(const std::function<bool()>& condition, int most_s = 120) {
  const std::int64_t end = sys::mono_ms() + std::int64_t{most_s} * 1000;
  while (!condition()) {
    if (sys::mono_ms() > end) return false;
    sys::sleep_ms(5);
  }
  return true;
}

}  // namespace aliquot::test
