#include "cli/engine_choice.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/text.hpp"
#include "cli/console.hpp"
#include "sys/program.hpp"

namespace aliquot::cli {
namespace {

// The programs of ours that have handed over already, with colons: another Aliquot on the PATH must
// not hand back.
constexpr const char* kPassedOn = "ALIQUOT_PASSED_ON";

}  // namespace

Result<std::optional<Engine>> engine_asked() {
  const char* value = std::getenv("ALIQUOT_ENGINE");
  const std::string_view asked = value == nullptr ? "" : value;
  if (asked.empty()) return std::optional<Engine>{};
  if (asked == "slurm") return Engine::slurm;
  if (asked == "embedded") return Engine::embedded;
  if (asked == "kube" || asked == "kubernetes") return Engine::kubernetes;
  return fail(Error::Code::invalid_argument, "ALIQUOT_ENGINE is {}: write slurm, kube or embedded",
              quote(asked));
}

std::string find_other_program(std::string_view name, std::string_view folders,
                               const std::vector<std::string>& ours) {
  const auto is_ours = [&](const struct stat& found) {
    return std::ranges::any_of(ours, [&](const std::string& own) {
      struct stat one {};
      return ::stat(own.c_str(), &one) == 0 && one.st_dev == found.st_dev &&
             one.st_ino == found.st_ino;
    });
  };
  for (const auto folder : split(folders, ':')) {
    if (folder.empty()) continue;
    const std::string path = fmt::format("{}/{}", folder, name);
    struct stat found {};
    if (::stat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode)) continue;
    if (is_ours(found)) continue;
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

std::vector<std::string> add_own_program(const char* passed, const std::string& own) {
  std::vector<std::string> ours;
  for (const auto path : split(passed == nullptr ? "" : passed, ':')) {
    if (!path.empty()) ours.emplace_back(path);
  }
  if (std::ranges::find(ours, own) == ours.end()) ours.push_back(own);
  return ours;
}

int run_slurms(char** argv) {
  const std::string name = argv[0];
  const char* path = std::getenv("PATH");
  const auto ours = add_own_program(std::getenv(kPassedOn), sys::own_program().string());
  const auto program = find_other_program(name, path == nullptr ? "/usr/bin:/bin" : path, ours);
  if (program.empty()) {
    complain(fmt::format(
        "ALIQUOT_ENGINE is slurm, and Slurm's own {} is not on the PATH: install Slurm's commands, "
        "or unset ALIQUOT_ENGINE",
        name));
    return kFailed;
  }
  ::setenv(kPassedOn, fmt::format("{}", fmt::join(ours, ":")).c_str(), 1);
  ::execv(program.c_str(), argv);
  complain(fmt::format("cannot run {}: {}", program, std::strerror(errno)));
  return kFailed;
}

std::optional<int> refused_on_cluster(std::string_view command, const Instead& instead) {
  const auto engine = engine_asked();
  if (!engine) return failed(engine.error());
  if (*engine == Engine::slurm && !instead.slurm.empty()) {
    complain(
        fmt::format("{}: ALIQUOT_ENGINE is slurm, and this is about the daemon of one machine: {}",
                    command, instead.slurm));
    return kFailed;
  }
  if (*engine == Engine::kubernetes && !instead.kubernetes.empty()) {
    complain(fmt::format("{}: this is not for Kubernetes: {}", command, instead.kubernetes));
    return kFailed;
  }
  return std::nullopt;
}

bool is_kubectl_plugin(std::string_view argv0) {
  argv0.remove_prefix(argv0.rfind('/') + 1);  // npos + 1 is 0
  return argv0 == "kubectl-aliquot";
}

void choose_kubernetes() { ::setenv("ALIQUOT_ENGINE", "kube", 1); }

}  // namespace aliquot::cli
