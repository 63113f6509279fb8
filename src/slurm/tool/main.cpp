// `aliquot-slurm`, which `aliquot slurm …` runs: sets up, checks and tries out Aliquot under Slurm.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>

#include "base/text.hpp"
#include "node/service.hpp"
#include "slurm/tool/commands.hpp"
#include "sys/folder.hpp"
#include "sys/program.hpp"

namespace aliquot::slurm {

namespace fs = std::filesystem;

int complain(std::string_view text) {
  std::fflush(stdout);  // what was said before comes before
  fmt::print(stderr, "aliquot: {}\n", text);
  return kFailed;
}

void add_site_options(CLI::App& command, SiteOptions& options) {
  command.add_option("--config", options.config, "The settings (/etc/aliquot/slurm.toml)");
  command.add_option("--slurm-conf", options.slurm_conf, "slurm.conf, if not where Slurm has it");
  command.add_option("--slurm-version", options.slurm_version, "As if this Slurm were installed");
  command.add_option("--plugin", options.plugin, "aliquot_spank.so, if not where it was installed");
  command.add_flag("--no-confine", options.no_confine,
                   "Leave cgroup.conf and TaskPlugin as they are: nothing keeps jobs from opening "
                   "other GPUs");
}

namespace {

// The sandbox is a script of its own: it takes over.
int run_sandbox(int argc, char** argv) {
  const std::string path =
      node::find_part({"slurm-sandbox", "../libexec/aliquot/slurm-sandbox"}, "").string();
  if (path.empty()) return complain("slurm-sandbox is not installed beside this program");
  ::setenv("ALIQUOT_BIN", node::find_part({"."}, "").c_str(), 0);
  std::vector<char*> words{argv, argv + argc};
  words.push_back(nullptr);
  words[0] = const_cast<char*>(path.c_str());
  ::execv(path.c_str(), words.data());
  return complain(fmt::format("cannot run {}: {}", path, std::strerror(errno)));
}

// Commands of `aliquot` itself that work on a Slurm cluster.
bool is_for_any_engine(std::string_view command) {
  constexpr std::array<std::string_view, 6> kCommands = {"status", "gpus", "top",
                                                         "why",    "logs", "doctor"};
  return std::ranges::find(kCommands, command) != kCommands.end();
}

int run(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "sandbox") return run_sandbox(argc - 1, argv + 1);
  CLI::App app("Shared GPUs on a Slurm cluster: sets it up, checks it, tries it out.",
               "aliquot slurm");
  app.set_version_flag("--version", "aliquot " ALIQUOT_VERSION);
  app.require_subcommand(1);
  Invocation invocation;
  add_init(app, invocation);
  add_setup(app, invocation);
  add_check(app, invocation);
  add_view(app, invocation);
  // For the help alone: it was looked for above.
  app.add_subcommand("sandbox",
                     "A whole private Slurm cluster on this machine, for trying and tests");
  const auto is_named = [&](const CLI::App* each) { return each->get_name() == argv[1]; };
  if (argc > 1 && argv[1][0] != '-' && app.get_subcommands(is_named).empty()) {
    complain(fmt::format(
        "slurm: there is no subcommand {} (try 'aliquot slurm --help'{})", quote(argv[1]),
        is_for_any_engine(argv[1]) ? fmt::format(", or 'aliquot {}'", argv[1]) : ""));
    return kMisused;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {
    return app.exit(asked) == 0 ? kDone : kFailed;
  } catch (const CLI::ParseError& error) {
    std::string command = "slurm";
    for (const auto* named : app.get_subcommands()) command += " " + named->get_name();
    complain(fmt::format("{}: {} (try 'aliquot {} --help')", command, error.what(), command));
    return kMisused;
  }
  return invocation.run();
}

}  // namespace

std::string output_of(const std::vector<std::string>& words, Millis patience) {
  const auto ran =
      sys::run_program({.file = words.front(), .argv = words}, sys::Streams::apart, "", patience);
  return ran.status == 0 ? ran.out : "";
}

std::string find_slurm_conf(const SiteOptions& options, const SiteSettings& settings) {
  if (options.slurm_conf.empty()) return slurm_conf_path(settings);
  return fs::absolute(options.slurm_conf).string();
}

Result<SlurmVersion> find_version(const std::string& given) {
  if (!given.empty()) {
    if (const auto version = parse_slurm_version(given)) return *version;
    return fail(Error::Code::invalid_argument, "--slurm-version {}: write 22.05.8", quote(given));
  }
  for (const char* command : {"slurmctld", "slurmd", "sinfo"}) {
    if (const auto version = parse_slurm_version(output_of({command, "-V"}, seconds(30))))
      return *version;
  }
  return fail(Error::Code::not_found,
              "neither slurmctld, slurmd nor sinfo is installed here: install Slurm, or give "
              "--slurm-version");
}

std::string find_plugin(const std::string& given) {
  if (!given.empty()) return given;
  return node::find_part(
             {"../lib/slurm/aliquot_spank.so", "../../lib/aliquot/slurm/aliquot_spank.so",
              "../lib/aliquot/slurm/aliquot_spank.so"},
             "")
      .string();
}

Result<std::vector<gpu::Device>> find_gpus(const std::string& simulate) {
  if (simulate.empty()) {
    auto devices = TRY(gpu::open_devices(std::nullopt));
    return devices->list();
  }
  const auto folder = TRY(sys::TemporaryFolder::create("aliquot-slurm"));
  const gpu::StandIn standin{
      node::find_part({"../standin", "../../lib/aliquot/standin"}, "/usr/lib/aliquot/standin"),
      simulate, folder.path() / "standin", false};
  auto devices = TRY(gpu::open_devices(standin));
  return devices->list();
}

}  // namespace aliquot::slurm

int main(int argc, char** argv) {
  try {
    return aliquot::slurm::run(argc, argv);
  } catch (const std::exception& error) {
    return aliquot::slurm::complain(error.what());
  }
}
