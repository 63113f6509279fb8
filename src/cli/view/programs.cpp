#include "cli/view/programs.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/text.hpp"

namespace aliquot::cli {
namespace {

namespace fs = std::filesystem;

bool is_program(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

}  // namespace

std::string find_program(std::string_view name) {
  const char* path = std::getenv("PATH");
  if (path == nullptr) return {};
  for (const auto folder : split(path, ':')) {
    if (folder.empty()) continue;
    const auto candidate = fs::path(folder) / name;
    if (is_program(candidate)) return candidate.string();
  }
  return {};
}

std::string own_program() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).string();
}

std::string find_beside_or_in_path(std::string_view name) {
  const fs::path own = own_program();
  if (!own.empty()) {
    for (const auto& candidate :
         {own.parent_path() / name, own.parent_path().parent_path() / "sbin" / name}) {
      if (is_program(candidate)) return candidate.string();
    }
  }
  return find_program(name);
}

std::string find_part_program(std::string_view name) {
  const fs::path here = fs::path(own_program()).parent_path();
  for (const auto& candidate : {here / name, here.parent_path() / "libexec" / "aliquot" / name}) {
    if (is_program(candidate)) return candidate.string();
  }
  return {};
}

}  // namespace aliquot::cli
