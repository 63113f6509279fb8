// `aliquot shims DIR`: links such as DIR/sbatch to this program, so that the bare names work. Only
// on request: a real Slurm may be on the PATH.
#include <filesystem>

#include "cli/console.hpp"
#include "cli/own_command.hpp"
#include "cli/view/json_writer.hpp"
#include "sys/program.hpp"

namespace aliquot::cli {
namespace {

namespace fs = std::filesystem;

struct ShimsOptions {
  std::string folder;
  bool remove = false;
  bool json = false;
};

bool is_ours(const fs::path& link, const fs::path& program) {
  std::error_code error;
  return fs::is_symlink(link, error) &&
         (fs::read_symlink(link, error) == program || fs::equivalent(link, program, error));
}

int shims(const ShimsOptions& options) {
  const fs::path program = sys::own_program();
  const fs::path folder = options.folder;
  std::error_code error;
  if (!options.remove) fs::create_directories(folder, error);
  if (error) {
    complain(fmt::format("cannot make {}: {}", folder.string(), error.message()));
    return kFailed;
  }
  std::vector<std::string> done;
  for (const auto& command : kCommands) {
    if (!command.is_slurms()) continue;
    const auto link = folder / command.name;
    const bool there = fs::symlink_status(link, error).type() != fs::file_type::not_found;
    if (there && !is_ours(link, program)) {
      if (options.remove) continue;
      complain(fmt::format("{} is there and not ours: left alone", link.string()));
      return kFailed;
    }
    if (options.remove) {
      if (there && fs::remove(link, error)) done.push_back(link.string());
    } else if (!there) {
      fs::create_symlink(program, link, error);
      if (!error) done.push_back(link.string());
    }
    if (error && error != std::errc::no_such_file_or_directory) {
      complain(fmt::format("cannot change {}: {}", link.string(), error.message()));
      return kFailed;
    }
    error.clear();
  }
  if (options.json) {
    JsonWriter json;
    json.begin_object().key(options.remove ? "removed" : "made").begin_array();
    for (const auto& link : done) json.value(link);
    return print(json.end_array().end_object().text());
  }
  auto text = fmt::format("{} {} link{} in {}\n", options.remove ? "removed" : "made", done.size(),
                          done.size() == 1 ? "" : "s", folder.string());
  if (!options.remove) {
    text +=
        fmt::format("to use them: export PATH={}:$PATH\n", fs::absolute(folder, error).string());
  }
  return print(text);
}

}  // namespace

void add_shims(CLI::App& command, Invocation& invocation) {
  auto& options = run_with(command, invocation, shims);
  command.add_option("folder", options.folder, "Where")->required();
  command.add_flag("--remove", options.remove, "Take them away again");
  command.add_flag("--json", options.json, kJsonAbout);
}

}  // namespace aliquot::cli
