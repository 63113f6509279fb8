// `aliquot setup preload on|off`: what an administrator may change on this machine beyond the
// package. Never done without being asked.
#include <array>
#include <filesystem>
#include <memory>

#include "cli/console.hpp"
#include "cli/view/json_writer.hpp"
#include "cli/view/ours.hpp"
#include "cli/view/preload.hpp"
#include "cli/view/programs.hpp"

namespace aliquot::cli {
namespace {

namespace fs = std::filesystem;

struct SetupOptions {
  std::string what;
  std::string library;
  std::string root;
  bool json = false;
};

std::string installed_library() {
  const fs::path here = fs::path(own_program()).parent_path().parent_path() / "lib";
  std::error_code error;
  for (const auto& candidate : {here / "aliquot/libaliquot.so", here / "libaliquot.so"}) {
    if (fs::exists(candidate, error)) return candidate.string();
  }
  return "/usr/lib/aliquot/libaliquot.so";
}

int preload(const SetupOptions& options) {
  const auto done = options.what == "off"
                        ? preload_off(options.root)
                        : preload_on(options.root, options.library.empty() ? installed_library()
                                                                           : options.library);
  if (!done) return failed(done.error());
  if (!options.json) return print(*done + "\n");
  JsonWriter json;
  json.begin_object().field("preload", options.what).field("text", *done);
  return print(json.end_object().text());
}

}  // namespace

void add_setup(CLI::App& parent, Invocation& invocation) {
  auto* setup = parent.add_subcommand("setup", "Change this machine, for administrators");
  setup->require_subcommand(1);
  auto* command = setup->add_subcommand(
      "preload",
      "Have the library in every process (/etc/ld.so.preload): also in those that "
      "lose their environment");
  const auto options = std::make_shared<SetupOptions>();
  command->add_option("what", options->what, "on or off")
      ->required()
      ->check(CLI::IsMember({"on", "off"}));
  command->add_option("--library", options->library, "The full path of libaliquot.so");
  command->add_option("--root", options->root, "The folder of another machine's files");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->callback(
      [&invocation, options] { invocation.run = [options] { return preload(*options); }; });
}

}  // namespace aliquot::cli
