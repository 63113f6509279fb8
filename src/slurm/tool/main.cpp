// `aliquot-slurm`, which `aliquot slurm …` runs: sets up, checks and tries out Aliquot under Slurm.
#include <unistd.h>

#include <CLI/CLI.hpp>
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
#include "slurm/view/run_view.hpp"

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

fs::path own_folder() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path();
}

// What a program prints. Its name is a constant of ours.
std::string output_of(const char* command) {
  std::string out;
  FILE* pipe = ::popen(command, "re");
  if (pipe == nullptr) return out;
  std::array<char, 256> buffer{};
  while (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) out += buffer.data();
  ::pclose(pipe);
  return out;
}

// The sandbox is a script of its own: it takes over.
int run_sandbox(int argc, char** argv) {
  const fs::path here = own_folder();
  for (const fs::path& place :
       {here / "slurm-sandbox", here / "../libexec/aliquot/slurm-sandbox"}) {
    if (::access(place.c_str(), X_OK) != 0) continue;
    ::setenv("ALIQUOT_BIN", here.c_str(), 0);
    std::vector<char*> words{argv, argv + argc};
    words.push_back(nullptr);
    const std::string path = place.string();
    words[0] = const_cast<char*>(path.c_str());
    ::execv(path.c_str(), words.data());
    return complain(fmt::format("cannot run {}: {}", path, std::strerror(errno)));
  }
  return complain("slurm-sandbox is not installed beside " + here.string());
}

int run(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "sandbox") return run_sandbox(argc - 1, argv + 1);
  if (argc > 1 && std::string_view(argv[1]) == "view") return run_view(argc - 1, argv + 1);
  CLI::App app("Shared GPUs on a Slurm cluster: sets it up, checks it, tries it out.",
               "aliquot slurm");
  app.set_version_flag("--version", "aliquot " ALIQUOT_VERSION);
  app.require_subcommand(1);
  Invocation invocation;
  add_setup(app, invocation);
  add_check(app, invocation);
  // For the help alone: it was looked for above.
  app.add_subcommand("sandbox",
                     "A whole private Slurm cluster on this machine, for trying and tests");
  app.add_subcommand("view", "The cluster as JSON, for 'aliquot status' and its like");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {
    return app.exit(asked) == 0 ? kDone : kFailed;
  } catch (const CLI::ParseError& error) {
    complain(fmt::format("slurm: {} (try 'aliquot slurm --help')", error.what()));
    return kMisused;
  }
  return invocation.run();
}

}  // namespace

Result<SlurmVersion> find_version(const std::string& given) {
  if (!given.empty()) {
    if (const auto version = parse_slurm_version(given)) return *version;
    return fail(Error::Code::invalid_argument, "--slurm-version {}: write 22.05.8", quote(given));
  }
  for (const char* command :
       {"slurmctld -V 2>/dev/null", "slurmd -V 2>/dev/null", "sinfo -V 2>/dev/null"}) {
    if (const auto version = parse_slurm_version(output_of(command))) return *version;
  }
  return fail(Error::Code::not_found,
              "neither slurmctld, slurmd nor sinfo is installed here: install Slurm, or give "
              "--slurm-version");
}

std::string find_plugin(const std::string& given) {
  if (!given.empty()) return given;
  const fs::path here = own_folder();
  for (const fs::path& place :
       {here / "../lib/slurm", here / "../../lib/aliquot/slurm", here / "../lib/aliquot/slurm"}) {
    std::error_code error;
    const fs::path plugin = place / "aliquot_spank.so";
    if (fs::is_regular_file(plugin, error)) return fs::weakly_canonical(plugin, error).string();
  }
  return {};
}

std::string short_host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  const std::string_view whole(name.data());
  return std::string(whole.substr(0, whole.find('.')));
}

Result<std::vector<gpu::Device>> find_gpus(const std::string& simulate) {
  if (simulate.empty()) {
    auto devices = TRY(gpu::open_devices(std::nullopt));
    return devices->list();
  }
  std::string folder = (fs::temp_directory_path() / "aliquot-slurm-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) {
    return fail(Error::Code::unavailable, "cannot make a folder in {}: {}",
                fs::temp_directory_path().string(), std::strerror(errno));
  }
  const gpu::StandIn standin{
      node::find_part({"../standin", "../../lib/aliquot/standin"}, "/usr/lib/aliquot/standin"),
      simulate, fs::path(folder) / "standin", false};
  auto found = [&]() -> Result<std::vector<gpu::Device>> {
    auto devices = TRY(gpu::open_devices(standin));
    return devices->list();
  }();
  std::error_code error;
  fs::remove_all(folder, error);
  return found;
}

}  // namespace aliquot::slurm

int main(int argc, char** argv) {
  try {
    return aliquot::slurm::run(argc, argv);
  } catch (const std::exception& error) {
    return aliquot::slurm::complain(error.what());
  }
}
