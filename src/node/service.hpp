// What every daemon of ours does at its start: finding its parts, going to the background, opening
// its log.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace aliquot::node {

// Beside the program in the build tree, or where a package puts it.
std::filesystem::path find_part(const std::vector<std::filesystem::path>& places,
                                const std::filesystem::path& fallback);

// A child goes on in the background, the parent waits until it is ready or has said why not.
class Background {
 public:
  // The parent's exit status; nothing: we are the child.
  Result<std::optional<int>> enter();
  // From here on nobody reads what the child would say. Does nothing where enter() was not called.
  void ready();

 private:
  int pipe_ = -1;
};

// spdlog's default, to the file, or to stderr where it is empty.
Result<void> open_log(const std::string& name, const std::string& file, const std::string& level);

}  // namespace aliquot::node
