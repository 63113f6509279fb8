// Help for the tests of this folder: a folder of one's own, waiting for something, the users of the
// system that nobody logs in as.
#pragma once

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include "node/spawn.hpp"

namespace aliquot::node::testing {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = "/tmp/aliquot-node-test-XXXXXX";
    path_ = mkdtemp(pattern.data());
    chmod(path_.c_str(), 0755);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Generous: the machine may be busy. True as soon as it is true.
inline bool eventually(const std::function<bool()>& condition, int most_s = 120) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(most_s);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

inline Identity me() { return *find_identity(Uid(geteuid())); }

// Another user than root, where we are root and there is one.
inline std::optional<Identity> someone(const char* name = "games") {
  if (geteuid() != 0) return std::nullopt;
  const passwd* entry = getpwnam(name);
  if (entry == nullptr) return std::nullopt;
  return *find_identity(Uid(entry->pw_uid));
}

}  // namespace aliquot::node::testing
