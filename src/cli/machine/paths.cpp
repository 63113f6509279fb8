#include "cli/machine/paths.hpp"

#include <pwd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/text.hpp"
#include "cli/console.hpp"
#include "sys/program.hpp"

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
  return path == nullptr ? std::string() : sys::find_in_path(name, path);
}

std::string find_beside_or_in_path(std::string_view name) {
  const fs::path own = sys::own_program();
  if (!own.empty()) {
    for (const auto& candidate :
         {own.parent_path() / name, own.parent_path().parent_path() / "sbin" / name}) {
      if (is_program(candidate)) return candidate.string();
    }
  }
  return find_program(name);
}

std::string find_part_program(std::string_view name) {
  const fs::path here = sys::own_program().parent_path();
  for (const auto& candidate : {here / name, here.parent_path() / "libexec" / "aliquot" / name}) {
    if (is_program(candidate)) return candidate.string();
  }
  return {};
}

int run_part(const std::string& name, const std::vector<std::string>& words) {
  const std::string program = find_part_program(name);
  if (program.empty()) {
    complain(name + " is not beside this program: install the whole of Aliquot");
    return kFailed;
  }
  std::vector<std::string> command{program};
  command.insert(command.end(), words.begin(), words.end());
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (auto& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
  complain("cannot run " + program + ": " + std::strerror(errno));
  return kFailed;
}

std::string state_folder() {
  if (::geteuid() == 0) return "/var/lib/aliquot";
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state != '\0') return std::string(state) + "/aliquot";
  const passwd* entry = ::getpwuid(::geteuid());
  const char* home = std::getenv("HOME");
  return std::string(entry != nullptr  ? entry->pw_dir
                     : home != nullptr ? home
                                       : "/tmp") +
         "/.local/state/aliquot";
}

}  // namespace aliquot::cli
