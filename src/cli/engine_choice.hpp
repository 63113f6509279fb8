// Which engine the caller wants: $ALIQUOT_ENGINE, `embedded`, `slurm` or `kube`, holds for every
// command. With `slurm` a command that Slurm has as well is Slurm's own; ours that have nothing to
// do on a cluster say so. Called as a plugin of kubectl (`kubectl aliquot`, which runs
// kubectl-aliquot), this program is for Kubernetes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace aliquot::cli {

enum class Engine { embedded, slurm, kubernetes };

// Nothing: not said.
Result<std::optional<Engine>> engine_asked();

// The first program of that name in these folders ("/usr/bin:/bin") that is none of `ours` under
// another name. Empty: none.
std::string find_other_program(std::string_view name, std::string_view folders,
                               const std::vector<std::string>& ours);
// `own` and the programs that were passed on by ("/a/aliquot:/b/aliquot", or null).
std::vector<std::string> add_own_program(const char* passed, const std::string& own);

// Hands over to Slurm's own command; returns only where there is none.
int run_slurms(char** argv);

// What to do on a cluster instead of a command that is not for it.
struct Instead {
  std::string_view slurm = {};  // empty: it is for Slurm, too
  std::string_view kubernetes = {};
};
// The exit status, where the caller wants an engine that the command is not for.
std::optional<int> refused_on_cluster(std::string_view command, const Instead& instead);

// Whether the program was called by this name: `/usr/bin/kubectl-aliquot`.
bool is_kubectl_plugin(std::string_view argv0);
// From now on, for this process and what it starts.
void choose_kubernetes();

}  // namespace aliquot::cli
