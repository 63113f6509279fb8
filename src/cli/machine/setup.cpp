// `aliquot setup preload on|off`: changes to the machine that the package does not make by itself.
// An administrator has to ask for them.
#include <filesystem>

#include "cli/console.hpp"
#include "cli/engine_choice.hpp"
#include "cli/machine/preload.hpp"
#include "cli/own_command.hpp"
#include "cli/view/json_writer.hpp"
#include "sys/program.hpp"

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
  const fs::path here = sys::own_program().parent_path().parent_path() / "lib";
  std::error_code error;
  for (const auto& candidate : {here / "aliquot/libaliquot.so", here / "libaliquot.so"}) {
    if (fs::exists(candidate, error)) return candidate.string();
  }
  return "/usr/lib/aliquot/libaliquot.so";
}

int preload(const SetupOptions& options) {
  if (const auto no = refused_on_cluster(
          "setup preload", {.kubernetes = "containers with GPUs have the library anyhow"})) {
    return *no;
  }
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

void add_setup(CLI::App& setup, Invocation& invocation) {
  setup.require_subcommand(1);
  auto& command = *setup.add_subcommand(
      "preload",
      "Have the library in every process (/etc/ld.so.preload): also in those that "
      "lose their environment");
  auto& options = run_with(command, invocation, preload);
  command.add_option("what", options.what, "on or off")
      ->required()
      ->check(CLI::IsMember({"on", "off"}));
  command.add_option("--library", options.library, "The full path of libaliquot.so");
  command.add_option("--root", options.root, "The folder of another machine's files");
  command.add_flag("--json", options.json, kJsonAbout);
}

}  // namespace aliquot::cli
